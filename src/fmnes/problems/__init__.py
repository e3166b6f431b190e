"""Test problems: the eight of the paper, two more, and a rotated version of each.

>>> from fmnes import problems
>>> problem = problems.get("ic-rosenbrock", d=5)
>>> float(problem.fun(problem.x0)), float(problem.fun(problem.x0 + 2))
(4.0, inf)
"""

from .problem import Problem, get, names

__all__ = ["Problem", "get", "names"]
