"""Where failures are expected in the plane of two parameters: the local share of failed evaluations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.analysis.cells import Floats, in_box, on_scale
from fmnes.analysis.explanation import Explanation
from fmnes.reading.data import Table

#: Cells of the map along each parameter.
CELLS = 40
#: Evaluated cells that the share of a place is the mean of; farther than this share of the range none counts.
NEAREST, NEAR = 8, 0.12
#: Weight of the overall share; an evaluated cell has a weight of 1, and of 1/(1 + r²) r cells away.
AVERAGE = 0.05


class FailureMap(NamedTuple):
    """The local share of failed evaluations."""

    across: str
    down: str
    x: Floats
    """The borders of the cells, in the user's units. (CELLS + 1,)"""
    y: Floats
    share: Floats
    """From 0 to 1; NaN where nothing was evaluated nearby. (CELLS, CELLS), rows along y"""


def failure_map(table: Table, explanation: Explanation, logs: frozenset[str]) -> FailureMap | None:
    """The map of the two most important parameters; None with fewer than two, or without evaluations."""
    if len(table.points) < 2 or not len(table):
        return None
    across, down = most_important(explanation, list(table.points))
    x = on_scale({name: table.points[name] for name in (across, down)}, logs)
    return FailureMap(
        across,
        down,
        _borders(x[:, 0], across in logs),
        _borders(x[:, 1], down in logs),
        local_share(in_box(x), table.failed),
    )


def most_important(explanation: Explanation, names: list[str]) -> tuple[str, str]:
    """The two parameters that matter most: for failure, then for the value, then the first ones."""
    rules = [one.rule for one in explanation.failures if one.rule is not None]
    ranked = [
        *explanation.failure.shares,
        *(condition.name for rule in rules for condition in rule.conditions),
        *explanation.value.shares,
        *names,
    ]
    first, second, *_ = dict.fromkeys(ranked)
    return first, second


def local_share(x: Floats, failed: NDArray[np.bool_]) -> Floats:
    """The share of failures around the middle of each cell of the unit square. x: (n, 2), in it

    Each evaluated cell has its own share, so that many points at one place count once. The share elsewhere is
    the mean of the nearest ones, closer ones with a larger weight, and of all of them with a small weight.
    """
    cell = np.minimum((x * CELLS).astype(np.int64), CELLS - 1)
    occupied, which, counts = np.unique(
        cell[:, 1] * CELLS + cell[:, 0], return_inverse=True, return_counts=True
    )
    share = np.bincount(which, weights=failed) / counts
    row, column = np.divmod(occupied, CELLS)
    down, across = np.divmod(np.arange(CELLS**2), CELLS)
    squared = (down[:, None] - row) ** 2.0 + (across[:, None] - column) ** 2.0
    nearest = np.argsort(squared, axis=1, kind="stable")[:, :NEAREST]
    squared = np.take_along_axis(squared, nearest, axis=1)
    weights = np.where(squared <= (NEAR * CELLS) ** 2, 1 / (1 + squared), 0.0)
    total = weights.sum(axis=1)
    mean = ((weights * share[nearest]).sum(axis=1) + AVERAGE * share.mean()) / (total + AVERAGE)
    known: Floats = np.where(total > 0, mean, np.nan).reshape(CELLS, CELLS)
    return known


def _borders(column: Floats, log: bool) -> Floats:
    """The borders of the cells; a constant column gets a width."""
    low, high = float(column.min()), float(column.max())
    if not low < high:
        margin = 1.0 if log else max(abs(low), 1.0) * 1e-3
        low, high = low - margin, high + margin
    steps = np.linspace(0, 1, CELLS + 1)
    borders = low * (1 - steps) + high * steps  # the full range may overflow
    return np.exp(borders) if log else borders
