"""Several external programs at a time, in one loop without threads, each in a directory of its own."""

from __future__ import annotations

import errno
import functools
import math
import os
import selectors
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fmnes.arguments import check_number
from fmnes.errors import ArgumentError
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs.command import Command
from fmnes.evaluation.programs.process import PARAMS, TOKEN, Guard, Program
from fmnes.outcome import DETAIL_LIMIT, Outcome, lost

#: What exec says when it is the program that is wrong, and not the machine.
_WRONG_PROGRAM = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ELOOP, errno.ENOEXEC, errno.E2BIG)


class CommandEvaluator:
    """Runs `workers` programs at a time, in one loop without threads."""

    def __init__(self, command: Command, workers: int = 1) -> None:
        command.check()
        self._command = command
        self._workers = check_number("workers", workers, above=0, whole=True) or 1
        self._selector = selectors.DefaultSelector()
        self._guard: Guard | None = None
        directory = None if command.directory is None else str(command.directory)
        self._workspace = _workspace(directory, command.max_kept, os.getpid())

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Iterator[tuple[int, Outcome]]:
        end = math.inf if deadline is None else deadline
        waiting = deque(enumerate(tasks))
        running: dict[int, Program] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._workers:
                    if time.monotonic() >= end:
                        return
                    position, task = waiting.popleft()
                    started = self._start(task)
                    if isinstance(started, Outcome):
                        yield position, started
                    else:
                        running[position] = started
                if not running:
                    return
                self._step(running.values(), end)
                # Handed over before the next one starts: no more than `workers` can be lost with us.
                for position in [p for p, program in running.items() if program.has_ended()]:
                    yield position, self._finish(running.pop(position))
                if running and time.monotonic() >= end:
                    return
        finally:
            self._abandon(list(running.values()))

    def close(self) -> None:
        if self._guard is not None:
            self._guard.close()
        self._selector.close()
        self._workspace.close()

    def _start(self, task: Task) -> Program | Outcome:
        """The running program, or the outcome if the machine cannot run it now."""
        command = self._command
        directory = program = None
        try:
            self._guard = self._guard or Guard()
            directory = self._workspace.new(f"g{task.generation}-s{task.slot}-a{task.attempt}-")
            argv = command.arguments(task.x.tolist(), directory)
            (directory / PARAMS).write_text(command.params(task))
            environment = {**os.environ, **(command.environment or {}), TOKEN: self._guard.token}
            variables = {name: value for name, value in environment.items() if value is not None}
            program = Program(argv, directory, variables, command.timeout, self._selector)
            self._guard.watch(program.pid)
            return program
        except OSError as error:
            if error.filename == command.program and error.errno in _WRONG_PROGRAM:
                command.check()
                hint = "; a script starts with #!" if error.errno == errno.ENOEXEC else ""
                raise ArgumentError(
                    f"argv: found {command.program!r}, which does not start: {error.strerror}{hint}"
                ) from None
            return lost(f"could not start the program: {error.strerror}")
        finally:
            if directory is not None and program is None:
                _remove(directory)

    def _step(self, programs: Collection[Program], end: float) -> None:
        """Wait until something happens, and no longer than anything may take."""
        wait = min(end, *(program.due for program in programs), math.inf) - time.monotonic()
        for key, _ in self._selector.select(None if wait == math.inf else max(wait, 0)):
            key.data()
        for program in programs:
            if not program.has_ended():
                program.enforce(time.monotonic())

    def _finish(self, program: Program) -> Outcome:
        assert self._guard is not None
        outcome = self._command.outcome(program.finish(self._guard), program.directory)
        keep = self._command.keep
        if keep == "none" or not self._command.max_kept or (keep == "failed" and outcome.status == "value"):
            _remove(program.directory)
            return outcome
        self._workspace.keep(program.directory)
        return replace(
            outcome, detail=f"{outcome.detail}\nkept: {program.directory}"[-DETAIL_LIMIT:].lstrip()
        )

    def _abandon(self, programs: list[Program]) -> None:
        """Stop these, and whatever the batch has left behind."""
        if self._guard is None:
            return
        try:
            for program in programs:
                program.stop()
            while programs:
                self._step(programs, math.inf)
                for program in [program for program in programs if program.has_ended()]:
                    programs.remove(program)
                    self._drop(program, self._guard)
        finally:  # Ctrl-C once more: no more patience
            for program in programs:
                self._drop(program, self._guard)
            self._guard.sweep()

    @staticmethod
    def _drop(program: Program, guard: Guard) -> None:
        program.finish(guard)
        _remove(program.directory)


class _Workspace:
    """Where the directories of the evaluations are, and which of them stay."""

    def __init__(self, directory: str | None, max_kept: int) -> None:
        self._given = directory
        self._max_kept = max_kept
        self._root: str | None = None
        self._kept: deque[Path] = deque()

    def new(self, prefix: str) -> Path:
        if self._given is not None:
            self._root = self._given
            os.makedirs(self._given, mode=0o700, exist_ok=True)
        elif self._root is None or not os.path.isdir(self._root):
            self._root = tempfile.mkdtemp(prefix="fmnes-")
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self._root))

    def keep(self, directory: Path) -> None:
        self._kept.append(directory)
        while len(self._kept) > self._max_kept:
            _remove(self._kept.popleft())

    def close(self) -> None:
        if self._given is None and self._root is not None:
            with suppress(OSError):  # something is kept in it
                os.rmdir(self._root)


@functools.cache
def _workspace(directory: str | None, max_kept: int, process: int) -> _Workspace:
    """One for all the calls of a process, so that calls by hand keep no more than `max_kept` either."""
    return _Workspace(directory, max_kept)


def _remove(directory: Path) -> None:
    for _ in range(3):  # what was killed a moment ago may still write a file into it
        shutil.rmtree(directory, ignore_errors=True)  # follows no links, not even at the root
        if not os.path.isdir(directory):
            return
        time.sleep(0.005)
