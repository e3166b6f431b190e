"""Rows on disk, a line of JSON each, and the table of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .trial import Row


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def by_method(rows: Sequence[Row], problem: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["problem"] == problem:
            found.setdefault(row["method"], []).append(row)
    return found


def bests(rows: Sequence[Row]) -> np.ndarray:
    """+inf for runs in which nothing succeeded."""
    return np.array([np.inf if row["best"] is None else row["best"] for row in rows])


def median_best(rows: Sequence[Row]) -> float:
    return float(np.median(bests(rows)))


def share_failed(rows: Sequence[Row]) -> float:
    return float(sum(row["failed"] for row in rows) / sum(row["evaluations"] for row in rows))


def table(rows: Sequence[Row], problem: str) -> str:
    """Medians over the seeds, the best method first."""
    lines = []
    for method, own in by_method(rows, problem).items():
        best, middle = bests(own), median_best(own)
        low, high = np.quantile(best, (0.25, 0.75), method="inverted_cdf")
        evaluations = np.median([row["evaluations"] for row in own])
        lines.append(
            (
                middle,
                f"| `{method}` | {middle:.4g} | {low:.4g} to {high:.4g} | {best.min():.4g} | "
                f"{share_failed(own):.0%} | {evaluations:.0f} | {len(own)} |",
            )
        )
    head = "| method | median best | quartiles | best of all | failed | evaluations | seeds |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *(line for _, line in sorted(lines))])
