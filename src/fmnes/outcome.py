"""One evaluation: its outcome (a value, failed, or lost), further outputs beside the value, and its id."""

from __future__ import annotations

import json
import math
import numbers
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from fmnes.errors import Infeasible, Lost

# -- Further outputs beside the value: {name: number, text, True, False or None}, and how they are
# written.
#
# They are kept and shown, and not searched by.


Outputs = dict[str, Any]

#: So much of one evaluation's: more belongs into a file. The bytes suffice for as many numbers.
MAX_NAMES = 1000
MAX_BYTES = 50_000
_MAX_WHOLE = 2**63


def read_outputs(found: Mapping[Any, Any]) -> Outputs | None:
    """What an objective returned beside its value; None if it is empty.

    Raises TypeError, with words, for what cannot be kept.
    """
    try:
        items = list(found.items())
    except Exception as error:  # of the user's own class it may be anything
        raise TypeError(f"outputs that cannot be read ({type(error).__name__}: {error})") from None
    if len(items) > MAX_NAMES:
        raise TypeError(f"{len(items)} outputs; wanted at most {MAX_NAMES}")
    outputs = {_name(name): _value(name, value) for name, value in items}
    size = len(dump(outputs))
    if size > MAX_BYTES:
        raise TypeError(f"outputs of {size} bytes; wanted at most {MAX_BYTES}, and the rest in a file")
    return outputs or None


def _name(found: Any) -> str:
    if not isinstance(found, str) or not found.strip():
        raise TypeError(f"an output of the name {_brief(found)}; wanted text such as 'mass'")
    return _text(found)


def _value(name: Any, found: Any) -> Any:
    if found is None or type(found) in (bool, float):
        return found
    if isinstance(found, str):
        return _text(found)
    value: Any = None
    try:
        array = np.asarray(found)  # NumPy, JAX and torch scalars, and arrays of one element
        if array.size == 1 and array.dtype.kind in "fiub":
            value = array.reshape(()).item()
    except Exception:  # of the user's own class it may be anything
        pass
    if value is None and has_float(found):
        try:
            value = float(found)
        except Exception:
            value = None
    if value is None:
        raise TypeError(
            f"the output {name!r} of type {type(found).__name__}; wanted a number, text, True, False or None"
        )
    if type(value) is int and not -_MAX_WHOLE <= value < _MAX_WHOLE:
        return float(value)
    return value


def has_float(found: Any) -> bool:
    """Whether it says of itself that it is a number (text and complex numbers do not)."""
    return hasattr(type(found), "__float__") and not isinstance(found, (complex, np.complexfloating))


def _text(text: str) -> str:
    """What can be written to a file: a byte that was no text is shown as an escape."""
    return text.encode(errors="backslashreplace").decode()


def _brief(found: Any) -> str:
    return repr(found)[:100] if isinstance(found, str) else f"something of type {type(found).__name__}"


# -- on disk and between processes --------------------------------------------------------------------------


def dump(outputs: Outputs) -> str:
    """As JSON, which has no NaN and no infinity: they stand there as {"number": "nan"}."""
    plain = {
        name: {"number": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in outputs.items()
    }
    return json.dumps(plain, separators=(",", ":"))


def load(plain: Any) -> Outputs | None:
    """The way back from JSON data. Raises ValueError for what `dump` never writes.

    It is checked by `read_outputs`, as what a function returns: what comes from elsewhere is trusted no more.
    """
    if not isinstance(plain, dict):
        raise ValueError("outputs that are no table")
    found = {name: _from_plain(value) for name, value in plain.items()}
    try:
        outputs = read_outputs(found)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if dump(outputs or {}) != dump(found):
        raise ValueError("outputs that cannot be written as they are")
    return outputs


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) != {"number"} or value["number"] not in ("nan", "inf", "-inf"):
            raise ValueError("an output that is no plain value")
        return float(value["number"])
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("an output that is no number of JSON")
    return value


