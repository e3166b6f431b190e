"""An optimizer as plain data, and back: what `Optimizer.save` and `load` write and read.

Loading builds a fresh optimizer through the ordinary constructor, so every check of the arguments holds, and
then puts the saved state into it, field by field, each of the shape and type that the fresh one has.
"""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import FmnesError, SnapshotError
from fmnes.result import Best
from fmnes.search.slots import Generation
from fmnes.storage.snapshot import Arrays, read_snapshot, write_snapshot
from fmnes.strategies import METHODS, Resampling

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

KIND = "optimizer"
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def save(optimizer: Optimizer, path: str | os.PathLike[str]) -> None:
    metadata, arrays = dump(optimizer)
    write_snapshot(path, metadata, arrays)


def load(cls: type[Optimizer], path: str | os.PathLike[str]) -> Optimizer:
    metadata, arrays = read_snapshot(path)
    try:
        return restore(cls, metadata, arrays)
    # A file that is whole but was not written by us, or was edited: anything may be missing from it.
    except (
        FmnesError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        AttributeError,
        AssertionError,
    ) as error:
        raise SnapshotError(f"{os.fspath(path)}: found an unusable optimizer ({error})") from None


def dump(opt: Optimizer) -> tuple[dict[str, Any], Arrays]:
    settings = dataclasses.asdict(opt.strategy)  # type: ignore[call-overload]
    B0 = settings.pop("B0", None)
    recent = opt._recent
    metadata = {
        "kind": KIND,
        "method": opt.strategy.name,
        "settings": _plain(settings),
        "max_redraws": _plain(opt._max_redraws),
        "population_size": opt.population_size,
        "target": opt.target,
        "max_evaluations": opt.max_evaluations,
        "xtol": opt.xtol,
        "ftol": opt.ftol,
        "seed": None if opt.seed is None else str(opt.seed),
        "rng": _plain(opt._rng.bit_generator.state),
        "generation": opt.generation,
        "evaluations": opt.evaluations,
        "n_infeasible": opt.n_infeasible,
        "best_evaluation": opt.best.evaluation,
        "numerical_faults": opt._numerical_faults,
        "recent": [recent.flat, recent.infeasible, recent.unevaluated],
    }
    arrays: Arrays = {f"state.{k}": v for k, v in opt._state._asdict().items() if v is not None}
    arrays["x0"], arrays["sigma0"] = opt._x0, np.asarray(opt._steps0, dtype=float)
    if B0 is not None:
        arrays["B0"] = np.asarray(B0, dtype=float)
    arrays["feasible_share"] = np.asarray(opt._feasible_share)
    arrays["recent_bests"] = np.asarray(recent.bests, dtype=float)
    if opt.bounds is not None:
        arrays["lower"], arrays["upper"] = opt.bounds
    if opt.best.x is not None:
        arrays["best.x"], arrays["best.fun"] = opt.best.x, np.asarray(opt.best.fun)
    if opt._current is not None:
        metadata["evaluated"] = opt._current.evaluated
        for name in ("z", "x", "f", "open", "redraws"):
            arrays[f"current.{name}"] = getattr(opt._current, name)
    return metadata, arrays


