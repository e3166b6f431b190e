"""What a worker is told from outside: to end, or that nobody wants its evaluation any more.

SIGTERM is how a batch system ends a job, SIGINT is Ctrl-C. Whichever comes is an exception only where the
worker waits, inside of `unless_told`; everywhere else it is noted: no claim and no answer is left half made.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from fmnes.evaluation.queue.names import Name

T = TypeVar("T")

_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
#: From our own thread to our main one.
_WITHDRAWN = getattr(signal, "SIGUSR1", None)


class _Told(BaseException):
    """Never seen outside of this file."""


class Signals:
    """A context manager, for the main thread."""

    def __init__(self) -> None:
        self.ended = 0
        """The signal that ends us, if one has come."""
        self._waiting = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in _ENDINGS:
            self._handlers[number] = signal.signal(number, self._end)
        if _WITHDRAWN:
            self._handlers[_WITHDRAWN] = signal.signal(_WITHDRAWN, self._tell)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def name(self) -> str:
        return signal.Signals(self.ended).name

    def unless_told(self, act: Callable[[], T]) -> T | None:
        """What `act` returns; None if a signal has come first."""
        result: T | None = None
        try:
            try:
                self._waiting = True
                if not self.ended:
                    result = act()
            finally:
                self._waiting = False
        except _Told:
            pass
        return result

    def withdraw(self, name: Name) -> None:
        """From another thread: the evaluation under way is not wanted."""
        if _WITHDRAWN:
            signal.pthread_kill(threading.main_thread().ident or 0, _WITHDRAWN)

    def _end(self, number: int, _: object) -> None:
        self.ended = number
        self._tell()

    def _tell(self, *_: object) -> None:
        if self._waiting:
            self._waiting = False
            raise _Told
