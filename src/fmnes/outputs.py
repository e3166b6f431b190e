"""Further outputs beside the value: {name: number, text, True, False or None}, and how they are written.

They are kept and shown, and not searched by.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Outputs = dict[str, Any]

#: So much of one evaluation's: more belongs into a file.
MAX_NAMES = 1000
MAX_BYTES = 10_000
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
