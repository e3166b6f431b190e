"""Few evaluations: fmnes and its peers with budgets of 10 d to 200 d evaluations: `fmnes bench few`."""

from fmnes_bench.few.run import few

__all__ = ["few"]
