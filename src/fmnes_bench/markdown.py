"""Markdown tables, as every report and page writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> list[str]:
    """The lines of a table."""
    titles = list(head)
    return [table_row(titles), table_row(["---"] * len(titles)), *map(table_row, rows)]


def table_row(cells: Iterable[Any]) -> str:
    """One line of a table."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
