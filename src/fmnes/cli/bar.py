"""The bar over many runs that take hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def show_bar(what: str, out: str | Path) -> Iterator[Callable[[float, float], None]]:
    """A bar on stderr, to be called with the work done and the work in all; Ctrl-C says where it is kept."""
    columns = ("{task.percentage:>3.0f}%", BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what)
        try:
            yield lambda done, total: bar.update(task, completed=done, total=total or 1)
        except KeyboardInterrupt:
            bar.stop()
            typer.echo(f"interrupted; finished {what} are kept in {out}: the same command goes on from there")
            raise typer.Exit(130) from None
