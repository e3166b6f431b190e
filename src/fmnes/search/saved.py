"""Checks of saved data, and saving of the random generator and the best point.

All other objects have their own `dump` and `restore`, which share these checks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import BIT_GENERATORS
from fmnes.errors import SnapshotError
from fmnes.result import Best

#: JSON data, and named arrays.
Saved = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays, also in dictionaries, to JSON data."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def count(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise SnapshotError(f"count {found!r}, wanted a whole number >= 0")
    return found


def shaped(array: NDArray[Any], shape: tuple[int, ...], kinds: str = "f") -> NDArray[Any]:
    if array.shape != shape or array.dtype.kind not in kinds:
        raise SnapshotError(f"array of shape {array.shape} and type {array.dtype}, wanted shape {shape}")
    return array


def finite(array: NDArray[Any], shape: tuple[int, ...], kinds: str = "f") -> NDArray[Any]:
    if not np.isfinite(shaped(array, shape, kinds=kinds)).all():
        raise SnapshotError("NaN or infinity in the state")
    return array


def dump_best(best: Best) -> Saved:
    arrays = {} if best.x is None else {"best.x": best.x, "best.fun": np.asarray(best.fun)}
    return {"best_evaluation": best.evaluation}, arrays


def restore_best(metadata: dict[str, Any], arrays: dict[str, NDArray[Any]], d: int) -> Best:
    if "best.x" not in arrays:
        return Best(None, np.inf, 0)
    x, fun = finite(arrays["best.x"], (d,)).copy(), finite(arrays["best.fun"], ())
    x.setflags(write=False)  # users receive it
    return Best(x, float(fun), count(metadata["best_evaluation"]))


def restore_rng(state: dict[str, Any]) -> np.random.Generator:
    """Return the generator with the state that `plain(rng.bit_generator.state)` gave."""
    name = state["bit_generator"]
    if name not in BIT_GENERATORS:
        raise SnapshotError(f"random generator {name!r}, wanted one of {', '.join(BIT_GENERATORS)}")
    # NumPy trusts the position in its buffer and would read beyond it.
    position, length = (state["state"]["pos"], 624) if name == "MT19937" else (state.get("buffer_pos", 0), 4)
    if not 0 <= count(position) <= length:
        raise SnapshotError(f"position {position} in the random generator's buffer, wanted at most {length}")
    bit_generator = getattr(np.random, name)(0)
    bit_generator.state = state
    return np.random.Generator(bit_generator)
