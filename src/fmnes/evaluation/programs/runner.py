"""Evaluation by external programs: runs several at a time and derives the outcomes."""

from __future__ import annotations

import errno
import itertools
import math
import os
import selectors
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fmnes.arguments import check_number
from fmnes.errors import ArgumentError
from fmnes.evaluation.evaluator import Outcomes, Task, TaskSource, evaluate_all
from fmnes.evaluation.programs.answer import (
    Searches,
    Text,
    find_answer,
    find_output,
    find_value,
    printable,
    read_tail,
)
from fmnes.evaluation.programs.command import Command, check_bytes, check_runnable, variables
from fmnes.evaluation.programs.guard import TOKEN, Guard
from fmnes.evaluation.programs.inputs import Inputs, files_of, point_of, read_inputs, target_of
from fmnes.evaluation.programs.matching import Match, Matcher, Search, can_match, last_match
from fmnes.evaluation.programs.process import PARAMS, STDIN, TAIL, ExitReport, ProgramProcess
from fmnes.evaluation.programs.workspace import KEPT_LINE, Workspace, by_hand
from fmnes.evaluation.supervision import TICK, AwakeClock, need_supervision, outcome_of_death, wait_for
from fmnes.outcome import DETAIL_LIMIT, Outcome, from_number, infeasible, lost, read_outputs
from fmnes.result import Vector

# -- The outcome of a program that has ended


#: Characters of the end of an output or a file that are shown if no value was found.
_END = 600


def outcome_of(command: Command, inputs: Inputs, ending: ExitReport, directory: Path) -> Searches[Outcome]:
    """Derive the outcome; yields the searches that this needs."""
    detail = printable((ending.stderr.strip() or ending.stdout.strip())[-DETAIL_LIMIT:], "\n\t")
    code = ending.code
    if ending.timed_out:
        return infeasible(f"timed out after {command.timeout:g} s", fault="timeout", detail=detail)
    if code in command.lost_exit_codes:
        return lost(f"exited with code {code}", detail=detail)
    death = None if code in command.success_exit_codes else outcome_of_death(code)
    if death is not None and code is None:
        death = replace(death, reason="its exit code was taken by another part of this process")
    if death is not None and death.status == "lost":
        return replace(death, detail=detail)
    if ending.said is not None:
        return infeasible(printable(" ".join(ending.said.split()))[:300], detail=both_ends(ending))
    if death is not None and (code is None or code < 0):
        return replace(death, detail=detail)
    if command.value is None:
        answer, problem = find_answer(ending, directory, inputs.name_results)
    elif death is None and _is_old(command.value, inputs, directory):
        answer, problem = None, f"did not write {command.value['file']!r}: it is still the one copied"
    elif death is None:
        answer, problem = yield from find_value(command.value, ending, directory)
    else:
        answer, problem = None, ""
    # A program may report FAIL and exit with an error: its own report has priority.
    if isinstance(answer, Outcome):
        return replace(answer, detail=detail)
    if death is not None:
        return infeasible(death.reason, fault=death.fault, detail=detail + _hint(command))
    if answer is None:
        detail = both_ends(ending) + _end_of_file(command, directory) + _hint(command)
        return infeasible(problem, fault="garbled output", detail=detail)
    outcome = from_number(answer)
    if outcome.status != "value":
        return replace(outcome, detail=detail)
    if not command.outputs:
        return outcome
    outputs: dict[str, float | str | None] = {}
    for name, source in command.outputs.items():
        is_old = _is_old(source, inputs, directory)
        outputs[name] = None if is_old else (yield from find_output(source, ending, directory))
    try:
        return replace(outcome, outputs=read_outputs(outputs))
    except TypeError as error:
        return infeasible(f"the program left {error}", fault="garbled output", detail=both_ends(ending))


def _is_old(source: Mapping[str, str], inputs: Inputs, directory: Path) -> bool:
    return "file" in source and inputs.is_old(source["file"], directory)


def both_ends(ending: ExitReport) -> str:
    """Return the ends of both outputs: stderr alone may be about something else."""
    ends = [ending.stdout.strip(), ending.stderr.strip()]
    return "\n".join(printable(end[-_END:], "\n\t") for end in ends if end)


def _end_of_file(command: Command, directory: Path) -> str:
    """Return the end of the file that should contain the value."""
    name = (command.value or {}).get("file")
    read = None if name is None else read_tail(directory, name, TAIL)
    end = printable(read.text.strip()[-_END:], "\n\t") if isinstance(read, Text) else ""
    return f"\n{name} ends with:\n{end}" if end else ""


