"""What ends a run from outside: Ctrl-C, SIGTERM, and a wish in its directory. To the loop they are one thing.

Each is a KeyboardInterrupt in the thread of the loop. A wish comes as a real signal, so that it ends whatever
is waited for: a program that runs for an hour, a worker, an executor, a sleep of the objective. Where no
signal may be sent (the loop is not in the main thread, or others handle SIGTERM and SIGINT), the loop itself
looks between two evaluations.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from fmnes._logging import logger
from fmnes.storage.stop_request import has_stop_request, remove_stop_request

#: How often it is looked for a wish: it is to be seen within a second.
LOOK_SECONDS = 0.5


class StopRequestWatcher:
    """Watches the run directory for a wish to stop, in a thread of its own, while the loop runs."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._loop: int | None = None
        """The thread of the loop; None where no signal reaches it."""
        self._sending = threading.Lock()
        """Held where a signal is sent: no longer than the loop is there to take it."""
        self._over = threading.Event()
        self._wanted = False

    def __enter__(self) -> StopRequestWatcher:
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_kill"):
            self._loop = threading.get_ident()
        threading.Thread(target=self._watch, name="fmnes wishes", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with self._sending:
                self._over.set()
        finally:  # Ctrl-C just here
            self._over.set()

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal could not."""
        if self._wanted:
            raise KeyboardInterrupt

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if has_stop_request(self._run) and (asked_by := remove_stop_request(self._run)):
                break
        else:
            return
        logger.info("asked to stop by %s", asked_by)
        # Not both at a time: a second interrupt means no more patience. But the objective may swallow one.
        if not self._send() or not self._over.wait(LOOK_SECONDS):
            self._wanted = True

    def _send(self) -> bool:
        """A signal to the loop, if there is one that we know to be a KeyboardInterrupt there."""
        with self._sending:
            if self._loop is None or self._over.is_set():
                return False
            # SIGTERM first: what a shell starts with "&" ignores SIGINT.
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
    """Batch systems end a job with SIGTERM: taken like Ctrl-C, so that the run ends with what it has.

    Only where it is kept, so that it can be resumed: a script must not swallow a signal that is meant for it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    # `ray.init` sets a handler that ends the script; any other one is somebody's who cares for it.
    rays = str(getattr(before, "__module__", "")).partition(".")[0] == "ray"
    if before is not signal.SIG_DFL and not rays:
        yield
        return
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
