"""Few evaluations: fmnes and its peers with budgets of 10 d to 200 d evaluations: `fmnes bench few`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fmnes.arguments import check_number
from fmnes.errors import ArgumentError, MissingExtra, not_among
from fmnes.strategies import DEFAULT_METHOD
from fmnes_bench.few import report
from fmnes_bench.few.problems import DIMENSIONS, SUITES, cases_of
from fmnes_bench.few.rows import CHECKPOINTS, Key, Row, check_method, open_rows, run_row, write_packed
from fmnes_bench.peers import is_installed
from fmnes_bench.trials import Store, run_all

#: The peers that run unless others are named: those that take milliseconds an evaluation.
COMPARED = ("cobyqa", "cma-lq", "nomad")
#: Milliseconds an evaluation takes at d = 5, for the order of the runs and the time left.
COST = {"cobyqa": 1, "cma-lq": 1, "nomad": 5, "pybads": 40, "optuna-gp": 500, "smac": 2000, "surrogate": 10}


def few(
    suites: Sequence[str] = ("shared",),
    *,
    methods: Sequence[str] | None = None,
    dimensions: Sequence[int] = DIMENSIONS,
    instances: Sequence[int] = (8, 9, 10, 11, 12),
    budget: int | None = None,
    jobs: int | None = None,
    out: str | Path = "few",
    page: str | Path | None = None,
    pack: bool = False,
    progress: Callable[[float, float], None] | None = None,
) -> Path:
    """Run methods with few evaluations and write the page of all rows in the folder `out`.

    Parameters
    ----------
    suites : sequence of str
        Some of ``fmnes_bench.few.problems.SUITES``; none only writes the page.
    methods : sequence of str, optional
        By default ``afm-nes`` and the fast peers that are installed.
    dimensions, instances : sequence of int
        `dimensions` has no effect on problems that have only one.
    budget : int, optional
        Evaluations per dimension; by default that of the suite.
    jobs : int, optional
        Processes; all cores by default.
    out : path
        The folder of ``rows.jsonl``. Runs that it has are not run again.
    page : path, optional
        By default ``few.md`` in the folder. The figure lies beside it, as ``.svg``.
    pack : bool
        Replace ``rows.jsonl`` by ``rows.jsonl.gz``, sorted.
    progress : callable, optional
        Called with the work done and the total work.

    Returns
    -------
    Path
        The page.
    """
    for suite in suites:
        if suite not in SUITES:
            raise not_among("suite", suite, SUITES, "some of")
    if methods is None:
        methods = [DEFAULT_METHOD, *(name for name in COMPARED if is_installed(name))]
    for method in methods:
        check_method(method)
    for d in dimensions:
        check_number("dimensions", d, above=1, whole=True)
    if budget is not None:
        check_number("budget", budget, above=0, whole=True)
        if budget > CHECKPOINTS[-1]:
            raise ArgumentError(f"budget: found {budget}, wanted at most {CHECKPOINTS[-1]} (times d)")
    wanted = [
        Key(case, method, budget or SUITES[suite].budget(case.problem))
        for suite in suites
        for method in methods
        for case in cases_of(suite, dimensions, instances)
    ]
    path = Path(out) / "rows.jsonl"
    store = open_rows(path)
    run_all(run_row, wanted, store.trials, work=work, keep=store.add, workers=jobs, progress=progress)
    if pack:
        write_packed(store.trials.values(), path)
        path.unlink(missing_ok=True)
    written = Path(page) if page is not None else Path(out) / "few.md"
    write_page(store, written)
    return written


def work(key: Key) -> float:
    """About how long a run takes, in milliseconds."""
    d = key.case.d
    return float(key.budget * d * (COST.get(key.method, 1) * (d / 5) ** 1.5 + 0.3))


def write_page(store: Store[Key, Row], path: Path) -> None:
    """Write the page and, where matplotlib is installed, its figure."""
    rows = [store.trials[key] for key in sorted(store.trials)]
    path.parent.mkdir(parents=True, exist_ok=True)
    figure: Path | None = path.with_suffix(".svg")
    try:
        if figure is None or not report.draw(rows, figure):
            figure = None
    except MissingExtra:
        figure = None  # the page is worth having without it
    path.write_text(report.page(rows, figure.name if figure else None), encoding="utf-8")
