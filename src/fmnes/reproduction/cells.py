"""What is run. A cell is a method on a problem with a population size; its numbers are in published.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from fmnes import problems
from fmnes.errors import ArgumentError, nearest
from fmnes.problems import Problem
from fmnes.strategies import CMAES, DXNESIC, FMNES, XNES, Resampling, Strategy

DIMENSION = 40
TARGET = 1e-10
MAX_EVALUATIONS = 1_000_000
PAPER_TRIALS = 50

METHODS: dict[str, Strategy | Resampling] = {
    "FM-NES": FMNES(),
    "DX-NES-IC": DXNESIC(),
    "xNES": XNES(),
    "xNES/R": Resampling(XNES()),
    "CMA-ES": CMAES(parameters="2006"),
    "CMA-ES/R": Resampling(CMAES(parameters="2006")),
    "Method A": FMNES(rank_one="always"),
    "Method B": FMNES(reset=False),
    "Method C": FMNES(rank_one="always", reset=False),
    "FM-NES (printed c_sigma)": FMNES(path_rate="printed"),
    "DX-NES-IC (printed c_sigma)": DXNESIC(path_rate="printed"),
    "FM-NES (public alpha)": FMNES(alpha="public"),
    "DX-NES-IC (public alpha)": DXNESIC(alpha="public"),
    "CMA-ES (2016)": CMAES(parameters="2016"),
}
SWEEP_METHODS = ("FM-NES", "DX-NES-IC", "xNES", "CMA-ES", "xNES/R", "CMA-ES/R")
SWEEP_SIZES = (4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 60, 80)
SWEEP_MORE = {"CMA-ES": (15,), "CMA-ES/R": (2, 3, 15)}


class Cell(NamedTuple):
    method: str
    problem: str
    population_size: int


class Published(NamedTuple):
    cell: Cell
    table: str
    """table-2, table-3, table-4, or corrections"""
    successes: int
    mean: float | None
    sd: float | None
    note: str = ""


def problem_of(cell: Cell) -> Problem:
    if cell.problem == "cigar (100)":
        return problems.get("cigar", d=DIMENSION, coefficient=100)
    return problems.get(cell.problem, d=DIMENSION)


@cache
def published() -> tuple[Published, ...]:
    text = files("fmnes.reproduction").joinpath("published.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    rows = [_published(row, row["table"], "") for row in data["cell"]]
    rows += [_published(row, "corrections", f"{row['number']}. {row['what']}") for row in data["correction"]]
    return tuple(rows)


def _published(row: dict[str, Any], table: str, note: str) -> Published:
    cell = Cell(row["method"], row["problem"], row["population_size"])
    return Published(cell, table, row["successes"], row.get("mean"), row.get("sd"), note)


def sweep_cells() -> list[Cell]:
    """The paper's preliminary experiment: every method and problem with every population size."""
    cells = []
    for method in SWEEP_METHODS:
        for row in published():
            if row.cell.method == method and row.table in ("table-2", "table-3"):
                sizes = sorted({*SWEEP_SIZES, *SWEEP_MORE.get(method, ())})
                cells += [Cell(method, row.cell.problem, size) for size in sizes]
    return cells


def check_method(method: str | None) -> None:
    if method is not None and method not in METHODS:
        listed = ", ".join(METHODS)
        by_lower = {name.lower(): name for name in METHODS}
        hint = nearest(method, by_lower)
        raise ArgumentError(f"method: found {method!r}, wanted one of {listed}{hint}")
