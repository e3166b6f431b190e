"""Points of a box for which no search distribution is known yet: formulas without state.

All points are in the unit box.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Uniform candidates for each point. More of them only move the points to the bounds.
CANDIDATES = 30
#: One of this number of points comes from the search distribution, around the start.
FROM_DISTRIBUTION = 4
#: The first steps from the first success, as a share of the usual ones, when it was the first evaluation.
FIRST_STEP = 0.4


def spread_points(before: Floats, candidates: Floats, drawn: Floats | None, n: int) -> Floats:
    """Return the next points: the candidate that is farthest from all earlier points, or a drawn point.

    before: all earlier points (k, d). candidates: some for each new point (m, c, d). drawn: a draw of the
    search distribution for each new point (m, d); every fourth point, counted from the n points evaluated
    in this way so far, is that draw. None: no point is drawn.
    """
    points = np.empty((len(candidates), candidates.shape[2]))
    for i, some in enumerate(candidates):
        if drawn is not None and (n + i) % FROM_DISTRIBUTION == FROM_DISTRIBUTION - 1:
            points[i] = drawn[i]
            continue
        distance2 = np.full(len(some), np.inf)
        for others in (before, points[:i]):
            if len(others):
                squares = np.zeros((len(some), len(others)))
                for j in range(some.shape[1]):  # (c, d, k) at once would be slower, and large
                    squares += (some[:, j, None] - others[:, j]) ** 2
                distance2 = np.minimum(distance2, squares.min(axis=1))
        points[i] = some[int(distance2.argmax())]
    return points


def first_step_share(evaluations: int, d: int) -> float:
    """Return the step size at the first success as a share of the usual one.

    It is FIRST_STEP times the typical distance between the evaluations so far: the working part of the box
    is not much larger, or an earlier point would have been in it.
    """
    return float(FIRST_STEP * max(evaluations, 1) ** (-1.0 / d))
