"""Test problems: the eight of the paper, two more, and a rotated version of each.

>>> from fmnes import problems
>>> problem = problems.get("ic-rosenbrock", d=5)
>>> float(problem.fun(problem.x0)), float(problem.fun(problem.x0 + 2))
(4.0, inf)

In `problems.real` are simulations that fail as real ones do.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from .problem import Problem, get, names

if TYPE_CHECKING:
    from . import real

__all__ = ["Problem", "get", "names", "real"]

if not TYPE_CHECKING:  # to a type checker, a `__getattr__` means that there is every name

    def __getattr__(name: str) -> ModuleType:
        """`problems.real`, which is loaded when it is asked for."""
        if name == "real":
            import fmnes.problems.real

            return fmnes.problems.real
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
