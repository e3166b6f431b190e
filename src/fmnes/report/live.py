"""The live display of the command line: a small table on a terminal, plain lines elsewhere. Needs rich."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import IO, cast

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fmnes.report.progress import Progress
from fmnes.report.terminal import QuietStream
from fmnes.result import View


class LiveDisplay:
    """On stderr, which it leaves alone once that cannot be written: what is asked for with --json stays alone
    on stdout. A context manager; `update` is a callback for `fmnes.minimize`."""

    def __init__(self, max_evaluations: int | None = None) -> None:
        self._max_evaluations = max_evaluations
        self._started = time.monotonic()
        self._view: View | None = None
        stream = QuietStream(sys.stderr)
        console = Console(file=cast(IO[str], stream))
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._lines = None if self._live else Progress(stream)
        self._shown = 0.0

    def __enter__(self) -> LiveDisplay:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            if self._view:
                self._live.update(self._table(self._view), refresh=True)
            self._live.__exit__(kind, error, trace)
        elif self._lines and self._view:
            self._lines.close(self._view)

    def update(self, view: View) -> None:
        self._view = view
        if self._lines:
            self._lines.add(view)
        elif self._live and time.monotonic() - self._shown > 0.1:
            self._shown = time.monotonic()
            self._live.update(self._table(view), refresh=True)

    def _table(self, view: View) -> Table:
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = view.evaluations / seconds
        table = Table.grid(padding=(0, 2))
        rows = {
            "best value": "none yet" if view.best.x is None else f"{view.best.fun:.6g}",
            "evaluations": f"{view.evaluations}  ({rate:.0f}/s)",
            "step size": f"{view.sigma:.3g}",
            "feasible": "" if view.feasible_share != view.feasible_share else f"{view.feasible_share:.0%}",
        }
        if view.restart:
            rows["restart"] = f"{view.restart}, population {view.population_size}"
        if self._max_evaluations and view.evaluations:
            left = (self._max_evaluations - view.evaluations) / rate
            rows["time left"] = f"at most {left:.0f} s"
        for name, value in rows.items():
            table.add_row(f"[dim]{name}[/]", value)
        return table
