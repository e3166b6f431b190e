"""The search itself beside the peers, on problems that fail as users' problems do: `fmnes bench search`."""

from fmnes_bench.search.run import search

__all__ = ["search"]
