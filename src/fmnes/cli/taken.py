"""Where a run was to begin and there is one already: what is there, what differs, and what to do."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from fmnes.cli import reading
from fmnes.cli.changes import changes
from fmnes.cli.next_steps import Step, as_line, as_lines, where_a_run_is
from fmnes.cli.problem_file import ProblemFile
from fmnes.errors import RunError
from fmnes.run.settings import describe_objective
from fmnes.storage.aside import next_free
from fmnes.storage.directory import LOCK, PREVIOUS, SNAPSHOT
from fmnes.storage.lock import holder


def taken(run: Path, words: list[str], problem: ProblemFile) -> RunError:
    """words: the arguments of `fmnes minimize`, if it was not begun from a command line."""
    typed = sys.argv[2:] if sys.argv[1:2] == ["minimize"] else words
    resumable = (run / SNAPSHOT).exists() or (run / PREVIOUS).exists()
    user = holder(run / LOCK)
    found, steps = "a run", where_a_run_is(typed, run, next_free(run), _beside(run), resumable)
    if user:
        found, steps = f"a run in use by {user}", [Step("to look at it", as_line("show", run)), steps[-1]]
    try:
        differs = changed(reading.read_begun(run), problem)
    except RunError:  # of an older or another version
        differs = []
    if differs:
        found += f" of another problem ({'; '.join(differs)})"
    return RunError(f"{run}: found {found}, wanted a new or empty directory\n{as_lines(steps)}")


def changed(begun: reading.Begun, problem: ProblemFile) -> list[str]:
    """What the problem says otherwise than the run, as far as that is known."""
    now = {"objective": describe_objective(problem.command), "parameters": problem.space.as_json()}
    return changes(begun.as_kept, now)


def _beside(run: Path) -> Path:
    """A name that is free, such as problem-2.run."""
    numbered = (run.with_stem(f"{run.stem}-{n}") for n in itertools.count(2))
    return next(path for path in numbered if not os.path.lexists(path))
