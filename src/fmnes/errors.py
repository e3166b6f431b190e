"""Every exception of ours.

    FmnesError
    ├── ArgumentError      an argument is wrong (also a ValueError)
    ├── UsageError         the right call at the wrong time, such as tell before ask (also a RuntimeError)
    ├── ObjectiveError     the objective looks broken: a bug, not a bad point
    ├── SnapshotError      a saved file is damaged, foreign or from a newer version
    ├── RunError           a run directory cannot be used: in use, of another problem, or damaged
    │   └── StorageError   the disk does not take what was written
    └── MissingExtra       an optional dependency is not installed (also an ImportError)

    Infeasible, Lost       not errors: an objective raises them to say what became of one evaluation

Each message names what was found, what is wanted and, where we know it, what to do.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable


class FmnesError(Exception):
    """The root of our errors."""


class ArgumentError(FmnesError, ValueError):
    """An argument is wrong; nothing was evaluated and nothing has changed."""


class UsageError(FmnesError, RuntimeError):
    """The call is fine but comes at the wrong time; nothing has changed."""


class ObjectiveError(FmnesError):
    """The objective looks broken: going on would only spend the budget."""


class SnapshotError(FmnesError):
    """A saved file cannot be used: damaged, not ours, or written by a newer version."""


class RunError(FmnesError):
    """A run directory cannot be used: in use, of another problem, or damaged."""


class StorageError(RunError):
    """The disk does not take what was written; what was written before is safe."""


class MissingExtra(FmnesError, ImportError):
    """An optional dependency is missing; the message names the extra that brings it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional dependency: pip install "fmnes[{extra}]"')


class Infeasible(Exception):
    """Raise this inside an objective: *this point is bad* (the mesh failed, the solver diverged)."""


class Lost(Exception):
    """Raise this inside an objective: *the machine failed*; the point is unknown, try it again."""


def nearest(found: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or nothing."""
    matches = difflib.get_close_matches(found.lower(), list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def warn(message: str) -> None:
    """A RuntimeWarning that points at the user's own line, however deep in our code it is given."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "fmnes":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
