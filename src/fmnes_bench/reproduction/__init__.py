"""The paper's experiments, all of them, beside the published numbers: what `fmnes reproduce` runs."""

from fmnes_bench.reproduction.run import WHAT, reproduce

__all__ = ["WHAT", "reproduce"]
