"""Asking a run to stop, from any process and any machine that shares its directory."""

from __future__ import annotations

import os
import time
from enum import Enum
from pathlib import Path

from fmnes.errors import RunError
from fmnes.storage.directory import LOCK, is_run
from fmnes.storage.lock import holder
from fmnes.storage.wish import leave_wish, take_wish


class Answer(Enum):
    """What came of it."""

    STOPPED = "stopped"
    NOT_RUNNING = "not running"
    """It was not; nothing was asked."""
    ASKED = "asked"
    """It has not stopped yet, and will."""


def ask_to_stop(path: str | os.PathLike[str], seconds: float) -> Answer:
    """Ask the run at `path` to stop, as Ctrl-C would, and wait so many seconds for it.

    Raises RunError for what is no run directory of ours, or cannot be written to.
    """
    run = Path(path).absolute()
    if not is_run(run):
        raise RunError(f"{run}: found no run of ours, wanted one to stop")
    if holder(run / LOCK) is None:
        return Answer.NOT_RUNNING
    leave_wish(run)
    end = time.monotonic() + seconds
    while holder(run / LOCK) is not None:
        if not time.monotonic() < end:  # also if that is no number
            return Answer.ASKED
        time.sleep(0.05)
    take_wish(run)  # it has ended by itself before it saw this
    return Answer.STOPPED
