"""Rows on disk, a line of JSON each, and the table of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .trial import Row


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(rows: Sequence[Row], problem: str) -> str:
    """Medians over the seeds, the best method first."""
    by_method: dict[str, list[Row]] = {}
    for row in rows:
        if row["problem"] == problem:
            by_method.setdefault(row["method"], []).append(row)
    lines = []
    for method, own in by_method.items():
        best = np.array([np.inf if row["best"] is None else row["best"] for row in own])
        low, middle, high = np.quantile(best, (0.25, 0.5, 0.75), method="closest_observation")
        middle = np.median(best)
        failed = sum(row["failed"] for row in own) / sum(row["evaluations"] for row in own)
        seconds = np.median([row["seconds"] for row in own])
        lines.append(
            (
                middle,
                f"| `{method}` | {middle:.4g} | {low:.4g} to {high:.4g} | {best.min():.4g} | {failed:.0%} | "
                f"{np.median([row['evaluations'] for row in own]):.0f} | {seconds:.1f} | {len(own)} |",
            )
        )
    head = "| method | median best | quartiles | best of all | failed | evaluations | seconds | seeds |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *(line for _, line in sorted(lines))])
