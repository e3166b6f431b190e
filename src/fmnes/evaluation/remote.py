"""Evaluation in an executor's worker, by a supervised child process of that worker.

    driver ── the executor ── its worker: `evaluate` ── guard ── child with the objective

The child is a worker process or an external program, so a crash or a hang costs one evaluation and never the
executor's worker. It is reused for the next task. A task contains only the hash of the objective; a worker
that does not have the objective reports that, and it is sent. Plain data are returned, because an object of
the user might not be picklable.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Literal, NamedTuple

import numpy as np

from fmnes.errors import ArgumentError, ObjectiveError
from fmnes.evaluation.evaluator import Evaluator, Task, evaluate_all
from fmnes.evaluation.programs.command import Command
from fmnes.evaluation.workers.messages import encode
from fmnes.outcome import EvaluationId, lost
from fmnes.space import Space

#: "outcome": the bytes of `encode`, and the seconds. "unknown": the objective is not known here.
#: "broken": it cannot be loaded or run here, and why.
Answer = tuple[Literal["outcome", "unknown", "broken"], bytes, float]

#: Where Python and its packages are installed.
_INSTALLED = tuple(os.path.join(prefix, "lib") for prefix in {sys.prefix, sys.base_prefix})
#: Seconds after which an idle child ends.
IDLE_SECONDS = 300.0
#: Most objectives that are remembered, and most idle children of other objectives.
_MOST_KNOWN = _MOST_OTHERS = 4
#: Seconds that the driver waits for abandoned evaluations to end.
_ABANDON_SECONDS = 1.0


class PackedObjective(NamedTuple):
    """A pickled objective, with everything that a worker needs to evaluate it."""

    name: str
    """Hash of the data."""
    data: bytes


class _Objective(NamedTuple):
    what: bytes | tuple[Command, Space | None]
    """A function from `ship`, or a program and its parameters."""
    timeout: float | None
    path: list[str]
    """Folders of the user's own modules, such as that of the script, which a child searches first; without
    those of installed packages, which each machine has itself."""


def pack(fun: Any, timeout: float | None, space: Space | None) -> PackedObjective:
    """Pack the objective in the driver. Raises ArgumentError if the function cannot be sent."""
    if isinstance(fun, Command):
        what: Any = (fun, space)
    else:
        from fmnes.evaluation.workers.messages import ship  # POSIX only

        what = ship(fun)
    path = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    path = [entry for entry in path if not entry.startswith(_INSTALLED) and "-packages" not in entry]
    data = pickle.dumps(_Objective(what, timeout, path))
    return PackedObjective(hashlib.sha256(data).hexdigest()[:32], data)


def evaluate(
    name: str,
    cancel_file: str,
    point: bytes,
    key: tuple[int, ...],
    left: float | None,
    data: bytes | None = None,
) -> Answer:
    """Make one evaluation of the objective `name` in the executor's worker; `data` may be included.

    cancel_file: see `abandon`. point: float64 bytes. key: of the task. left: seconds until the deadline when
    this was sent.
    """
    deadline = None if left is None else time.monotonic() + left
    try:
        child = _take(name, data)
    except OSError as error:  # no files or memory left on this machine
        return "outcome", encode(lost(f"no child process could be started: {error}")), 0.0
    except Exception as error:  # such as another version of fmnes, or a program that is missing here
        return _broken(error)
    if child is None:
        return "unknown", b"", 0.0
    task = Task(np.frombuffer(point), EvaluationId(*key))
    outcome = None
    began = time.monotonic()
    try:
        child.is_wanted = getattr(_here, "is_wanted", None) or (lambda: not os.path.exists(cancel_file))
        with closing(evaluate_all(child.evaluator, [task], deadline)) as finished:
            outcome = next((outcome for _, outcome in finished), None)
    except (ArgumentError, ObjectiveError) as error:
        return _broken(error)
    finally:
        if outcome is None:  # the evaluation was abandoned, or the child is broken
            child.evaluator.close()
        else:
            _give_back(child)
        with suppress(OSError):
            os.unlink(cancel_file)
    seconds = time.monotonic() - began
    if outcome is None:
        return "outcome", encode(lost("cancelled")), seconds
    # `encode` omits the fault of a lost evaluation: one that a cluster loses is never the point's fault.
    return "outcome", encode(outcome), seconds if np.isnan(outcome.seconds) else outcome.seconds


def _broken(error: Exception) -> Answer:
    words = f"on {socket.gethostname()}: {error or type(error).__name__}"
    return "broken", words.encode(errors="replace"), 0.0


# -- Cancelling

_here = threading.local()
"""`is_wanted`, if the executor's library can tell whether this thread's task was cancelled."""


@contextmanager
def cancel_unless(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """End this thread's evaluation in the block soon after `is_wanted` returns False."""
    _here.is_wanted = is_wanted
    try:
        yield
    finally:
        _here.is_wanted = None