def _hint(command: Command) -> str:
    """Return a hint for a common mistake: a relative path, although the program runs elsewhere."""
    placed = {target_of(argument, path) for argument, path in files_of(command)}
    for element in command.argv[1:]:
        path = os.path.join(str(command.here), element)
        if element not in placed and not os.path.isabs(element) and os.path.isfile(path):
            return (
                f"\n{element!r} is a file in {command.here}, not where it ran; write '{{here}}/{element}', "
                f"or copy=[{element!r}]"
            )
    return ""


# -- Searching the outputs of a program that has ended


#: Least and most seconds for one search; the least also after a program that used all of its timeout.
LEAST_SECONDS, MOST_SECONDS = 1.0, 60.0
#: Seconds in which the search process must start and read the text; not part of the timeout.
_START_SECONDS = 300.0


@dataclass
class Searching:
    """An evaluation whose program has ended and whose outputs are searched; times are on the clock."""

    directory: Path
    verdict: Searches[Outcome]
    began: float
    """When its program began, by time.monotonic()."""
    stops_at: float
    """When its timeout expires."""
    timeout: float | None
    detail: str
    """The program's outputs, for the outcome of a search that does not end."""
    search: Search = field(init=False)
    matcher: Matcher | None = None
    """The search process; None while it waits for one."""
    outcome: Outcome | None = None
    """Set if the search failed."""
    _expires: float = math.inf
    _began_search: bool = False
    _stopped: bool = False

    def begin(self, now: float) -> None:
        """Send the search to the matcher."""
        assert self.matcher is not None
        self._expires, self._began_search = now + _START_SECONDS, False
        self.matcher.begin(self.search)

    def has_ended(self) -> bool:
        matcher = self.matcher
        over = self._stopped or self.outcome is not None
        return over or (matcher is not None and (matcher.ended or matcher.answered()))

    def due(self, now: float) -> float:
        """Return the latest time for the next check."""
        return now if self.has_ended() else min(self._expires, now + TICK)

    def enforce(self, now: float) -> None:
        """End a search that takes too long; its time begins with the search itself."""
        if self.matcher is None:
            return
        if self.matcher.began and not self._began_search:
            self._began_search = True
            self._expires = min(max(self.stops_at, now + LEAST_SECONDS), now + MOST_SECONDS)
        if now >= self._expires:
            self.outcome = self._timed_out()

    def stop(self, now: float) -> None:
        self._stopped = True

    def answer(self) -> Match | str | Outcome | None:
        """Return the result of the search, or the outcome of a search that failed."""
        assert self.matcher is not None
        if self.outcome is None and not self.matcher.answered():
            death = outcome_of_death(self.matcher.close())
            words = f"the search for {self.search.words} ended: {death.reason}"
            if death.status == "lost" or not self.matcher.began:
                self.outcome = lost(words)
            else:
                self.outcome = infeasible(words, fault=death.fault, detail=self.detail)
        return self.matcher.answer() if self.outcome is None else self.outcome

    def _timed_out(self) -> Outcome:
        if not self._began_search:
            return lost("the process that searches the output did not start")
        at_most = self.timeout is None or self.timeout > MOST_SECONDS
        limit = f"within {MOST_SECONDS:g} s" if at_most else f"before the timeout of {self.timeout:g} s"
        return infeasible(
            f"the search for {self.search.words} did not end {limit}", fault="timeout", detail=self.detail
        )


# -- The evaluator


#: Errors of exec that mean that the program is invalid.
_WRONG_PROGRAM = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ELOOP, errno.ENOEXEC, errno.E2BIG)
#: Errors that mean that the machine cannot run more programs at a time.
_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
#: File descriptors needed to start a program, and those reserved for the rest of this process.
_DESCRIPTORS = 10 + 16


