"""The search compared with peers, on problems with realistic failures: `fmnes bench search`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from fmnes.arguments import check_number
from fmnes.errors import MissingExtra, not_among
from fmnes_bench.search import suite
from fmnes_bench.search.report import page
from fmnes_bench.search.runs import (
    DEFAULT,
    WHAT,
    Key,
    Trial,
    check_method,
    open_store,
    run_trial,
    summarise,
    takes_part,
)
from fmnes_bench.trials import Store, run_all

DIMENSIONS = (2, 3, 5, 10, 20, 40)


def search(
    what: str = "evaluations",
    *,
    problems: Sequence[str] | None = None,
    dimensions: Sequence[int] = DIMENSIONS,
    methods: Sequence[str] | None = None,
    seeds: int = 8,
    first_seed: int = 0,
    workers: int | None = None,
    out: str | Path = "search",
    report: str | Path | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> Path:
    """Run methods on problems and write the page of everything that the folder `out` has; its path.

    what: "evaluations" to the target, or "success": no target, and is what the method says at the end true?
    problems: names, or groups of them (`suite.GROUPS`); all by default.
    methods: ours, "cma", "nomad", or one of ours with "-once" after it (no second look).
    seeds: runs of each; those already in the folder are not run again.
    first_seed: of these runs. Seeds below 24 were used while the default was designed.
    workers: processes; all cores by default.
    report: the page; by default search.md in the folder. The figure lies beside it, as .svg.
    progress: called with the work done and the work in all.
    """
    if what not in WHAT:
        raise not_among("what", what, WHAT)
    names = _problems(problems)
    methods = list(DEFAULT if methods is None else methods)
    for method in methods:
        check_method(method)
    for d in dimensions:
        check_number("dimensions", d, above=1, whole=True)
    check_number("seeds", seeds, above=-1, whole=True)
    check_number("first_seed", first_seed, above=-1, whole=True)
    folder = Path(out)
    path = folder / "search.md" if report is None else Path(report)
    wanted = [
        Key(what, name, d, method, seed)
        for d in dimensions
        for name in names
        if suite.has(name, d)
        for method in methods
        if takes_part(method, d)
        for seed in range(first_seed, first_seed + seeds)
    ]
    store = open_store(folder, what)
    run_all(run_trial, wanted, store.trials, work=_work, keep=store.add, workers=workers, progress=progress)
    _write(store, path)
    return path


def _problems(wanted: Sequence[str] | None) -> list[str]:
    """Groups replaced by their problems, each problem once."""
    found: list[str] = []
    for name in wanted if wanted is not None else suite.GROUPS:
        if name not in suite.GROUPS:
            suite.check_problem(name)
        found += suite.GROUPS.get(name, {name: None})
    return list(dict.fromkeys(found))


def _work(key: Key) -> float:
    """Evaluations and what each costs grow with d; NOMAD's models take their time."""
    return math.sqrt(key.d) ** 3 * (30 if key.method == "nomad" else 1)


def _write(store: Store[Key, Trial], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    trials = [store.trials[key] for key in sorted(store.trials)]
    figure: Path | None = path.with_suffix(".svg")
    cells = summarise(t for t in trials if t.key.what == "evaluations")
    try:
        from fmnes_bench.search.report import draw

        if figure and cells:
            draw(cells, figure)
    except MissingExtra:
        figure = None  # the page is worth having without it
    path.write_text(page(trials, figure.name if figure else None), encoding="utf-8")
