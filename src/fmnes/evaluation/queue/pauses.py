"""How long to wait before one looks again: an eighth of the time that it takes until something happens.

So a look costs little beside what is waited for, whether that takes a millisecond or an hour.
"""

from __future__ import annotations

import time

LEAST, MOST = 0.001, 0.4
_SHARE = 8.0
#: What came after more than this was a straggler, and says nothing about the next.
_LONG = 1.0


class Pauses:
    def __init__(self) -> None:
        self._last = time.monotonic()
        self._usual = 0.0
        """Seconds from one event to the next, lately."""

    def happened(self, events: int = 1) -> None:
        now = time.monotonic()
        gap = min((now - self._last) / max(events, 1), _LONG)
        self._usual += 0.2 * (gap - self._usual)
        self._last = now

    def next(self) -> float:
        waited = time.monotonic() - self._last
        return min(max(waited / _SHARE, self._usual / _SHARE, LEAST), MOST)
