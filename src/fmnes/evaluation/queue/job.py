"""What is evaluated through a queue, and for whom: its file `job.json`, which the driver alone writes."""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from fmnes.arguments import is_number
from fmnes.errors import ArgumentError, RunError
from fmnes.evaluation.queue.fingerprint import Fingerprint
from fmnes.evaluation.queue.place import JOB, read, write
from fmnes.outputs import read_json
from fmnes.space import Space

_MAX_BYTES = 256 * 2**20
#: Coordinates of a point: a file that wants more is not ours.
_MAX_DIMENSION = 2**31


class Job(NamedTuple):
    objective: Fingerprint
    d: int
    timeout: float | None
    """Seconds an evaluation may take."""
    lease: float
    """Seconds after which the driver gives up a worker that gives no sign of life."""
    space: Space | None
    """Named parameters, if it has some."""
    run: str = ""
    """The run directory, where the run can be resumed."""
    driver: str = ""
    """A name that no other driver has."""
    over: bool = False
    """The driver has ended, and left nothing to do."""

    @property
    def id(self) -> str:
        """The same for a run that is resumed: what was answered for this name is an answer."""
        names = None if self.space is None else self.space.as_json()
        text = json.dumps([self.objective.hash, self.d, self.timeout, names])
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        plain = self._asdict() | {"objective": self.objective.as_json()}
        plain["space"] = None if self.space is None else self.space.as_json()
        return plain


def new_driver() -> str:
    return secrets.token_hex(8)


def write_job(place: Path, job: Job) -> None:
    write(place, JOB, json.dumps(job.as_json()).encode(), durable=True)


def read_job(place: Path) -> Job | None:
    """None if there is none yet. Raises RunError for what no driver of ours has written."""
    try:
        data = read(place / JOB, _MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{place / JOB}: found a file that cannot be read ({error}), wanted ours") from None
    try:
        return _job(read_json(data))
    except (ValueError, ArgumentError) as error:
        raise RunError(f"{place / JOB}: found a file that is not ours ({error}), wanted a job") from None


def _job(found: Any) -> Job:
    """Raises ValueError or ArgumentError for what `as_json` does not write."""
    if not isinstance(found, dict) or set(found) != set(Job._fields):
        raise ValueError("no job")
    d, timeout, lease = found["d"], found["timeout"], found["lease"]
    if type(d) is not int or not 0 < d < _MAX_DIMENSION:
        raise ValueError("no dimension")
    if not is_number(lease) or lease <= 0 or not (timeout is None or (is_number(timeout) and timeout > 0)):
        raise ValueError("no seconds")
    run, driver, over = found["run"], found["driver"], found["over"]
    if not isinstance(run, str) or not isinstance(driver, str) or not isinstance(over, bool):
        raise ValueError("no driver")
    space = None if found["space"] is None else Space.from_json(found["space"])
    if space is not None and len(space.names) != d:
        raise ValueError(f"{len(space.names)} parameters for points of {d} coordinates")
    objective = Fingerprint.from_json(found["objective"])
    return Job(objective, d, timeout, float(lease), space, run, driver, over)


def beat_seconds(lease: float) -> float:
    """Seconds between two signs of life: several of them may come late."""
    return min(2.0, lease / 6)
