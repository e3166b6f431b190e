"""The live page of a run: text is refreshed about every second, plots less often.

Watching must not slow down the run: work is done only when a browser asks, and expensive work rarely.
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

#: Minimum seconds between two refreshes of the text, and of the plots, of an active run.
TEXT_SECONDS, PICTURE_SECONDS = 0.5, 0.5
#: CPU share of either: of one idle core, and of all cores if the run needs them. A low priority is not
#: enough: some systems ignore it.
SHARE, SHARE_IF_BUSY = 0.1, 0.004
#: Work that gets a smaller share of a core than this competes with other processes.
UNDISTURBED = 0.9
COURSE = "course"


class Pace:
    """Rate limit: when a piece of work may be repeated."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = -1.0

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._due

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the CPU time of the block and set when it is due again."""
        began, used = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            now = time.monotonic()
            used = time.thread_time() - used
            share = SHARE if used >= UNDISTURBED * (now - began) else SHARE_IF_BUSY * (os.cpu_count() or 1)
            self._due = now + max(self._seconds, used / share)


class News(NamedTuple):
    """The changes since a revision."""

    revision: int
    parts: dict[str, str]
    running: bool


class Live:
    """The page of the run at `path`, which may not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._parts: dict[str, tuple[int, str]] = dict.fromkeys(ORDER, (0, ""))
        """Each part with the revision of its last change."""
        self._revision = 0
        self._running = False
        self._drawn: dict[str, object] = dict.fromkeys(document.DRAWN)
        """The data that each plot shows, the next one to draw first; unchanged plots are not redrawn."""
        self._drawing = False
        self._text_pace, self._picture_pace = Pace(TEXT_SECONDS), Pace(PICTURE_SECONDS)

    def now(self) -> dict[str, str]:
        """The whole page."""
        self.news(0)
        with self._lock:
            return {name: part for name, (_, part) in self._parts.items()}

    def news(self, revision: int) -> News:
        """The changes since `revision`; plots are drawn in the background and appear when they are done."""
        with self._lock:
            if self._text_pace.due:
                with self._text_pace.measured():
                    self._refresh()
            changed = {name: part for name, (at, part) in self._parts.items() if at > revision}
            return News(self._revision, changed, self._running)

    def _refresh(self) -> None:
        try:
            run = None if not os.path.lexists(self.path / CONFIG) else read_run(self.path)
            parts = _waiting(self.path) if run is None else content.parts(run, self.path)
        except FmnesError as error:  # deleted, or incomplete
            run, parts = (
                None,
                {"head": f"<h1>{markup.text(self.path.name)}</h1>\n<p>{markup.text(error)}</p>"},
            )
        self._running = run is not None and run.running
        self._publish(parts)
        if run is not None and not self._drawing and (names := self._worth_drawing(run)):
            self._drawing = True
            threading.Thread(target=self._draw, args=(run, names), daemon=True).start()

    def _worth_drawing(self, run: Run) -> list[str]:
        """The outdated plots; of an active run one at a time, as it needs the cores."""
        older = [name for name, shown in self._drawn.items() if shown != _shown(run)]
        if not run.running:
            return older
        return older[:1] if self._picture_pace.due else []

    def _draw(self, run: Run, names: list[str]) -> None:
        try:
            for name in names:
                with self._picture_pace.measured():
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
    """The order after drawing `name`: it goes last, and the convergence plot comes after each other plot."""
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
