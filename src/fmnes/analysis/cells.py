"""Points that lie close together, found as cells of a grid.

A search evaluates most points near its best one. Where such points count as one, a statement describes the
region that was searched and not the end of the search, and points are less dependent on each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

#: Cells along the range of each parameter.
CELLS = 16
#: The same where these leave too few points, as at the end of a search with models.
FINER_CELLS = (64, 256)
#: Columns that are numbered together; the numbers stay below 2**63 for less than 2**23 points.
TOGETHER = 5


def on_scale(points: Mapping[str, Floats], logs: frozenset[str]) -> Floats:
    """The points as rows, with logarithms of parameters with a log scale. (n, d)"""
    columns = (np.log(np.maximum(c, 1e-300)) if name in logs else c for name, c in points.items())
    return np.column_stack(list(columns))


def in_box(x: Floats) -> Floats:
    """The points with their ranges scaled to [0, 1]. (n, d) -> (n, d)"""
    halves = x / 2  # the full range may overflow
    low = halves.min(axis=0)
    width = halves.max(axis=0) - low
    scaled: Floats = (halves - low) / np.where(width > 0, width, 1.0)
    return scaled


def distinct(x: Floats, count: int = CELLS) -> tuple[Rows, Rows]:
    """The first row in each occupied cell, and for each row the number of its cell. x: (n, d)

    count: cells along each range.
    """
    if not len(x):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    cells = np.minimum((in_box(x) * count).astype(np.int64), count - 1)
    which = np.zeros(len(x), np.int64)
    for begin in range(0, x.shape[1], TOGETHER):
        for column in cells[:, begin : begin + TOGETHER].T:
            which = which * count + column
        which = np.unique(which, return_inverse=True)[1]
    return np.unique(which, return_index=True)[1], which


def evenly(count: int, most: int) -> Rows:
    """At most `most` of these rows, evenly spaced, with the first and the last."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))
