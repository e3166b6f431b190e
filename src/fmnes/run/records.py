"""What a snapshot, or the ending of a run, holds for those who read the run: its history and its failures.

It is read without the search, which a reader need not load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fmnes.errors import SnapshotError
from fmnes.report.failures import Ledger
from fmnes.report.history import History
from fmnes.storage.snapshot import Arrays


def read_records(metadata: dict[str, Any], arrays: Arrays) -> tuple[History, Ledger]:
    """Raises SnapshotError for what was never written."""
    try:
        if "loop" in metadata:
            metadata, arrays = from_version_1(metadata, arrays)
        run = metadata["run"]
        history = History.restore(run["history"], np.asarray(arrays["history"], dtype=float))
        return history, Ledger.restore(run["failures"], np.asarray(arrays["failures"], dtype=float))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise SnapshotError(f"found an unusable snapshot ({type(error).__name__}: {error})") from None


def from_version_1(metadata: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """A snapshot of fmnes 0.1 as one of this version."""
    loop, ledger = metadata["loop"], metadata["ledger"]
    points = [arrays[f"ledger.{i}"] for i in range(len(ledger))]
    rows = arrays["loop.history"]
    run = {
        "seconds": loop["seconds"],
        "seed": loop["seed"],
        "totals": loop,
        "history": [len(rows), 1],
        "failures": [[*entry, len(own)] for entry, own in zip(ledger, points, strict=True)],
    }
    best = {f"totals.best.{k}": arrays[f"loop.best.{k}"] for k in ("x", "fun") if f"loop.best.{k}" in arrays}
    d = len(arrays["x0"])
    all_points = np.concatenate([np.empty((0, d)), *points])
    return {**metadata, "restart": loop["restarts"], "run": run}, {
        **arrays,
        **best,
        "history": rows,
        "failures": all_points,
    }
