"""Who is still there: by signs of life that change, never by what time it is elsewhere.

A worker touches its files every few seconds. Whoever watches notes when it last saw one change, on its own
clock: the clocks of two machines are never compared. While the watcher itself sleeps its clock stands still.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fmnes.evaluation.clock import AwakeClock
from fmnes.evaluation.queue.names import is_worker
from fmnes.evaluation.queue.place import WORKERS, pulse, remove


class Silences:
    """For how long each of some files has not changed."""

    def __init__(self, clock: AwakeClock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Any, float]] = {}

    def of(self, path: Path) -> float:
        """Seconds since it was first seen as it is; 0 for one that is gone."""
        found, now = pulse(path), self._clock.now()
        if found is None:
            return 0.0
        before, since = self._seen.get(path.name, (None, now))
        if found != before:
            since = now
        self._seen[path.name] = found, since
        return now - since

    def keep(self, names: Collection[str]) -> None:
        """Forget all others."""
        for name in [name for name in self._seen if name not in names]:
            del self._seen[name]


class Crew:
    """The workers that have registered in a queue's directory and give signs of life."""

    def __init__(self, place: Path, lease: float, clock: AwakeClock) -> None:
        self._folder = place / WORKERS
        self._lease = lease
        self._silences = Silences(clock)

    def count(self) -> int | None:
        """How many, as far as one knows; None where there is no queue yet. The dead are struck off."""
        try:
            names = [name for name in os.listdir(self._folder) if is_worker(name)]
        except OSError:
            return None
        alive = 0
        for name in names:
            if self._silences.of(self._folder / name) < self._lease:
                alive += 1
            else:  # who was only suspended registers anew
                remove(self._folder / name)
        self._silences.keep(names)
        return alive
