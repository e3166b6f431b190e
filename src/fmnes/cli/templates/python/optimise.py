"""The lightest tube that carries its load; a stand-in for your simulation. Run it:  python optimise.py

Every evaluation is on disk before it counts. After a crash or Ctrl-C run it again: it goes on where it was.
"""

import math
from pathlib import Path

import fmnes

LOAD, LENGTH = 50e3, 3.0  # N, m
STIFFNESS, STRENGTH, DENSITY = 70e9, 250e6, 2700.0  # Pa, Pa, kg/m³: aluminium

# Bounds, and how to search between them: log=True goes by orders of magnitude. There are also
# fmnes.Integer(1, 12), fmnes.Real(0, 5, multiple_of=0.25) and, for no bounds, fmnes.Real(start=3, sigma=0.5).
space = {
    "radius": fmnes.Real(0.01, 1.0, log=True),  # m
    "wall": fmnes.Real(0.0001, 0.1, log=True),  # m
}


def simulate(p: dict[str, float]) -> float:
    """The mass of the tube, in kg. Part of the space fails, and it is not known in advance which."""
    radius, wall = p["radius"], p["wall"]
    area = 2 * math.pi * radius * wall
    stress = LOAD / area
    critical_load = math.pi**3 * STIFFNESS * radius**3 * wall / LENGTH**2
    if wall > radius:
        raise ValueError("the tube has no hole")  # any exception is a failed evaluation
    if critical_load < LOAD:
        raise fmnes.Infeasible("the column buckles")  # with a reason of your own
    if stress > 0.3 * STIFFNESS * wall / radius:
        raise fmnes.Infeasible("the wall crumples")
    if stress > STRENGTH:
        return math.nan  # so are NaN, inf and None
    return DENSITY * area * LENGTH


MAX_EVALUATIONS = 600
RUN = Path(__file__).with_name("tube.run")

if __name__ == "__main__":
    if RUN.exists():  # a run that has ended returns its result; delete the folder to start over
        result = fmnes.resume(RUN, simulate)
    else:
        # workers=2 evaluates in two processes, where a crash or a hang (timeout=60) costs one evaluation.
        result = fmnes.minimize(simulate, space, max_evaluations=MAX_EVALUATIONS, run_dir=RUN, progress=True)
    print(result)
