"""A result, a run directory or a run as plain columns, for plots and for the analysis of failures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import shown
from fmnes.constraints import Limits
from fmnes.errors import ArgumentError
from fmnes.evaluations import Evaluations
from fmnes.parameters import Categorical, Parameter, is_log, positions
from fmnes.reading.run import Run, read_run
from fmnes.result import Columns, Result
from fmnes.run.recording import FORGOTTEN

Floats = NDArray[np.float64]
#: After the name of a category: the column has the positions of its choices.
CHOICE = " (choice no.)"


class Table(NamedTuple):
    """The evaluations in their order, without what was lost or taken back. Columns: (n,)"""

    restart: NDArray[np.int64]
    generation: NDArray[np.int64]
    value: Floats
    """NaN where it failed."""
    failed: NDArray[np.bool_]
    reason: NDArray[Any]
    violated: NDArray[np.bool_]
    """It has a value, and violates a limit."""
    points: dict[str, Floats]
    """In the user's units. Empty where they are not known: of very long points, and before the first one."""

    def __len__(self) -> int:
        return len(self.value)


class RunData(NamedTuple):
    label: str
    """Of a run directory its name; otherwise empty."""
    history: Columns
    table: Table | None
    """None: a result that was not asked to keep them."""
    best: dict[str, float]
    """The best point so far by name; empty if there is none, or no table to say the names."""
    fun: float
    evaluations: int
    """How many there are."""
    logs: frozenset[str]
    """The parameters with a log scale."""
    noisy: bool = False
    """Do values at the same point differ?"""
    error: float | None = None
    """The standard error of `fun`, if it is an average."""


#: A result, a run directory, or a run that was read.
Source = Result | Run | str | os.PathLike[str]


def read(found: Source, argument: str = "run") -> RunData:
    if isinstance(found, (str, os.PathLike)):
        found = read_run(found)
    if isinstance(found, Run):
        evaluations: Evaluations | None = found.evaluations
        label, x, fun, nfev = found.path.name, found.best.x, found.best.fun, 0
        limits, result = found._limits, found.result
    elif isinstance(found, Result):
        evaluations, label, x, fun, nfev = found.evaluations, "", found.x, found.fun, found.nfev
        limits, result = Limits.of_results(found.constraints), found
        if evaluations is None and not found.history:
            raise ArgumentError(
                f"{argument}: found a result without history and evaluations, as of an Optimizer; "
                "wanted one of minimize, or a run directory"
            )
    else:
        raise ArgumentError(
            f"{argument}: found {shown(found)}, wanted a fmnes.Result, a run directory or a fmnes.Run"
        )
    parameters = found.parameters or {}
    table = None if evaluations is None else _table(evaluations, limits, parameters)
    return RunData(
        label=label,
        history=found.history,
        table=table,
        best={} if x is None or table is None else _named(x, table, parameters),
        fun=float(fun),
        evaluations=len(table) if table is not None else nfev,
        logs=frozenset(name for name, p in parameters.items() if is_log(p)),
        noisy=result is not None and result.noise is not None,
        error=None if result is None else result.fun_error,
    )


def with_evaluations(found: Source) -> tuple[RunData, Table]:
    """The same, for what needs the evaluations."""
    given = read(found)
    if given.table is None:
        raise ArgumentError(
            "run: found a result without its evaluations, wanted one of "
            "minimize(..., keep_evaluations=True), or a run directory"
        )
    return given, given.table


def _table(evaluations: Evaluations, limits: Limits | None, parameters: Mapping[str, Parameter]) -> Table:
    kept = (evaluations.status != "lost") & ~_taken_back(evaluations)
    # The log is untrusted: anything but a number is a missing value.
    value = np.where(np.isfinite(evaluations.value[kept]), evaluations.value[kept], np.nan)
    reason = np.where(evaluations.reason == "", evaluations.fault, evaluations.reason)[kept]
    violated = np.zeros(len(value), dtype=bool)
    if limits is not None:
        violated = limits.violated(evaluations.outputs, len(evaluations))[kept] & np.isfinite(value)
    return Table(
        restart=evaluations.restart[kept],
        generation=evaluations.generation[kept],
        value=value,
        failed=np.isnan(value),
        reason=np.where(reason == "", "no reason given", reason),
        violated=violated,
        points=dict(
            _column(name, column[kept], parameters.get(name))
            for name, column in evaluations.parameters.items()
        ),
    )


def _column(name: str, column: NDArray[Any], p: Parameter | None) -> tuple[str, Floats]:
    """A column as numbers; of a category the positions of the choices, which its name says."""
    if isinstance(p, Categorical):
        return f"{name}{CHOICE}", positions(p, column.tolist())
    return name, column.astype(float)


def _taken_back(evaluations: Evaluations) -> NDArray[np.bool_]:
    """The rows that a later row of the same point cancels."""
    key = (evaluations.restart, evaluations.generation, evaluations.slot, evaluations.redraw)
    changes = [np.diff(column) != 0 for column in key]
    point = np.concatenate(([0], np.cumsum(np.logical_or.reduce(changes))))[: len(evaluations)]
    cancels = np.flatnonzero(evaluations.fault == FORGOTTEN.fault)
    last = np.full(len(evaluations), -1)
    last[point[cancels]] = cancels  # in order: the last one of each point stays
    cancelled: NDArray[np.bool_] = np.arange(len(evaluations)) <= last[point]
    return cancelled


def _named(x: Any, table: Table, parameters: Mapping[str, Parameter]) -> dict[str, float]:
    values = list(x)
    if isinstance(x, dict):
        values = [_column(n, np.array([v], dtype=object), parameters.get(n))[1][0] for n, v in x.items()]
    return dict(zip(table.points, map(float, values), strict=False))  # the points may be unknown


# -- Points that lie close together, found as cells of a grid
#
# A search evaluates most points near its best one. Where such points count as one, a statement describes the
# region that was searched and not the end of the search, and points are less dependent on each other.

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
