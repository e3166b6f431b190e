"""The page of a run as it changes: what is told is read anew each second or so, the pictures less often.

Whoever watches must not be in the way of the run: nothing is done unless a browser asks, and whatever takes
long is done seldom.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from fmnes.cli.page import content, markup, pictures
from fmnes.cli.page.document import ORDER
from fmnes.errors import FmnesError
from fmnes.run.reading import Run, read_run
from fmnes.storage.directory import CONFIG

#: Seconds between two looks at the run, and between two sets of pictures, at least.
TEXT_SECONDS, PICTURE_SECONDS = 0.5, 2.0
#: Of all time, at most this share is spent on either.
SHARE = 0.1


class Pace:
    """When something may be done again."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = -1.0

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._due

    def took(self, seconds: float) -> None:
        self._due = time.monotonic() + max(self._seconds, seconds / SHARE)


class News(NamedTuple):
    """What has changed since a revision."""

    revision: int
    parts: dict[str, str]
    running: bool


class Live:
    """The page of the run at `path`, which may not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._parts: dict[str, tuple[int, str]] = dict.fromkeys(ORDER, (0, ""))
        """Each with the revision in which it changed last."""
        self._revision = 0
        self._running = False
        self._drawn: dict[str, object] = {}
        """What each picture shows: it is not drawn again of the same."""
        self._drawing = False
        self._pace = Pace(TEXT_SECONDS)
        self._paces = {name: Pace(PICTURE_SECONDS) for name in pictures.PICTURES}

    def now(self) -> dict[str, str]:
        """The whole page."""
        self.news(0)
        with self._lock:
            return {name: part for name, (_, part) in self._parts.items()}

    def news(self, revision: int) -> News:
        """What is new since then. Pictures are drawn in the background, and are news when they are done."""
        with self._lock:
            if self._pace.due:
                self._look()
            changed = {name: part for name, (at, part) in self._parts.items() if at > revision}
            return News(self._revision, changed, self._running)

    def _look(self) -> None:
        began = time.monotonic()
        try:
            run = None if not os.path.lexists(self.path / CONFIG) else read_run(self.path)
            told = _waiting(self.path) if run is None else content.parts(run, self.path)
        except FmnesError as error:  # it may be gone, or half there
            run, told = None, {"head": f"<h1>{markup.text(self.path.name)}</h1>\n<p>{markup.text(error)}</p>"}
        self._running = run is not None and run.running
        self._publish(told)
        if run is not None and not self._drawing and (names := self._worth_drawing(run)):
            self._drawing = True
            threading.Thread(target=self._draw, args=(run, names), daemon=True).start()
        self._pace.took(time.monotonic() - began)

    def _worth_drawing(self, run: Run) -> list[str]:
        return [
            name for name, pace in self._paces.items() if pace.due and self._drawn.get(name) != _shown(run)
        ]

    def _draw(self, run: Run, names: list[str]) -> None:
        """Each at its own pace; the first one also reads the evaluations for the others."""
        try:
            for name in names:
                began = time.monotonic()
                part = _part(name, run)
                with self._lock:
                    self._publish({name: part})
                    self._drawn[name] = _shown(run)
                    self._paces[name].took(time.monotonic() - began)
        finally:
            self._drawing = False

    def _publish(self, parts: dict[str, str]) -> None:
        for name, part in parts.items():
            if self._parts[name][1] != part:
                self._revision += 1
                self._parts[name] = (self._revision, part)


def _shown(run: Run) -> object:
    return run.summary.statuses, run.state, len(run.history["evaluations"]) if run.history else 0


def _part(name: str, run: Run) -> str:
    try:
        return pictures.drawn(name, run)
    except FmnesError as error:  # a row that is damaged, a run that was moved
        return f"<p>{markup.text(error)}</p>"


def _waiting(path: Path) -> dict[str, str]:
    return {"head": f"<h1>{markup.text(path.name)}</h1>\n<p>There is no run yet; the page waits for it.</p>"}
