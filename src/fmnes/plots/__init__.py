"""Pictures of runs. Needs the extra `plot` (matplotlib), which is loaded when the first one is drawn.

    figure = fmnes.plots.convergence(result)
    figure.savefig("convergence.png")

Each takes the `fmnes.Result` of `minimize`, a run directory or what `fmnes.read_run` gave, also of a run that
is under way, and returns a matplotlib Figure. Nothing is shown and nothing is written.
"""

from fmnes.plots.by_parameter import parameters, slices
from fmnes.plots.drawing import as_svg
from fmnes.plots.history import compare, convergence, distribution, failures
from fmnes.plots.map import failure_map

__all__ = [
    "as_svg",
    "compare",
    "convergence",
    "distribution",
    "failure_map",
    "failures",
    "parameters",
    "slices",
]
