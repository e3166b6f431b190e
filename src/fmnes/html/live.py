"""The page of a run as it changes: what is told is read anew each second or so, the pictures less often.

Whoever watches must not be in the way of the run: nothing is done unless a browser asks, and whatever takes
long is done seldom.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fmnes.errors import FmnesError
from fmnes.html import content, document, markup
from fmnes.html.document import ORDER
from fmnes.reading.run import Run, read_run
from fmnes.storage.directory import CONFIG

#: Seconds between two looks at a run under way, and between two pictures of it, at least.
TEXT_SECONDS, PICTURE_SECONDS = 0.5, 0.5
#: Either takes at most this share of a processor where one is idle, and this one of all of them where the run
#: needs them. A low priority alone is not enough: not every system heeds it.
SHARE, SHARE_IF_BUSY = 0.1, 0.004
#: Work that gets less than this share of a processor while it lasts has to wait for others.
UNDISTURBED = 0.9
COURSE = "course"


class Pace:
    """When something may be done again."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = -1.0

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._due

    @contextmanager
    def paid(self) -> Iterator[None]:
        """What is done in here, by this thread, has its price."""
        began, used = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            now = time.monotonic()
            used = time.thread_time() - used
            share = SHARE if used >= UNDISTURBED * (now - began) else SHARE_IF_BUSY * (os.cpu_count() or 1)
            self._due = now + max(self._seconds, used / share)


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
        self._drawn: dict[str, object] = dict.fromkeys(document.PICTURES)
        """What each picture shows, the next one first: it is not drawn again of the same."""
        self._drawing = False
        self._text_pace, self._picture_pace = Pace(TEXT_SECONDS), Pace(PICTURE_SECONDS)

    def now(self) -> dict[str, str]:
        """The whole page."""
        self.news(0)
        with self._lock:
            return {name: part for name, (_, part) in self._parts.items()}

    def news(self, revision: int) -> News:
        """What is new since then. Pictures are drawn in the background, and are news when they are done."""
        with self._lock:
            if self._text_pace.due:
                with self._text_pace.paid():
                    self._look()
            changed = {name: part for name, (at, part) in self._parts.items() if at > revision}
            return News(self._revision, changed, self._running)

    def _look(self) -> None:
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

    def _worth_drawing(self, run: Run) -> list[str]:
        """One at a time of a run under way, whose processors are not ours; else all that are out of date."""
        older = [name for name, shown in self._drawn.items() if shown != _shown(run)]
        if not run.running:
            return older
        return older[:1] if self._picture_pace.due else []

    def _draw(self, run: Run, names: list[str]) -> None:
        try:
            for name in names:
                with self._picture_pace.paid():
                    part = _part(name, run)
                with self._lock:
                    self._publish({name: part})
                    self._drawn = _then(name, self._drawn, _shown(run))
        finally:
            self._drawing = False

    def _publish(self, parts: dict[str, str]) -> None:
        for name, part in parts.items():
            if self._parts[name][1] != part:
                self._revision += 1
                self._parts[name] = (self._revision, part)


def _then(name: str, drawn: dict[str, object], shown: object) -> dict[str, object]:
    """With this one last; the course, which people look at most, comes again after each of the others."""
    others = {other: what for other, what in drawn.items() if other != name}
    if name != COURSE:
        others = {COURSE: others.pop(COURSE), **others}
    return {**others, name: shown}


def _shown(run: Run) -> object:
    return run.summary.statuses, run.state, len(run.history["evaluations"]) if run.history else 0


def _part(name: str, run: Run) -> str:
    try:
        return document.drawn(name, run)
    except FmnesError as error:  # a row that is damaged, a run that was moved
        return f"<p>{markup.text(error)}</p>"


def _waiting(path: Path) -> dict[str, str]:
    where = markup.code(path)
    return {
        "head": f"<h1>{markup.text(path.name)}</h1>\n<p>There is no run yet in {where}; waiting for it.</p>"
    }
