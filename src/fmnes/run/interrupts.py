"""Interrupts: Ctrl-C, SIGTERM, and stop requests in the run directory.

Each becomes a KeyboardInterrupt in the thread of the loop. A stop request is sent as a real signal, so it
also ends a wait for a program, a worker or an executor. If no signal can be sent (the loop is not in the main
thread, or the application handles SIGTERM and SIGINT), the loop checks between two evaluations.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from fmnes.errors import logger
from fmnes.storage.lock import has_stop_request, remove_stop_request

#: Polling interval for stop requests, which should be noticed within a second.
LOOK_SECONDS = 0.5


class StopRequestWatcher:
    """Watches the run directory for stop requests, in a thread, while the loop runs."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._loop: int | None = None
        """The thread of the loop; None if no signal reaches it."""
        self._sending = threading.Lock()
        """Held while a signal is sent, so that the loop has not ended by then."""
        self._over = threading.Event()
        self._wanted = False

    def __enter__(self) -> StopRequestWatcher:
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_kill"):
            self._loop = threading.get_ident()
        threading.Thread(target=self._watch, name="fmnes stop requests", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with self._sending:
                self._over.set()
        finally:  # Ctrl-C just here
            self._over.set()

    def check(self) -> None:
        """Raises KeyboardInterrupt if no signal could be sent."""
        if self._wanted:
            raise KeyboardInterrupt

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if has_stop_request(self._run) and (asked_by := remove_stop_request(self._run)):
                break
        else:
            return
        logger.info("asked to stop by %s", asked_by)
        # Not both at once, as a second interrupt ends immediately; but the objective may swallow the signal.
        if not self._send() or not self._over.wait(LOOK_SECONDS):
            self._wanted = True

    def _send(self) -> bool:
        """Send the loop a signal that raises KeyboardInterrupt there; returns whether there is one."""
        with self._sending:
            if self._loop is None or self._over.is_set():
                return False
            # SIGTERM first: a process started with "&" ignores SIGINT.
            for number, handler in (
                (signal.SIGTERM, interrupt),
                (signal.SIGINT, signal.default_int_handler),
            ):
                if signal.getsignal(number) is handler:
                    signal.pthread_kill(self._loop, number)
                    return True
        return False


def interrupt(*_: object) -> None:
    """A signal handler."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Treat SIGTERM, with which batch systems end a job, like Ctrl-C.

    Only for runs with a directory, which can be resumed: other scripts must not swallow the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    # Replace the handler of `ray.init`, which ends the script, but not one that the user has set.
    rays = str(getattr(before, "__module__", "")).partition(".")[0] == "ray"
    if before is not signal.SIG_DFL and not rays:
        yield
        return
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
