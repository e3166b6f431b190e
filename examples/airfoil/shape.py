"""A wing section from 8 numbers, and XFOIL on it: python3 shape.py U1 U2 U3 U4 L1 L2 L3 L4 < commands.in

Kulfan's class-shape form (CST): each surface is y = sqrt(x) (1 - x) S(x), where S is a cubic of Bernstein's
with four numbers as its coefficients. The root makes a round nose and 1 - x a sharp tail; the numbers say how
full the surface is from the nose to the tail, less than 0 being below the chord.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence

THICKNESS = 0.12  # of the chord
Point = tuple[float, float]
POINTS = 240  # XFOIL makes 160 panels of them


def height(weights: Sequence[float], x: float) -> float:
    """Of one surface at x, from 0 at the nose to 1 at the tail."""
    last = len(weights) - 1
    blend = sum(w * math.comb(last, i) * x**i * (1 - x) ** (last - i) for i, w in enumerate(weights))
    return math.sqrt(x) * (1 - x) * blend


def section(upper: Sequence[float], lower: Sequence[float], points: int = POINTS) -> list[Point]:
    """Points (x, y) from the tail over the upper surface to the nose, and back below.

    The whole is stretched until it is as thick as it is to be, so that no shape need be refused.
    """
    between = [above - below for above, below in zip(upper, lower, strict=True)]
    thickest = max(height(between, k / 500) for k in range(501))
    half = points // 2
    # Dense at the tail and more so at the nose, which may be sharp.
    spaced = [(1 - math.cos(math.pi * (k / half) ** 1.5)) / 2 for k in range(half + 1)]
    around = [(x, height(upper, x)) for x in reversed(spaced)] + [(x, height(lower, x)) for x in spaced[1:]]
    return [(x, y * THICKNESS / thickest) for x, y in around]


if __name__ == "__main__":
    numbers = [float(text) for text in sys.argv[1:]]
    with open("section.dat", "w", encoding="ascii") as file:
        file.write("section\n")
        file.writelines(f"{x:.9f} {y:.9f}\n" for x, y in section(numbers[:4], numbers[4:]))
    try:
        os.execvp("xfoil", ["xfoil"])  # which is the program from here on, with our input and output
    except FileNotFoundError:
        print("found no xfoil, wanted it on the PATH: apt-get install xfoil", file=sys.stderr)
        sys.exit(127)  # as a shell says it; 1 is how XFOIL ends
