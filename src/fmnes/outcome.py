"""What came of one evaluation: a value, infeasible with a reason, or lost.

This file is the only place that decides it. Whoever calls the objective (in this process, in a worker, as
an external program) turns what happened into an `Outcome` here; the strategies only ever see numbers.
"""

from __future__ import annotations

import math
import numbers
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fmnes.errors import Infeasible, Lost

#: Characters of a traceback or of a program's error output that are worth keeping.
DETAIL_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The fate of one evaluation, as plain data that can cross processes and go to disk."""

    status: Literal["value", "infeasible", "lost"]
    value: float = math.inf
    """The objective's value; +inf unless `status` is "value"."""
    reason: str = ""
    """In the user's words where there are any: "mesh failed", "returned NaN", "ValueError: bad input"."""
    fault: str = ""
    """A name for what broke when it was not the objective's own answer ("ValueError", "SIGSEGV", "timeout").
    A whole first generation with one and the same fault is taken for a bug."""
    detail: str = ""
    """The tail of the traceback or of the program's error output."""
    seconds: float = field(default=math.nan, compare=False)
    """How long the evaluation took; NaN where nobody has measured it."""
    remembered: bool = field(default=False, compare=False)
    """It comes from the log: nothing was run for it now."""


#: The reason of a value that would be the best of all, and is more likely a logarithm of zero.
MINUS_INFINITY = "returned -inf"
#: The fault of an objective that returned something that is not a number.
WRONG_TYPE = "wrong type"


class WrongType(TypeError):
    """The objective returned something that cannot be meant as a value."""


#: Tell this for a point whose evaluation was lost: it is asked again and never ranked.
LOST = Outcome("lost", reason="lost")


def infeasible(reason: str, *, fault: str = "", detail: str = "") -> Outcome:
    return Outcome("infeasible", reason=_text(reason), fault=fault, detail=_text(detail)[-DETAIL_LIMIT:])


def lost(reason: str, *, detail: str = "") -> Outcome:
    return Outcome("lost", reason=_text(reason), detail=_text(detail)[-DETAIL_LIMIT:])


def _text(text: str) -> str:
    """What can be written to a file: a byte that was no text is shown as an escape."""
    return text.encode(errors="backslashreplace").decode()


def from_number(value: float) -> Outcome:
    """A finite number is a value. NaN and ±inf are failed evaluations (-inf too: it is a broken number)."""
    if math.isfinite(value):
        return Outcome("value", value)
    if value == -math.inf:
        return infeasible(MINUS_INFINITY)
    return infeasible("returned NaN" if math.isnan(value) else "returned inf")


def from_return(returned: Any) -> Outcome:
    """The outcome of an objective that returned normally.

    Raises WrongType for what cannot be meant as an objective value (a string, a complex number, an array of
    several elements); the caller decides whether that stops the run.
    """
    if type(returned) is float:
        return from_number(returned)
    if isinstance(returned, Outcome):
        return returned
    if returned is None:
        return infeasible("returned None")
    if isinstance(returned, (numbers.Real, np.bool_)):
        try:
            return from_number(float(returned))
        except OverflowError:  # an integer beyond float64
            return infeasible("returned a number too large for a float")
    if isinstance(returned, np.ma.MaskedArray) and np.ma.is_masked(returned):
        return infeasible("returned a masked value")
    # NumPy, JAX and torch scalars and arrays of one element; complex numbers and strings are refused.
    try:
        array = np.asarray(returned)
    except ValueError:  # a ragged list
        raise WrongType(
            f"the objective returned {type(returned).__name__}, uneven; wanted one real number"
        ) from None
    if array.size == 1 and array.dtype.kind in "fiub":
        return from_number(float(array.reshape(())))
    if array.size == 1 and array.dtype.kind == "O" and array.reshape(()).item() is None:
        return infeasible("returned None")
    shape = f" of shape {array.shape}" if array.shape else ""
    raise WrongType(
        f"the objective returned {type(returned).__name__}{shape}; wanted one real number "
        "(NaN, inf or None for a failed evaluation)"
    )


def from_exception(exception: BaseException) -> Outcome:
    """The outcome of an objective that raised."""
    # An exception's own __str__ is the user's code and may fail as well.
    try:
        message = str(exception)[:300]
    except Exception:
        message = "(its message could not be read)"
    if isinstance(exception, Lost):
        return lost(message or "lost")
    if isinstance(exception, Infeasible):
        return infeasible(message or "infeasible")
    name = type(exception).__name__
    tail = "".join(traceback.format_exception(exception))[-DETAIL_LIMIT:]
    return infeasible(f"{name}: {message}" if message else name, fault=name, detail=tail)


def call(fun: Callable[[Any], Any], x: Any) -> Outcome:
    """The outcome of fun(x), whatever it does short of ending the process."""
    try:
        return from_return(fun(x))
    except WrongType as error:
        return infeasible(str(error), fault=WRONG_TYPE)
    except (Exception, SystemExit) as error:
        return from_exception(error)