class CommandEvaluator:
    """Runs `workers` programs at a time, in one loop without threads.

    Directories of failed evaluations are kept in the folder `kept_in`, created when needed, unless the
    command has a `directory`. `named` converts a point to {name: value}; by default with the command's names.
    Once `is_wanted`, called at every tick, returns False, the batch ends early.
    """

    def __init__(
        self,
        command: Command,
        workers: int = 1,
        kept_in: str | None = None,
        *,
        named: Callable[[Vector], dict[str, Any]] | None = None,
        workspace: Workspace | None = None,
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        need_supervision("Command")
        check_runnable(command)
        self._is_wanted = is_wanted
        self._command = command
        self._inputs = read_inputs(command)
        sources = [command.value or {}, *(command.outputs or {}).values()]
        self._whole = any("regex" in source and "file" not in source for source in sources)
        self._searches = any("regex" in source for source in sources)
        self._matchers: list[Matcher] = []
        self._memory_limit = check_bytes("memory_limit", command.memory_limit)
        self._named = named or (lambda x: point_of(command.names, x))
        self._has_names = named is not None or command.names is not None
        self._workers = check_number("workers", workers, above=0, whole=True) or 1
        self._selector = selectors.DefaultSelector()
        self._clock = AwakeClock()
        self._guard: Guard | None = None
        directory = None if command.directory is None else str(command.directory)
        self._workspace = workspace or Workspace(directory, command.max_kept, kept_in)

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        end = math.inf if deadline is None else deadline
        waiting: Task | None = None
        running: dict[int, ProgramProcess | Searching] = {}
        started_tasks: dict[int, Task] = {}
        numbers = itertools.count()
        most = self._workers
        try:
            while True:
                while len(running) < most and (task := waiting or tasks.take()) is not None:
                    waiting = task
                    if time.monotonic() >= end:
                        return
                    started = self._start(task, alone=not running)
                    if started is None:  # the machine cannot run more until one has ended
                        most = len(running)
                        break
                    waiting = None
                    if isinstance(started, Outcome):
                        yield task, started
                    else:
                        running[number := next(numbers)] = started
                        started_tasks[number] = task
                if not running:
                    return
                self._find_matchers(running.values())
                self._step(running.values(), end)
                # Yielded before the next one starts, so that at most `workers` are lost with this process.
                for number in [n for n, one in running.items() if one.has_ended()]:
                    reached = self._go_on(started_tasks[number], running.pop(number))
                    if isinstance(reached, Searching):
                        running[number] = reached
                    else:
                        yield started_tasks.pop(number), reached
                        most = self._workers
                if running and (
                    time.monotonic() >= end or not (self._is_wanted is None or self._is_wanted())
                ):
                    return
        finally:
            self._abandon(list(running.values()))

    def close(self) -> None:
        for matcher in list(self._matchers):
            self._close_matcher(matcher)
        if self._guard is not None:
            self._guard.close()
        self._selector.close()
        self._workspace.close()

    def _start(self, task: Task, alone: bool) -> ProgramProcess | Outcome | None:
        """Start a program; returns an outcome if that fails, or None if it must wait for the others."""
        if not alone and _descriptors_are_short():
            return None
        command, inputs = self._command, self._inputs
        directory = program = None
        try:
            self._guard = self._guard or Guard()
            directory = self._workspace.new(task.id)
            argv = inputs.write(task, self._named(task.x), self._has_names, directory)
            program = ProgramProcess(
                argv,
                directory,
                variables(os.environ, {**(command.environment or {}), TOKEN: self._guard.token}),
                command.timeout,
                self._selector,
                self._clock,
                stdin=PARAMS if inputs.stdin is None else STDIN,
                texts=command.fail_if,
                memory_limit=self._memory_limit,
            )
            self._guard.watch(program.pid)
            if self._searches and not self._matchers and can_match():
                with suppress(OSError):  # ready before the program ends
                    self._start_matcher()
            return program
        except OSError as error:
            if error.filename == inputs.program and error.errno in _WRONG_PROGRAM:
                check_runnable(command)
                hint = "; a script starts with #!" if error.errno == errno.ENOEXEC else ""
                raise ArgumentError(
                    f"argv: found {inputs.program!r}, which does not start: {error.strerror}{hint}"
                ) from None
            if not alone and error.errno in _SHORTAGE:
                return None
            return lost(f"could not start the program: {error.strerror}")
        finally:
            if directory is not None and program is None:
                self._workspace.remove(directory)

    def _step(self, programs: Collection[ProgramProcess | Searching], end: float) -> None:
        """Wait for the next event or time limit, and enforce the limits."""
        now = self._clock.now()
        tick = math.inf if self._is_wanted is None else TICK
        wait = min(end - time.monotonic(), *(program.due(now) - now for program in programs), tick)
        for key, _ in self._selector.select(wait_for(wait)):
            key.data()
        now = self._clock.now()
        for program in programs:
            if not program.has_ended():
                program.enforce(now)

    def _go_on(self, task: Task, one: ProgramProcess | Searching) -> Outcome | Searching:
        """Return the outcome, or the next search that it needs."""
        assert self._guard is not None
        command = self._command
        found: Match | str | Outcome | None = None
        if isinstance(one, ProgramProcess):
            stops_at = one.stops_at
            ending = one.finish(self._guard, whole=self._whole)
            verdict = outcome_of(command, self._inputs, ending, one.directory)
            detail = both_ends(ending)
            one = Searching(one.directory, verdict, one.began, stops_at, command.timeout, detail)
        else:
            found = one.outcome if one.matcher is None else one.answer()
        matcher = one.matcher
        if matcher is not None and matcher.busy:  # it did not answer and cannot be reused
            self._close_matcher(matcher)
        one.matcher = None
        if isinstance(found, Outcome):
            return self._keep(task, one, found)
        try:
            one.search = one.verdict.send(found)
            while not can_match():
                one.search = one.verdict.send(last_match(one.search.regex, one.search.text))
        except StopIteration as end:
            return self._keep(task, one, end.value)
        return one

    def _find_matchers(self, running: Collection[ProgramProcess | Searching]) -> None:
        """Assign a free or new search process to each search that has none."""
        for one in running:
            if not isinstance(one, Searching) or one.matcher is not None or one.outcome is not None:
                continue
            for matcher in [matcher for matcher in self._matchers if matcher.ended]:
                self._close_matcher(matcher)
            free = [matcher for matcher in self._matchers if not matcher.busy]
            try:
                one.matcher = free[0] if free else self._start_matcher()
            except OSError as error:
                if not self._matchers:  # otherwise wait for one of them
                    one.outcome = lost(f"could not start the process that searches: {error.strerror}")
                continue
            one.begin(self._clock.now())

    def _start_matcher(self) -> Matcher:
        assert self._guard is not None
        matcher = Matcher(self._selector)
        self._matchers.append(matcher)
        self._guard.watch(matcher.pid)
        return matcher

    def _close_matcher(self, matcher: Matcher) -> None:
        self._matchers.remove(matcher)
        if self._guard is not None:
            self._guard.forget(matcher.pid)
        matcher.close()

    def _keep(self, task: Task, one: Searching, outcome: Outcome) -> Outcome:
        """Keep or remove the directory; returns the outcome with its seconds and directory."""
        command = self._command
        outcome = replace(outcome, seconds=time.monotonic() - one.began)
        keep = command.keep
        if keep == "none" or (keep == "failed" and outcome.status == "value"):
            self._workspace.remove(one.directory)
            return outcome
        # Each try of a lost point has a reason of its own: the last one may become a failure.
        reason = f"{outcome.reason}, try {task.id.attempt}" if outcome.status == "lost" else outcome.reason
        kept = self._workspace.keep(one.directory, task.id, reason)
        if kept is None:
            return outcome
        return replace(outcome, detail=f"{outcome.detail}\n{KEPT_LINE}{kept}"[-DETAIL_LIMIT:].lstrip())

    def _abandon(self, programs: list[ProgramProcess | Searching]) -> None:
        """Stop these programs, and everything that the batch left running."""
        if self._guard is None:
            return
        try:
            now = self._clock.now()
            for program in programs:
                program.stop(now)
            while programs:
                self._step(programs, math.inf)
                for program in [program for program in programs if program.has_ended()]:
                    programs.remove(program)
                    self._drop(program, self._guard)
        finally:  # after a second Ctrl-C: kill at once
            for program in programs:
                self._drop(program, self._guard)
            self._guard.sweep()

    def _drop(self, program: ProgramProcess | Searching, guard: Guard) -> None:
        if isinstance(program, ProgramProcess):
            program.finish(guard)
        elif program.matcher is not None and program.matcher.busy:
            self._close_matcher(program.matcher)
        self._workspace.remove(program.directory)


def _descriptors_are_short() -> bool:
    """Whether another program would use descriptors reserved for the log, snapshots and the user's files."""
    import resource  # not on Windows

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        pipe = os.pipe()  # gets the lowest free numbers
    except OSError:
        return True
    for descriptor in pipe:
        os.close(descriptor)
    return limit != resource.RLIM_INFINITY and min(pipe) + _DESCRIPTORS > limit


def run_once(
    command: Command, task: Task, deadline: float | None = None, named: Mapping[str, Any] | None = None
) -> Outcome:
    """Make one evaluation; `named` is the point by name, if it has names."""
    directory = None if command.directory is None else str(command.directory)
    workspace = by_hand(directory, command.max_kept, os.getpid())
    give = None if named is None else lambda x: dict(named)
    evaluator = CommandEvaluator(command, named=give, workspace=workspace)
    try:
        for _, outcome in evaluate_all(evaluator, [task], deadline):
            return outcome
        return lost("stopped at the deadline")
    finally:
        evaluator.close()
