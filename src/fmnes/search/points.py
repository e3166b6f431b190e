"""Points with ids, and the values that users report for them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence, Set
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import shown
from fmnes.constraints import Limits
from fmnes.errors import ArgumentError
from fmnes.outcome import EvaluationId, Outcome, from_return
from fmnes.result import Vector, X


class Point(NamedTuple, Generic[X]):
    """A point that needs a value, and the id by which the value is reported.

    Attributes
    ----------
    id : str
        Letters, digits and hyphens; different for every evaluation.
    x : ndarray or dict
        The point, read-only: (d,), or {name: value}.

    Examples
    --------
    >>> import fmnes
    >>> opt = fmnes.Optimizer([1.0, 2.0], 0.5, rng=1)
    >>> [point] = opt.ask(1)
    >>> opt.tell(point.id, float(point.x @ point.x))
    """

    id: str
    x: X


class Name(NamedTuple):
    """The parts of an id, which is unique among the evaluations of a search and its restarts."""

    evaluation: EvaluationId
    mark: str
    """Checksum of the point, which detects ids of other searches."""

    @property
    def id(self) -> str:
        """Only letters, digits and hyphens: safe in JSON and as a file name."""
        return "-".join(map(str, (*self.evaluation[:4], self.mark)))


_ID = re.compile(r"(\d{1,18})-(\d{1,18})-(\d{1,18})-(\d{1,18})-([0-9a-f]{8})", re.ASCII)


def name_of(id: Any) -> Name:
    """Parse an id. Raises ArgumentError for anything else."""
    found = _ID.fullmatch(id) if isinstance(id, str) else None
    if isinstance(id, Point):
        raise ArgumentError("tell: found a point with its value, wanted its id: tell(point.id, value)")
    if isinstance(id, (np.ndarray, Sequence, Mapping)) and not isinstance(id, (str, bytes)):
        raise ArgumentError(
            "tell: found two arguments, and the first is not an id; tell takes the values only, in the order "
            "of ask(): tell(values). For a point of ask(n) it is tell(id, value)"
        )
    if found is None:
        raise ArgumentError(f"tell: found the id {shown(id)}, wanted one that ask(n) gave")
    *numbers, mark = found.groups()
    return Name(EvaluationId(*map(int, numbers)), mark)


def digest_of(x: Vector) -> str:
    return f"{zlib.crc32(x.astype('<f8').tobytes()):08x}"


Floats = NDArray[np.float64]


def read_values(
    values: Any, n: int, limits: Limits | None = None, first: bool = False
) -> tuple[Floats, NDArray[np.bool_] | None, Floats | None]:
    """Return reported values as floats (NaN: failed), and a mask of lost ones or None. (n,)

    With limits also the outputs that have limits (n, k); else None. first: nothing was reported before.
    """
    if limits is not None:
        return _read_outcomes(values, n, limits, first)
    if type(values) is np.ndarray and values.dtype == np.float64 and values.shape == (n,):
        return values.copy(), None, None  # the usual case, fast
    try:
        array = np.asarray(values)
    except ValueError:  # a ragged list: the loop below names the bad element
        array = np.asarray(None)
    if array.dtype.kind in "fiub":
        if array.size != n or array.ndim not in (1, 2) or len(array) != n:
            found = f"{array.size} values" if array.ndim == 1 else f"an array of shape {array.shape}"
            raise _wrong_count(found, n)
        return array.reshape(n).astype(np.float64), None, None
    return _read_outcomes(values, n, None)


def _read_outcomes(
    values: Any, n: int, limits: Limits | None, first: bool = False
) -> tuple[Floats, NDArray[np.bool_], Floats | None]:
    if isinstance(values, (str, bytes, Mapping, Set)):
        raise ArgumentError(f"tell: found {type(values).__name__}, wanted a sequence of {n} values")
    try:
        items = list(values)
    except TypeError:
        raise ArgumentError(f"tell: found {values!r}, wanted a sequence of {n} values") from None
    if len(items) != n:
        raise _wrong_count(f"{len(items)} values", n)
    outcomes = [_outcome(f"value {i}: ", item, limits) for i, item in enumerate(items)]
    f = np.array([o.value if o.status == "value" else np.nan for o in outcomes], dtype=np.float64)
    outputs = None
    if limits is not None:
        reasons = {o.reason for o, item in zip(outcomes, items, strict=True) if o.fault and o is not item}
        if first and n > 1 and len(reasons) == 1 and all(o.fault for o in outcomes):  # as in `minimize`
            raise ArgumentError(f"tell: each of the first {n} evaluations failed: {reasons.pop()}")
        outputs = np.array([limits.row(o) for o in outcomes]).reshape(n, len(limits))
    return f, np.array([o.status == "lost" for o in outcomes], dtype=bool), outputs


def read_value(value: Any, limits: Limits | None = None) -> tuple[float, bool, Floats | None]:
    """Return one reported value as a float, whether it was lost, and with limits its outputs (k,)."""
    outcome = _outcome("", value, limits)
    outputs = None if limits is None else limits.row(outcome)
    return outcome.value if outcome.status == "value" else np.nan, outcome.status == "lost", outputs


def _outcome(which: str, item: Any, limits: Limits | None) -> Outcome:
    try:
        if limits is None:
            return from_return(item)
        found = from_return(limits.name_outputs(item))
    except TypeError as error:
        raise ArgumentError(f"tell: {which}{error}") from None
    if found.status == "value" and found.outputs is None and found is not item:
        raise ArgumentError(
            f"tell: {which}found {found.value:g} without outputs, wanted (value, outputs), as there are "
            "constraints; NaN or None for a failed evaluation"
        )
    return limits.check(found)


def _wrong_count(found: str, n: int) -> ArgumentError:
    return ArgumentError(
        f"tell: found {found}, wanted {n} values, one for each point that ask returned, in order"
    )
