"""A worker's hold on a task: claimed by a rename, kept by signs of life, given back or answered."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

from fmnes.evaluation.queue import place
from fmnes.evaluation.queue.names import Name, read_task

_WORDS = b"a worker of fmnes; it is gone as soon as the worker is\n"


class Claims:
    """One worker's. At most one task at a time; a thread of its own gives the signs of life."""

    def __init__(
        self, directory: Path, worker: str, seconds: float, withdrawn: Callable[[Name], None]
    ) -> None:
        """seconds: between two signs. withdrawn: called by the thread if a claim is gone from the queue."""
        self._open, self._claimed, self._workers = (
            directory / name for name in (place.OPEN, place.CLAIMED, place.WORKERS)
        )
        self.worker = worker
        self.seconds = seconds
        self._withdrawn = withdrawn
        self._waiting: list[Name] = []
        """Tasks that were open when we last looked."""
        self._lock = threading.Lock()
        self._held: Name | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Register, and give signs of life from now on; a second call changes nothing."""
        if self._thread is not None:
            return
        place.write(self._workers, self.worker, _WORDS)
        self._thread = threading.Thread(target=self._beat, name="fmnes signs of life", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        place.remove(self._workers / self.worker)

    def claim(self) -> Name | None:
        """A task that nobody else has now; None if there is none.

        One listing serves for many claims, in an order of our own: so workers seldom want the same.
        """
        for fresh in (False, True):
            if fresh:
                self._waiting = [name for text in os.listdir(self._open) if (name := read_task(text))]
                random.shuffle(self._waiting)
            while self._waiting:
                name = self._waiting.pop()
                claimed = name._replace(worker=self.worker)
                if self._rename(self._open / str(name), self._claimed / str(claimed)):
                    place.beat(self._claimed, str(claimed))  # it may have waited long
                    with self._lock:
                        self._held = claimed
                    return claimed
        return None

    def path(self, name: Name) -> Path:
        return self._claimed / str(name)

    def let_go(self) -> Name | None:
        """It needs no more signs of life. The claim is still there, under this name."""
        with self._lock:
            held, self._held = self._held, None
        return held

    def give_back(self) -> None:
        """Others may take it, at once."""
        held = self.let_go()
        if held is not None:
            self._rename(self.path(held), self._open / str(held._replace(worker="")))

    def drop(self, name: Name) -> None:
        place.remove(self.path(name))

    def _rename(self, source: Path, target: Path) -> bool:
        try:
            os.rename(source, target)
        except FileNotFoundError:
            # A network file system may say so of a rename that it has made, if it had to ask twice.
            return os.path.lexists(target)
        return True

    def _beat(self) -> None:
        while not self._over.wait(self.seconds):
            with contextlib.suppress(OSError):  # a disk that fails for a moment
                if not place.beat(self._workers, self.worker):  # taken for dead: we were suspended
                    place.write(self._workers, self.worker, _WORDS)
                with self._lock:
                    if self._held is None or place.beat(self._claimed, str(self._held)):
                        continue
                    # Handed out anew meanwhile? If nobody has it yet, we go on with it.
                    again = self._held._replace(handout=self._held.handout + 1)
                    if self._rename(self._open / str(again._replace(worker="")), self._claimed / str(again)):
                        self._held = again
                    else:
                        lost, self._held = self._held, None
                        self._withdrawn(lost)
