"""Lens design: a Cooke triplet or a double Gauss with the smallest spots at its focal length and F-number.

>>> import fmnes
>>> from fmnes_bench import lens
>>> problem = lens.triplet()
>>> result = fmnes.minimize(problem.fun, problem.parameters, vectorized=True, max_evaluations=200, rng=1)
>>> result.fun < problem.fun(problem.start)
True

A lens through which a ray finds no way has no spot, and its evaluation fails: the ray misses a surface or is
totally reflected, surfaces cross or leave an edge too thin to hold, there is no focal length or no image.
"""

from __future__ import annotations

from fmnes_bench.lens.drawing import draw
from fmnes_bench.lens.optics import C, D, F, Specification
from fmnes_bench.lens.problem import Lens, LensProblem, double_gauss, triplet

__all__ = ["C", "D", "F", "Lens", "LensProblem", "Specification", "double_gauss", "draw", "triplet"]
