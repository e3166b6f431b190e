"""What a user told, as numbers: NaN for a failed evaluation, and which ones were lost."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError
from fmnes.outcome import Outcome, from_return

Floats = NDArray[np.float64]


def read_values(values: Any, n: int) -> tuple[Floats, NDArray[np.bool_] | None]:
    """What a user told, as floats (NaN for failed), and a mask of lost ones, None if there are none. (n,)"""
    if type(values) is np.ndarray and values.dtype == np.float64 and values.shape == (n,):
        return values.copy(), None  # as most users tell them
    if isinstance(values, (str, bytes, Mapping, Set)):
        raise ArgumentError(f"tell: found {type(values).__name__}, wanted a sequence of {n} values")
    try:
        array = np.asarray(values)
    except ValueError:  # a ragged list: its bad element is named below
        array = np.asarray(None)
    if array.dtype.kind in "fiub":
        if array.size != n or array.ndim not in (1, 2) or len(array) != n:
            found = f"{array.size} values" if array.ndim == 1 else f"an array of shape {array.shape}"
            raise _wrong_count(found, n)
        return array.reshape(n).astype(np.float64), None
    try:
        items = list(values)
    except TypeError:
        raise ArgumentError(f"tell: found {values!r}, wanted a sequence of {n} values") from None
    if len(items) != n:
        raise _wrong_count(f"{len(items)} values", n)
    outcomes = [_outcome(i, item) for i, item in enumerate(items)]
    told = np.array([o.value if o.status == "value" else np.nan for o in outcomes])
    return told, np.array([o.status == "lost" for o in outcomes], dtype=bool)


def read_value(value: Any) -> tuple[float, bool]:
    """The same for one value: as a float, and whether it was lost."""
    try:
        outcome = from_return(value)
    except TypeError as error:
        raise ArgumentError(f"tell: {error}") from None
    return outcome.value if outcome.status == "value" else np.nan, outcome.status == "lost"


def _outcome(i: int, item: Any) -> Outcome:
    try:
        return from_return(item)
    except TypeError as error:
        raise ArgumentError(f"tell: value {i}: {error}") from None


def _wrong_count(found: str, n: int) -> ArgumentError:
    return ArgumentError(
        f"tell: found {found}, wanted {n} values, one for each point that ask returned, in order"
    )
