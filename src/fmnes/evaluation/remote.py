"""What runs where an executor runs it: the evaluation is made, timed and watched there, not by the driver.

    driver ── the executor's own way ── its worker: `evaluate` ── guard ── child with the objective

The child is one of our own supervised ones, or an external program; so a crash or a hang costs one evaluation
and never the executor's worker. It is kept for the next task. The objective goes over once: a task has only
its name, a hash; a worker that does not know it says so, and is sent it. Plain data go back: an object of the
user's might not survive the way, or break its receiver.
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
from fmnes.evaluation.evaluator import Evaluator, Task
from fmnes.evaluation.programs.command import Command
from fmnes.evaluation.workers.messages import encode
from fmnes.outcome import lost
from fmnes.space import Space

#: "outcome": as `encode` writes it, and its seconds. "unknown": the objective by this name has not come here.
#: "broken": it cannot be loaded or run here, and why.
Answer = tuple[Literal["outcome", "unknown", "broken"], bytes, float]

#: Where Python and what is installed with it are.
_INSTALLED = tuple(os.path.join(prefix, "lib") for prefix in {sys.prefix, sys.base_prefix})
#: A child that nobody has needed for so long ends.
IDLE_SECONDS = 300.0
#: So many objectives are remembered, and so many idle children of other objectives are kept.
_MOST_KNOWN = _MOST_OTHERS = 4
#: The driver waits no longer than this for what it has abandoned.
_PATIENCE = 1.0


class Sent(NamedTuple):
    """An objective on its way, with what it needs there."""

    name: str
    """A hash of all that follows."""
    data: bytes


class _Objective(NamedTuple):
    what: bytes | tuple[Command, Space | None]
    """A function as `ship` makes it, or a program and its parameters."""
    timeout: float | None
    path: list[str]
    """Where the driver finds modules of the user's own, such as beside the script: a child looks there first.
    Not where packages are installed: those are the machine's."""


def pack(fun: Any, timeout: float | None, space: Space | None) -> Sent:
    """In the driver. Raises ArgumentError if the function cannot be sent."""
    if isinstance(fun, Command):
        what: Any = (fun, space)
    else:
        from fmnes.evaluation.workers.messages import ship  # POSIX's, as all of the workers

        what = ship(fun)
    path = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    path = [entry for entry in path if not entry.startswith(_INSTALLED) and "-packages" not in entry]
    data = pickle.dumps(_Objective(what, timeout, path))
    return Sent(hashlib.sha256(data).hexdigest()[:32], data)


def evaluate(
    name: str, mark: str, point: bytes, key: tuple[int, ...], left: float | None, data: bytes | None = None
) -> Answer:
    """In the executor's worker: one evaluation of the objective `name`, whose `data` may come with it.

    mark: see `abandon`. point: float64 bytes. key: the task's. left: seconds until the run is over, when this
    was sent.
    """
    deadline = None if left is None else time.monotonic() + left
    try:
        child = _take(name, data)
    except OSError as error:  # no more files, no memory: the machine's fault
        return "outcome", encode(lost(f"no child process could be started: {error}")), 0.0
    except Exception as error:  # another version of ours, a program that is missing here
        return _broken(error)
    if child is None:
        return "unknown", b"", 0.0
    restart, generation, slot, redraw, attempt = key
    task = Task(np.frombuffer(point), generation, slot, redraw, attempt, restart)
    outcome = None
    began = time.monotonic()
    try:
        child.is_wanted = getattr(_here, "is_wanted", None) or (lambda: not os.path.exists(mark))
        with closing(child.evaluator([task], deadline)) as finished:
            outcome = next((outcome for _, outcome in finished), None)
    except (ArgumentError, ObjectiveError) as error:
        return _broken(error)
    finally:
        if outcome is None:  # it was abandoned, or is broken; in any case it is not to be relied on
            child.evaluator.close()
        else:
            _give_back(child)
        with suppress(OSError):
            os.unlink(mark)
    seconds = time.monotonic() - began
    if outcome is None:
        return "outcome", encode(lost("nobody waited for it any more")), seconds
    # `encode` leaves out the mark of what was ended from outside: what a cluster loses is never the point's.
    return "outcome", encode(outcome), seconds if np.isnan(outcome.seconds) else outcome.seconds


def _broken(error: Exception) -> Answer:
    words = f"on {socket.gethostname()}: {error or type(error).__name__}"
    return "broken", words.encode(errors="replace"), 0.0


# -- who still waits for it ------------------------------------------------------------------------------

_here = threading.local()
"""`is_wanted`, where the engine can tell whether somebody waits for the task of this thread."""


@contextmanager
def watched(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """What is evaluated in this block, by this thread, ends soon after it is not wanted any more."""
    _here.is_wanted = is_wanted
    try:
        yield
    finally:
        _here.is_wanted = None


def abandon(marks: list[str]) -> None:
    """In the driver: what runs on this machine under these marks ends, and is seen to.

    A mark is the path of a file that is not there. Once it is, the evaluation ends, wherever that is seen:
    in threads and processes of this machine. Whoever has ended it removes the file.
    """
    if not marks:
        return
    folder = os.path.dirname(marks[0])
    try:
        with suppress(OSError):  # a full disk
            os.makedirs(folder, mode=0o700)
            for mark in marks:
                with open(mark, "x"):
                    pass
        end = time.monotonic() + _PATIENCE
        while any(map(os.path.exists, marks)) and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- the children of this process ------------------------------------------------------------------------


class _Child:
    """One supervised child, or whoever runs one program at a time. It has one user at a time."""

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
"""By name; the latest last."""
_idle: list[_Child] = []
"""The longest idle first."""
_reaper: threading.Thread | None = None


def _take(name: str, data: bytes | None) -> _Child | None:
    """A child for this thread alone; None if nobody has sent the objective here."""
    with _lock:
        if data is not None and name not in _known:
            _known[name] = pickle.loads(data)  # from our own driver, by the executor's way
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
    """Ends children that nobody needs: their driver may be gone, and the executor's worker live on."""
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
    """End this process's idle children of the objective `name`, or all of them."""
    with _lock:
        leaving = [child for child in _idle if name in (child.name, None)]
        _idle[:] = [child for child in _idle if child not in leaving]
        for one in [name] if name else list(_known):
            _known.pop(one, None)
    for child in leaving:
        with suppress(Exception):
            child.evaluator.close()


def _in_a_fork() -> None:
    """They are the parent's children, and its locks may be held."""
    global _lock, _reaper
    _lock, _reaper = threading.Lock(), None
    _idle.clear()
    _known.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)
atexit.register(forget)
