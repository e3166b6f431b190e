"""The paper's experiments, all of them, beside the published numbers: what `fmnes reproduce` runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fmnes.arguments import check_number
from fmnes.errors import not_among
from fmnes_bench.reproduction import report
from fmnes_bench.reproduction.cells import (
    MAX_EVALUATIONS,
    Cell,
    Published,
    Row,
    Trial,
    check_method,
    open_store,
    published,
    run_trial,
    summarise,
    sweep_cells,
    write_results_csv,
)
from fmnes_bench.reproduction.report import page
from fmnes_bench.trials import Store, run_all

# -- The trials of a reproduction, including those already stored.


def expected_evaluations(cell: Cell) -> float:
    """The approximate cost of a trial, for scheduling and progress."""
    for row in published():
        if row.cell == cell:
            return row.mean or MAX_EVALUATIONS
    return next((r.mean or MAX_EVALUATIONS for r in published() if r.cell[:2] == cell[:2]), MAX_EVALUATIONS)


def run_trials(
    wanted: list[tuple[Cell, int]],
    store: Store[tuple[Cell, int], Trial] | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> list[Trial]:
    """All wanted trials, in the order asked for.

    progress: called with the work done and the work in all, in expected evaluations.
    """
    return run_all(
        run_trial,
        wanted,
        store.trials if store else {},
        work=lambda key: expected_evaluations(key[0]),
        keep=store.add if store else None,
        workers=workers,
        progress=progress,
    )


# -- `reproduce`: select and run trials, write the report.


TABLES = ("table-2", "table-3", "table-4", "corrections")
WHAT = (*TABLES, "figure-1", "sweep", "all")


def reproduce(
    what: str = "all",
    *,
    trials: int = 50,
    workers: int | None = None,
    out: str | Path = "reproduction",
    method: str | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> list[Row]:
    """Run the paper's experiments and write the report to the folder `out`.

    what: "table-2" (unconstrained), "table-3" (implicitly constrained), "table-4" (ablation), "corrections",
        "figure-1", "sweep" (the preliminary experiment over λ), or "all" (everything but the sweep).
    trials: per cell; those already in the folder are not run again.
    workers: processes; all cores by default.
    method: only this one.
    progress: called with the work done and the work in all.
    """
    check_arguments(what, method)
    trials = check_number("trials", trials, above=0, whole=True)
    folder = Path(out)
    rows = _rows(what, method)
    cells = _sweep(method) if what == "sweep" else list(dict.fromkeys(row.cell for row in rows))
    wanted = [(cell, number) for cell in cells for number in range(trials)]
    store = open_store(folder)
    done = run_trials(wanted, store, workers=workers, progress=progress) if wanted else []
    command = f"fmnes reproduce {what} --trials {trials}" + (f" --method {method}" if method else "")
    if what == "sweep":
        _write_sweep(folder, command, trials, cells, store)
        return []
    png = svg = None
    if what in ("figure-1", "all"):
        from fmnes_bench.reproduction.report import draw

        png, svg = draw(folder)
    summaries = summarise(done)
    results = [Row(row, summaries[row.cell]) for row in rows]
    sections: list[report.Section] = [
        (
            report.TITLES[table],
            report.CORRECTIONS if table == "corrections" else "",
            report.HEAD,
            report.table_rows([row for row in results if row.published.table == table]),
        )
        for table in TABLES
        if any(row.published.table == table for row in results)
    ]
    intro = report.introduction(command, trials, report.MARKS)
    (folder / "report.md").write_text(
        report.markdown(report.TITLE, sections, intro, png.name if png else None), encoding="utf-8"
    )
    (folder / "report.html").write_text(page(report.TITLE, sections, intro, svg), encoding="utf-8")
    write_results_csv(folder / "results.csv", results)
    return results


def check_arguments(what: str, method: str | None) -> None:
    """Raise ArgumentError unless there are such experiments and such a method."""
    if what not in WHAT:
        raise not_among("what", what, WHAT)
    check_method(method)


def _rows(what: str, method: str | None) -> list[Published]:
    tables = TABLES if what == "all" else (what,)
    return [row for row in published() if row.table in tables and method in (None, row.cell.method)]


def _sweep(method: str | None) -> list[Cell]:
    return [cell for cell in sweep_cells() if method in (None, cell.method)]


def _write_sweep(
    folder: Path, command: str, trials: int, cells: list[Cell], store: Store[tuple[Cell, int], Trial]
) -> None:
    summaries = summarise(store.trials[cell, number] for cell in cells for number in range(trials))
    chosen = {
        row.cell[:2]: row.cell.population_size for row in published() if row.table in ("table-2", "table-3")
    }
    title = "The population size that does best, and the paper's choice"
    text = (
        "Best is the least mean among the sizes with the most successes. With few trials a size that fails "
        "now and then may look best, and differences of some per cent are noise."
    )
    sections: list[report.Section] = [(title, text, report.SWEEP_HEAD, report.sweep_rows(summaries, chosen))]
    sections += report.sizes(summaries) if trials > 1 else []
    intro = report.introduction(command, trials)
    name = report.sweep_title(cells)
    (folder / "sweep.md").write_text(report.markdown(name, sections, intro, None), encoding="utf-8")
    (folder / "sweep.html").write_text(page(name, sections, intro, None), encoding="utf-8")
