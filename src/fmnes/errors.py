"""The exceptions of fmnes, warnings and the logger.

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

import contextlib
import difflib
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator


class FmnesError(Exception):
    """The base class of the exceptions of fmnes.

    Examples
    --------
    >>> import fmnes
    >>> try:
    ...     fmnes.minimize(len, [1.0], -1)
    ... except fmnes.FmnesError as error:
    ...     print(type(error).__name__)
    ArgumentError
    """


class ArgumentError(FmnesError, ValueError):
    """An argument is wrong. Nothing was evaluated and nothing has changed.

    Examples
    --------
    >>> import fmnes
    >>> issubclass(fmnes.ArgumentError, ValueError)
    True
    """


class UsageError(FmnesError, RuntimeError):
    """The call is valid but comes at the wrong time, such as `tell` before `ask`. Nothing has changed.

    Examples
    --------
    >>> import fmnes
    >>> try:
    ...     fmnes.Optimizer([1.0], 0.5).tell([1.0])
    ... except fmnes.UsageError as error:
    ...     print(str(error)[:4])
    tell
    """


class ObjectiveError(FmnesError):
    """The objective looks broken: to continue would only spend the budget.

    Examples
    --------
    >>> import fmnes
    >>> def broken(x):
    ...     raise TypeError("a bug")
    >>> try:
    ...     fmnes.minimize(broken, [1.0, 2.0], 0.5, rng=1)
    ... except fmnes.ObjectiveError:
    ...     print("stopped in the first generation")
    stopped in the first generation
    """


class SnapshotError(FmnesError):
    """A saved file cannot be used: damaged, of another program, or written by a newer version.

    Examples
    --------
    >>> import os
    >>> import fmnes
    >>> try:
    ...     fmnes.Optimizer.load(os.devnull)
    ... except fmnes.SnapshotError:
    ...     print("not a saved search")
    not a saved search
    """


class RunError(FmnesError):
    """A run directory cannot be used: in use, of another problem, or damaged.

    Examples
    --------
    >>> import tempfile
    >>> import fmnes
    >>> try:
    ...     fmnes.read_run(tempfile.mkdtemp())
    ... except fmnes.RunError:
    ...     print("no run")
    no run
    """


class StorageError(RunError):
    """The disk rejects what is written. What was written before is safe."""


class MissingExtra(FmnesError, ImportError):
    """An optional dependency is missing; the message names the extra that installs it.

    Parameters
    ----------
    what : str
        What needs it.
    extra : str
        The extra of the package `fmnes` that installs it.

    Examples
    --------
    >>> import fmnes
    >>> print(fmnes.MissingExtra("to_pandas", "data"))
    to_pandas needs an optional dependency: pip install "fmnes[data]"
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional dependency: pip install "fmnes[{extra}]"')


class Infeasible(Exception):
    """Raise this inside an objective if the point fails (the mesh failed, the solver diverged).

    Examples
    --------
    >>> import fmnes
    >>> def simulate(x):
    ...     if x[0] < 0:
    ...         raise fmnes.Infeasible("mesh failed")
    ...     return float(x @ x)
    >>> fmnes.minimize(simulate, [3.0, 2.0], 2.0, max_evaluations=100, rng=1).failures[0].reason
    'mesh failed'
    """


class Lost(Exception):
    """Raise this inside an objective if the machine fails: the point is evaluated again.

    Examples
    --------
    >>> import fmnes
    >>> licences = iter([False, True, True])
    >>> def simulate(x):
    ...     if not next(licences):
    ...         raise fmnes.Lost("no licence")
    ...     return float(x @ x)
    >>> fmnes.minimize(simulate, [3.0, 2.0], 0.5, max_evaluations=2, rng=1).n_infeasible
    0
    """


def nearest(found: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or nothing."""
    matches = difflib.get_close_matches(found.lower(), list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def not_among(argument: str, found: str, known: Iterable[str], wanted: str = "one of") -> ArgumentError:
    """The error for a name that is none of the known ones."""
    known = list(known)
    return ArgumentError(
        f"{argument}: found {found!r}, wanted {wanted} {', '.join(known)}{nearest(found, known)}"
    )


def warn(message: str) -> None:
    """A RuntimeWarning that points at the user's own line, however deep in our code it is given."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "fmnes":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


# -- The library logs through Python's `logging`; nothing is printed unless the user configures it.
#
#     logging.basicConfig(level=logging.INFO)
#
# shows the start and end of runs and searches, and lost evaluations; DEBUG also generations and failures.


logger = logging.getLogger("fmnes")
# Without a handler Python prints warnings and errors itself.
logger.addHandler(logging.NullHandler())
#: Situations in which a run waits for the user; the progress display shows them too.
waiting = logging.getLogger("fmnes.waiting")


def one_line(text: str) -> str:
    """Join the lines of a text: a log record is one line."""
    return " ".join(text.splitlines())


# -- Forwarding of the `waiting` logger to a progress display.


@contextlib.contextmanager
def telling(say: Callable[[str], None]) -> Iterator[None]:
    """Call `say` with each line logged to `waiting` inside the block."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    handler = Handler()
    waiting.addHandler(handler)
    try:
        yield
    finally:
        waiting.removeHandler(handler)
