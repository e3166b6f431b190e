"""A progress line on stderr: rewritten in place on a terminal, printed now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from typing import IO

from fmnes.report.terminal import QuietStream
from fmnes.result import View


def describe(view: View, seconds: float) -> str:
    """One generation in one line."""
    best = "none yet" if view.best.x is None else f"{view.best.fun:.6g}"
    share = "" if view.feasible_share != view.feasible_share else f"  feasible {view.feasible_share:.0%}"
    rate = f"  {view.evaluations / seconds:.0f}/s" if seconds > 0 else ""
    restart = f"restart {view.restart}  " if view.restart else ""
    return f"{restart}evaluations {view.evaluations}  best {best}  sigma {view.sigma:.3g}{share}{rate}"


class Progress:
    """Where the stream cannot be written it is silent: a run does not end with its display."""

    def __init__(self, stream: IO[str] | QuietStream | None = None) -> None:
        self._stream = QuietStream(stream or sys.stderr)
        self._live = self._stream.isatty()
        self._every = 0.1 if self._live else 5.0
        self._started = self._shown = time.monotonic()
        self._width = 0

    def add(self, view: View) -> None:
        now = time.monotonic()
        if now - self._shown >= self._every:
            self._shown = now
            self._write(describe(view, now - self._started))

    def close(self, view: View) -> None:
        """The last line stays."""
        self._write(describe(view, time.monotonic() - self._started))
        if self._live:
            self._stream.write("\n")

    def _write(self, line: str) -> None:
        if not self._live:
            self._stream.write(line + "\n")
            return
        columns = self._columns()
        line = line[:columns]
        self._stream.write("\r" + line.ljust(min(self._width, columns)))
        self._width = len(line)

    def _columns(self) -> int:
        """What fits: a line that wraps could not be rewritten."""
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except Exception:  # a stream without a file, or with one that is no terminal
            columns = 0
        return (columns or 80) - 1
