"""The search compared with peers, on problems with realistic failures: `fmnes bench search`."""

from fmnes_bench.search.run import search

__all__ = ["search"]
