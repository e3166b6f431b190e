"""The stored result of a run: how `result.json` and `result.npz` are written and read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.constraints import read_constraint_results
from fmnes.errors import FmnesError, RunError, warn
from fmnes.result import Result, StopReason
from fmnes.run.history import History, Ledger, read_records
from fmnes.storage.directory import RunDirectory

#: Longer points are not stored in the result, which would become too large to be read; snapshots have them.
MAX_RESULT_DIMENSION = 1_000_000


def store_result(directory: RunDirectory, result: Result, history: History, failures: Ledger) -> None:
    """Store the result, which is in the search's numbers. A full disk only causes a warning."""
    data = result.as_json()
    if len(result.x_mean) > MAX_RESULT_DIMENSION:
        data |= {"x": None, "x_mean": None, "failures": [{**f, "first_x": None} for f in data["failures"]]}
    ending = None
    if result.stop_reason is not StopReason.STORAGE:  # a full disk needs its last bytes for the rest
        covariance = result.covariance
        if covariance is None or np.isfinite(covariance).all():
            data["covariance"] = None if covariance is None else covariance.tolist()
        rows, points = history.dump(), failures.dump()
        metadata = {"run": {"history": rows[0], "failures": points[0]}}
        arrays = {"history": rows[1], "failures": points[1], "sigma0": np.asarray(result.sigma0)}
        ending = metadata, arrays
    try:
        directory.finish(data, ending)
    except RunError as error:
        warn(f"the result could not be saved: {error}")


def read_whole_result(directory: RunDirectory, data: dict[str, Any]) -> Result | None:
    """The result in the search's numbers; None if it is damaged or incomplete. data: `directory.result`."""
    try:
        ending = directory.read_ending()
        if ending is None or data["x_mean"] is None or "covariance" not in data:
            return None
        history, failures = read_records(*ending)
        result = result_from_json(data, len(data["x_mean"]))
        return replace(
            result,
            failures=failures.failures(),
            history=history.columns(),
            sigma0=float(ending[1]["sigma0"]),
        )
    except (FmnesError, LookupError, TypeError, ValueError, OverflowError):
        return None


def result_from_json(data: dict[str, Any], d: int | None) -> Result:
    """What `result.json` holds: no history, no `sigma0`, no failures."""
    return Result(
        x=_array(data["x"], d),
        fun=np.inf if data["fun"] is None else float(data["fun"]),
        success=bool(data["success"]),
        stop_reason=None if data["stop_reason"] is None else StopReason[data["stop_reason"]],
        message=str(data["message"]),
        nfev=int(data["nfev"]),
        nit=int(data["nit"]),
        n_infeasible=int(data["n_infeasible"]),
        x_mean=_array(data["x_mean"], d),
        seed=None if data["seed"] is None else int(data["seed"]),
        second_looks=int(data["second_looks"]),
        covariance=_square(data.get("covariance"), d),
        n_repeated=int(data["n_repeated"]),
        constraints=read_constraint_results(data.get("constraints")),
    )


def _array(found: Any, *shape: int | None) -> NDArray[np.float64] | None:
    array = None if found is None else np.array(found, dtype=float)
    if array is not None and array.shape != shape:
        raise ValueError(f"an array of shape {array.shape}, wanted {shape}")
    return array


def _square(found: Any, d: int | None) -> NDArray[np.float64] | None:
    """A covariance: of all coordinates, or of those that are numbers."""
    n = None if found is None else len(found)
    if n is not None and d is not None and n > d:
        raise ValueError(f"a covariance of {n} coordinates, wanted at most {d}")
    return _array(found, n, n)