def read_json(data: bytes | str) -> Any:
    """JSON as we write it, from a place where others may write.

    Raises ValueError for anything else, also for what `json` itself takes: a key that occurs twice, NaN, text
    that cannot be written to a file, and nesting that is too deep for it.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        found = json.loads(text, object_pairs_hook=_table, parse_constant=_refuse)
        if "\\u" in text:  # an escape may be half a character, a lone surrogate
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key that occurs twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant}, which is not JSON")


# -- The outcome of one evaluation: a value, infeasible with a reason, or lost.
#
# Only this file decides it: every evaluator (in process, worker, external program) makes its `Outcome` here.


#: Characters of a traceback or of a program's error output that are worth keeping.
DETAIL_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one evaluation, as plain data that can cross processes and go to disk.

    Attributes
    ----------
    status : {"value", "infeasible", "lost"}
        Whether it has a value, failed, or was lost.
    value : float
        The objective's value; +inf unless `status` is "value".
    reason : str
        The reason in the user's words if there are any: "mesh failed", "returned NaN", "ValueError: bad
        input".
    fault : str
        What broke, if it was not the objective's own answer ("ValueError", "SIGSEGV", "timeout"). A whole
        first generation with the same fault counts as a bug.
    detail : str
        The end of the traceback or of the program's error output.
    seconds : float
        How long the evaluation took; NaN if it was not measured.
    remembered : bool
        It comes from the log; the objective was not called.
    outputs : dict or None
        Further outputs beside the value, {name: number, str, True, False or None}; they are stored and do
        not affect the search. None if there are none.
    """

    status: Literal["value", "infeasible", "lost"]
    value: float = math.inf
    reason: str = ""
    fault: str = ""
    detail: str = ""
    seconds: float = field(default=math.nan, compare=False)
    remembered: bool = field(default=False, compare=False)
    outputs: dict[str, Any] | None = None


#: The reason of an objective that returned nothing.
NOTHING = "returned None"
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


def read_outcome(
    status: Any, value: Any, reason: Any, fault: Any, detail: Any, seconds: Any, outputs: Any
) -> Outcome:
    """The outcome with these fields, which come from another process or from a file.

    Raises ValueError where an evaluation cannot have ended so. `outputs` is checked by its own readers:
    `outputs.load` for JSON, `outputs.read_outputs` for objects.
    """
    if not all(isinstance(word, str) for word in (reason, fault, detail)):
        raise ValueError("a reason, fault or detail that is no text")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise ValueError("a duration that is no number")
    if not (seconds != seconds or 0 <= seconds < 1e18):  # an integer may be too large for isnan
        raise ValueError("a duration that is no time")
    if status == "value":
        if type(value) is not float or not math.isfinite(value):
            raise ValueError("a value that is no finite number")
        outcome = Outcome("value", value)
    elif status == "infeasible":
        outcome = infeasible(reason, fault=_text(fault), detail=detail)
    elif status == "lost":
        outcome = replace(lost(reason, detail=detail), fault=_text(fault))
    else:
        raise ValueError("neither a value nor a failure")
    return replace(outcome, seconds=float(seconds), outputs=outputs)


def from_number(value: float) -> Outcome:
    """A finite number is a value. NaN and ±inf are failed evaluations (-inf too: it is a broken number)."""
    if math.isfinite(value):
        return Outcome("value", value)
    if value == -math.inf:
        return infeasible(MINUS_INFINITY)
    return infeasible("returned NaN" if math.isnan(value) else "returned inf")


def from_return(returned: Any) -> Outcome:
    """The outcome of an objective that returned normally: a value, or (value, {name: output}).

    Raises WrongType for what cannot be meant as an objective value (a string, a complex number, an array of
    several elements) or as outputs; the caller decides whether that stops the run.
    """
    if type(returned) is float:
        return from_number(returned)
    if isinstance(returned, (tuple, list)) and len(returned) == 2 and isinstance(returned[1], Mapping):
        value, found = returned
        try:
            outputs = read_outputs(found)
        except TypeError as error:
            raise WrongType(f"the objective returned {error}") from None
        return replace(_from_value(value), outputs=outputs)
    return _from_value(returned)


def _from_value(returned: Any) -> Outcome:
    if isinstance(returned, Outcome):
        return returned
    if returned is None:
        return infeasible(NOTHING)
    if isinstance(returned, (numbers.Real, np.bool_)):
        return _from_float(returned)
    if isinstance(returned, np.ma.MaskedArray) and np.ma.is_masked(returned):
        return infeasible("returned a masked value")
    # NumPy, JAX and torch scalars and arrays of one element; complex numbers and strings are refused.
    try:
        array = np.asarray(returned)
    except ValueError:  # a ragged list
        raise WrongType(
            f"the objective returned {type(returned).__name__}, uneven; wanted one real number"
        ) from None
    except Exception:  # a tensor with a gradient has no array, and is a number all the same
        if not has_float(returned):
            raise
        return _from_float(returned)
    if array.size == 1 and array.dtype.kind in "fiub":
        return from_number(float(array.reshape(())))
    if array.size == 1 and array.dtype.kind == "O":
        only = array.reshape(()).item()
        if only is None:
            return infeasible(NOTHING)
        if has_float(only):
            return _from_float(only)
    shape = f" of shape {array.shape}" if array.shape else ""
    hint = "; convert it with float()" if isinstance(returned, str) else ""
    raise WrongType(
        f"the objective returned {type(returned).__name__}{shape}; wanted one real number "
        f"(NaN, inf or None for a failed evaluation){hint}"
    )


