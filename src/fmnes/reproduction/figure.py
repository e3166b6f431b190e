"""Figure 1: eigenvalues of B Bᵀ and the best value on Rosenbrock, both methods. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import MissingExtra
from fmnes.reproduction.cells import MAX_EVALUATIONS, METHODS, TARGET, Cell, problem_of
from fmnes.reproduction.trial import seed_for
from fmnes.search.ending import limit_reached
from fmnes.search.optimizer import Optimizer

CELLS = (Cell("FM-NES", "rosenbrock", 16), Cell("DX-NES-IC", "rosenbrock", 20))
#: Generations from row to row.
EVERY = 10


class Trace(NamedTuple):
    evaluations: NDArray[np.float64]
    axes: NDArray[np.float64]
    """Square roots of the eigenvalues of B Bᵀ, longest first. (rows, d)"""
    best: NDArray[np.float64]


def trace(cell: Cell) -> Trace:
    """The first trial, looked at every few generations."""
    problem = problem_of(cell)
    opt = Optimizer(
        problem.x0,
        problem.sigma0,
        method=METHODS[cell.method],
        population_size=cell.population_size,
        rng=seed_for(cell, 0),
        target=TARGET,
        max_evaluations=MAX_EVALUATIONS,
    )
    rows = []
    while limit_reached(opt) is None:
        opt.tell(problem.fun(opt.ask()))
        if opt.generation % EVERY == 0:
            variances = np.linalg.eigvalsh(opt.covariance)[::-1]
            rows.append((opt.evaluations, np.sqrt(variances) / opt.sigma, opt.best.fun))
    evaluations, axes, best = zip(*rows, strict=True)
    return Trace(np.array(evaluations, dtype=float), np.array(axes), np.array(best))


def draw(folder: Path) -> list[Path]:
    """figure-1.png and figure-1.svg."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("the figure", "plot") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fmnes"  # the same drawing gives the same file
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for panel, cell in zip(panels, CELLS, strict=True):
        shown = trace(cell)
        panel.semilogy(shown.evaluations, shown.axes, color="tab:red", linewidth=0.5)
        panel.set_title(f"{cell.method} (λ = {cell.population_size})")
        panel.set_xlabel("evaluations")
        right = panel.twinx()
        right.semilogy(shown.evaluations, shown.best, color="tab:blue", linewidth=1.5)
        right.set_ylim(1e-11, 1e3)
        if cell is CELLS[-1]:
            right.set_ylabel("best value", color="tab:blue")
    panels[0].set_ylabel("square roots of the eigenvalues of B Bᵀ", color="tab:red")
    paths = [folder / "figure-1.png", folder / "figure-1.svg"]
    figure.savefig(paths[0], dpi=150, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    pyplot.close(figure)
    return paths
