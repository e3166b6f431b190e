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
        run = metadata["run"]
        history = History.restore(run["history"], np.asarray(arrays["history"], dtype=float))
        return history, Ledger.restore(run["failures"], np.asarray(arrays["failures"], dtype=float))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise SnapshotError(f"found an unusable snapshot ({type(error).__name__}: {error})") from None