def _from_float(number: Any) -> Outcome:
    """Of what says of itself that it is a number."""
    try:
        return from_number(float(number))
    except OverflowError:  # an integer beyond float64
        return infeasible("returned a number too large for a float")
    except (TypeError, ValueError) as error:
        raise WrongType(
            f"the objective returned {type(number).__name__}, which is no number ({error}); wanted one"
        ) from None


def bug_name(outcome: Outcome) -> str:
    """Which bug it may be, if all evaluations agree: its fault, or None, which a missing `return` gives."""
    return NOTHING if outcome.reason == NOTHING else outcome.fault


def from_exception(exception: BaseException) -> Outcome:
    """The outcome of an objective that raised."""
    message = _told(lambda: str(exception)[:300], "(its message could not be read)")
    if isinstance(exception, Lost):
        return lost(message or "lost")
    if isinstance(exception, Infeasible):
        return infeasible(message or "infeasible")
    name = type(exception).__name__
    tail = _told(lambda: "".join(traceback.format_exception(exception))[-DETAIL_LIMIT:], "")
    return infeasible(f"{name}: {message}" if message else name, fault=name, detail=tail)


def _told(tell: Callable[[], str], otherwise: str) -> str:
    """An exception's own __str__ is the user's code and may fail as well."""
    try:
        return tell()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return otherwise


def call(fun: Callable[[Any], Any], x: Any, *, elsewhere: bool = False) -> Outcome:
    """The outcome of fun(x). What it raises is a failed evaluation, or is raised: see `_fails_its_point`.

    elsewhere: not in the driver's own thread, but where an executor calls it. From there an exception cannot
    always travel, and may end or hang the caller's pool: it fails its point, whatever it is but Ctrl-C.
    """
    try:
        return from_return(call_in_one_process(fun, x))
    except WrongType as error:
        return infeasible(str(error), fault=WRONG_TYPE)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or not (elsewhere or _fails_its_point(error)):
            raise
        return from_exception(error)


def _fails_its_point(error: BaseException) -> bool:
    """Whether the simulation raised it: an Exception, sys.exit, or the panic of a Rust extension.

    Other exceptions, such as asyncio's CancelledError, are meant for the code around the run.
    """
    kind = type(error)
    panic = (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")  # a BaseException
    return panic or isinstance(error, (Exception, SystemExit))


def call_in_one_process(fun: Callable[[Any], Any], x: Any) -> Any:
    """fun(x). If it forks, only the process that called it comes back from here.

    A forked child that returned, raised or called sys.exit would go on as a second driver: ask the same
    points, write to the same log, and run the rest of the user's script. It ends here instead.
    """
    caller = os.getpid()
    try:
        returned = fun(x)
    except BaseException as error:
        if os.getpid() != caller:
            _end_child(error)
        raise
    if os.getpid() != caller:
        _end_child(None)
    return returned


def _end_child(error: BaseException | None) -> NoReturn:
    """With the exit code that Python would give it, and without exit handlers: those are its parent's."""
    code: Any = 0
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        code = "".join(traceback.format_exception(error)).rstrip()
    if not (code is None or isinstance(code, int)):  # words: they are printed, and the code is 1
        with suppress(BaseException):
            print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # they may be anything by now
            stream.flush()
    os._exit((code or 0) & 0xFF)


# -- The id of an evaluation, as the optimizer, the evaluators, the log and the run name it

#: The generation number of the evaluation of the start point.
START = -1


class EvaluationId(NamedTuple):
    """One attempt to evaluate one point. The order of ids is the order of the rows in the log."""

    restart: int
    generation: int
    """Generation of the distribution that the point was drawn from; `START` for the start."""
    slot: int
    redraw: int = 0
    attempt: int = 0

    @property
    def point(self) -> EvaluationId:
        """The id of the first attempt: equal for all attempts."""
        return self._replace(attempt=0) if self.attempt else self
