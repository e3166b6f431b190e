"""The edge of the failing region that a model of the evaluations expects.

A margin model is fitted to evaluations of the whole run, one for each occupied cell, and judged by the points
that are left out of it. It is cut through the best point: two parameters vary, the others stay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmnes.analysis.cells import Floats, distinct, evenly, in_box, on_scale
from fmnes.reading.data import Table
from fmnes.surrogate import edge_model

#: Fewer points of either kind show no edge; of more than MOST in all some are left out.
LEAST, MOST = 5, 400
#: The share of left-out points on their side of the edge; below it no edge is expected.
LEAST_RIGHT = 0.75


class Edge(NamedTuple):
    """The margin in the plane of two parameters through the best point."""

    margin: Floats
    """Above 0 a point is expected to work. (len(along), len(along)), rows along the second parameter"""
    right: float
    """The share of left-out points on their side; failures and successes have the same weight."""


def edge_through_best(
    table: Table, logs: frozenset[str], across: str, down: str, along: Floats
) -> Edge | None:
    """The expected edge; None if none is clear. along: places from 0 to 1 in both ranges."""
    works = ~(table.failed | table.violated)
    if not works.any():
        return None
    u = in_box(on_scale(table.points, logs))
    best = u[np.flatnonzero(works)[np.argmin(table.value[works])]]
    rows = distinct(u)[0]
    rows = rows[evenly(len(rows), MOST)]
    failed = table.failed[rows]
    if min(failed.sum(), (~failed).sum()) < LEAST:
        return None
    model = edge_model.fit(u[rows] - best, ~failed)
    right = float((model.loo[failed] < 0).mean() + (model.loo[~failed] > 0).mean()) / 2
    if not right >= LEAST_RIGHT:
        return None
    names = list(table.points)
    plane = np.zeros((len(along), len(along), len(names)))
    for name, offsets in ((across, along), (down, along[:, None])):
        plane[:, :, names.index(name)] = offsets - best[names.index(name)]
    margin = edge_model.margin(model, plane.reshape(-1, len(names)))
    return Edge(margin.reshape(len(along), len(along)), right)