def abandon(cancel_files: list[str]) -> None:
    """End, from the driver, the evaluations with these cancel files on this machine, and wait for it.

    Each evaluation in a thread or process of this machine ends once its cancel file exists, and removes it.
    """
    if not cancel_files:
        return
    folder = os.path.dirname(cancel_files[0])
    try:
        with suppress(OSError):  # a full disk
            os.makedirs(folder, mode=0o700)
            for cancel_file in cancel_files:
                with open(cancel_file, "x"):
                    pass
        end = time.monotonic() + _ABANDON_SECONDS
        while any(map(os.path.exists, cancel_files)) and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- The children of this process


class _Child:
    """A supervised child process, or an evaluator of programs; used by one thread at a time."""

    def __init__(self, name: str, objective: _Objective) -> None:
        self.name = name
        self.idle_since = 0.0
        self.is_wanted: Callable[[], bool] = lambda: True
        self.evaluator = self._evaluator(objective)

    def _evaluator(self, objective: _Objective) -> Evaluator:
        def is_wanted() -> bool:
            return self.is_wanted()

        if isinstance(objective.what, bytes):
            from fmnes.evaluation.workers.pool import Workers

            return Workers(
                objective.what, 1, timeout=objective.timeout, path=objective.path, is_wanted=is_wanted
            )
        from fmnes.evaluation.programs.runner import CommandEvaluator

        command, space = objective.what
        named = None if space is None else space.named
        return CommandEvaluator(command, 1, named=named, is_wanted=is_wanted)


_lock = threading.Lock()
_known: dict[str, _Objective] = {}
"""Objectives by name, in the order of arrival."""
_idle: list[_Child] = []
"""Idle children, the longest idle first."""
_reaper: threading.Thread | None = None


def _take(name: str, data: bytes | None) -> _Child | None:
    """Return a child for this thread; None if the objective is not known here."""
    with _lock:
        if data is not None and name not in _known:
            _known[name] = pickle.loads(data)  # from our own driver, through the executor
            while len(_known) > _MOST_KNOWN:
                del _known[next(iter(_known))]
        for child in reversed(_idle):
            if child.name == name:
                _idle.remove(child)
                return child
        objective = _known.get(name)
    return None if objective is None else _Child(name, objective)


def _give_back(child: _Child) -> None:
    global _reaper
    child.is_wanted = lambda: True
    child.idle_since = time.monotonic()
    with _lock:
        _idle.append(child)
        others = [one for one in _idle if one.name != child.name]
        leaving = others[: max(len(others) - _MOST_OTHERS, 0)]
        for one in leaving:
            _idle.remove(one)
        if _reaper is None:
            _reaper = threading.Thread(target=_reap, name="fmnes idle children", daemon=True)
            _reaper.start()
    for one in leaving:
        one.evaluator.close()


def _reap() -> None:
    """End idle children: the executor's worker may outlive the driver."""
    global _reaper
    while True:
        time.sleep(min(IDLE_SECONDS / 4, 15.0))
        before = time.monotonic() - IDLE_SECONDS
        with _lock:
            leaving = [child for child in _idle if child.idle_since < before]
            _idle[:] = [child for child in _idle if child not in leaving]
            if not _idle:
                _reaper = None
        for child in leaving:
            child.evaluator.close()
        if _reaper is not threading.current_thread():
            return


def forget(name: str | None = None) -> None:
    """Forget the objective `name`, or all of them, and end their idle children."""
    with _lock:
        leaving = [child for child in _idle if name in (child.name, None)]
        _idle[:] = [child for child in _idle if child not in leaving]
        for one in [name] if name else list(_known):
            _known.pop(one, None)
    for child in leaving:
        with suppress(Exception):
            child.evaluator.close()


def _reset_in_fork() -> None:
    """Drop the parent's children and its locks, which may be held."""
    global _lock, _reaper
    _lock, _reaper = threading.Lock(), None
    _idle.clear()
    _known.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_fork)
atexit.register(forget)