def restore(cls: type[Optimizer], metadata: dict[str, Any], arrays: Arrays) -> Optimizer:
    if metadata["kind"] != KIND:
        raise SnapshotError(f"kind {metadata['kind']!r}, wanted {KIND!r}")
    shape = {"B0": arrays["B0"]} if "B0" in arrays else {}
    method: Any = METHODS[metadata["method"]](**metadata["settings"], **shape)
    if metadata["max_redraws"] is not None:
        method = Resampling(method, metadata["max_redraws"])
    bounds = (arrays["lower"], arrays["upper"]) if "lower" in arrays else None
    opt = cls(
        arrays["x0"],
        arrays["sigma0"],
        method=method,
        population_size=metadata["population_size"],
        bounds=bounds,
        rng=0,
        **{name: metadata[name] for name in ("target", "max_evaluations", "xtol", "ftol")},
    )
    d = len(opt._x0)
    opt._state = _restore_state(opt._state, arrays)
    opt._rng = _restore_rng(metadata["rng"])
    opt.seed = None if metadata["seed"] is None else int(metadata["seed"])
    for name in ("generation", "evaluations", "n_infeasible"):
        setattr(opt, name, _count(metadata[name]))
    opt._numerical_faults = _count(metadata["numerical_faults"])
    opt._feasible_share = float(_shaped(arrays["feasible_share"], ()))
    recent = opt._recent
    bests = arrays["recent_bests"]
    if np.isnan(_shaped(bests, (min(bests.size, recent.window),))).any():
        raise SnapshotError("NaN among the recent values")
    recent.bests = deque(bests.tolist(), maxlen=recent.window)
    recent.flat, recent.infeasible, recent.unevaluated = map(_count, metadata["recent"])
    if "best.x" in arrays:
        best_x, best_fun = _finite(arrays["best.x"], (d,)), _finite(arrays["best.fun"], ())
        opt.best = Best(best_x, float(best_fun), _count(metadata["best_evaluation"]))
    if "current.z" in arrays:
        opt._current = _restore_generation(opt, metadata, arrays, d)
    return opt


def _restore_state(fresh: Any, arrays: Arrays) -> Any:
    fields = {}
    for name, template in fresh._asdict().items():
        if template is not None:
            kind = np.asarray(template).dtype.kind
            value = _finite(arrays[f"state.{name}"], np.shape(template), kinds=kind)
            fields[name] = value if value.ndim else value[()]
    state = fresh._replace(**fields)
    if not state.sigma > 0:
        raise SnapshotError(f"sigma {state.sigma}, wanted a positive number")
    return state


def _restore_generation(opt: Optimizer, metadata: dict[str, Any], arrays: Arrays, d: int) -> Generation:
    lam = opt.population_size
    draws = lam // 2 if opt.strategy.mirrored else lam
    return Generation(
        z=_finite(arrays["current.z"], (draws, d)),
        x=_shaped(arrays["current.x"], (lam, d)),
        f=_shaped(arrays["current.f"], (lam,)),
        open=_shaped(arrays["current.open"], (lam,), kinds="b"),
        redraws=_shaped(arrays["current.redraws"], (lam,), kinds="i"),
        evaluated=_count(metadata["evaluated"]),
    )


def _restore_rng(state: dict[str, Any]) -> np.random.Generator:
    name = state["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise SnapshotError(f"random generator {name!r}, wanted one of {', '.join(_BIT_GENERATORS)}")
    # NumPy trusts the position in its buffer and would read beyond it.
    position, length = (state["state"]["pos"], 624) if name == "MT19937" else (state.get("buffer_pos", 0), 4)
    if not 0 <= _count(position) <= length:
        raise SnapshotError(f"position {position} in the random generator's buffer, wanted at most {length}")
    bit_generator = getattr(np.random, name)(0)
    bit_generator.state = state
    return np.random.Generator(bit_generator)


def _plain(value: Any) -> Any:
    """The generator's state as JSON data; some kinds keep arrays in it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _count(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise SnapshotError(f"count {found!r}, wanted a whole number >= 0")
    return found


def _shaped(array: NDArray[Any], shape: tuple[int, ...], kinds: str = "f") -> NDArray[Any]:
    if array.shape != shape or array.dtype.kind not in kinds:
        raise SnapshotError(f"array of shape {array.shape} and type {array.dtype}, wanted shape {shape}")
    return array


def _finite(array: NDArray[Any], shape: tuple[int, ...], kinds: str = "f") -> NDArray[Any]:
    if not np.isfinite(_shaped(array, shape, kinds=kinds)).all():
        raise SnapshotError("NaN or infinity in the state")
    return array
