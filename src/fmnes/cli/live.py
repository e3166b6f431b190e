"""The live display of the command line: a small table on a terminal, plain lines elsewhere. Needs rich."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from types import TracebackType
from typing import IO, cast

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fmnes._logging import telling
from fmnes._text import literal
from fmnes.progress import Progress, QuietStream, Rate, best_value, failed, speed
from fmnes.result import Result, View


class LiveDisplay:
    """A display on stderr, silent if it cannot be written. A context manager; `update` is a callback for
    `fmnes.minimize`."""

    def __init__(self, max_evaluations: int | None = None, made_before: int = 0) -> None:
        """made_before: evaluations of earlier sessions."""
        self._max_evaluations = max_evaluations
        self._rate = Rate(made_before)
        self._view: View | None = None
        stream = QuietStream(sys.stderr)
        console = Console(file=cast(IO[str], stream))
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._lines = None if self._live else Progress(stream, made_before)
        self._shown = 0.0
        self._telling = telling(self._say)

    def __enter__(self) -> LiveDisplay:
        self._telling.__enter__()
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._telling.__exit__(kind, error, trace)
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

    def _say(self, text: str) -> None:
        if self._live:
            self._live.console.print(Text(literal(text)), soft_wrap=True)
        elif self._lines:
            self._lines.say(text)

    def end(self, result: Result) -> None:
        """The last frame has the numbers of the result: a generation that was cut short has no view."""
        self._max_evaluations = None  # no time is left, or all of it
        if self._view:
            self._view = replace(
                self._view,
                evaluations=result.nfev,
                n_infeasible=result.n_infeasible,
                best=self._view.best._replace(x=result.x, fun=result.fun),
            )

    def _table(self, view: View) -> Table:
        rate = self._rate(view.evaluations)
        table = Table.grid(padding=(0, 2))
        rows = {
            "best value": best_value(view),
            "evaluations": f"{view.evaluations}  {speed(rate)}",
            "failed": failed(view),
            "step size": f"{view.sigma:.3g}",
        }
        if view.restart:
            rows["restart"] = f"{view.restart}, population {view.population_size}"
        if self._max_evaluations and rate > 0:
            left = max(0, self._max_evaluations - view.evaluations) / rate
            rows["time left"] = f"at most {left:.0f} s"
        for name, value in rows.items():
            table.add_row(f"[dim]{name}[/]", value)
        return table
