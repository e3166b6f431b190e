"""COCO's problems (extra `coco`): our methods and the peers', by the area under their runtime curves.

`fmnes bench coco`: choose the runs, run them, and write the report.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from fmnes.arguments import check_number
from fmnes.errors import ArgumentError, not_among
from fmnes_bench.coco import report
from fmnes_bench.coco.runs import (
    NOMAD_DIMENSIONS,
    SUITES,
    WITH_VALUES,
    Case,
    Job,
    check_method,
    jobs_for,
    open_store,
    package,
    run_job,
)
from fmnes_bench.trials import run_all

CONSTRAINED = "bbob-constrained"
#: Methods that are given the values of constraints.
WITH_LIMITS = "afm-nes-values,cma-al"
METHODS = "afm-nes,fm-nes,cma-es,cma-ipop,cma-bipop"


def coco(
    suite: str = "bbob",
    *,
    methods: str | None = None,
    dimensions: str = "2,3,5,10,20",
    instances: str = "1-5",
    functions: str = "all",
    budget: int | None = None,
    workers: int | None = None,
    out: str | Path = "coco",
    data: bool = False,
    constraints: str = "failures",
    progress: Callable[[float, float], None] | None = None,
) -> str:
    """Run the methods on a suite of COCO; the report, which is also in the folder `out` with a plot.

    suite: "bbob", "bbob-constrained" (every violated constraint is a failed evaluation) or "bbob-mixint".
    constraints: on `bbob-constrained`: "failures", or "values": methods that are given them are the default.
    methods: names separated by commas, ours and the peers'; by default the main ones.
    dimensions, instances: such as "2,5,10" or "1-5"; those dimensions that the suite lacks are left out.
    functions: the same, or "odd", "even" or "all".
    budget: evaluations per dimension; 2,000, or 1,000 on `bbob-constrained`.
    workers: processes; all cores by default.
    data: also write what `cocopp` reads, to the folder `data` in `out`; not of runs that were kept before.
    progress: called with the work done and the work in all.
    """
    if suite not in SUITES:
        raise not_among("suite", suite, SUITES)
    package()
    if constraints not in ("failures", "values") or (constraints == "values" and suite != CONSTRAINED):
        raise ArgumentError(
            f"constraints: found {constraints!r} on {suite}, wanted failures, or values on {CONSTRAINED}"
        )
    if methods is None:
        methods = WITH_LIMITS if constraints == "values" else METHODS
    names = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    if not names:
        raise ArgumentError(
            f"methods: found {methods!r}, wanted names separated by commas, such as {METHODS}"
        )
    if constraints == "values":
        names = [name if name in WITH_VALUES else f"{name}-values" for name in names]
    for name in names:
        check_method(name, suite)
    known = SUITES[suite]
    workers = check_number("workers", workers, above=0, whole=True)
    budget = check_number("budget", known.budget if budget is None else budget, above=1, whole=True)
    wanted_dimensions = [d for d in numbers("dimensions", dimensions) if d in known.dimensions]
    if not wanted_dimensions:
        listed = ", ".join(map(str, known.dimensions))
        raise ArgumentError(f"dimensions: found {dimensions!r}, wanted some of {listed}, which {suite} has")
    cases = [
        Case(suite, function, instance, d)
        for d in wanted_dimensions
        for function in chosen_functions(functions, known.functions)
        for instance in numbers("instances", instances)
    ]
    jobs = jobs_for(cases, names, budget)
    if not jobs:
        raise ArgumentError(f"dimensions: found {dimensions!r}, wanted at most {NOMAD_DIMENSIONS} for nomad")
    folder = Path(out)
    store = open_store(folder)
    run = functools.partial(run_job, data=folder / "data") if data else run_job
    runs = run_all(run, jobs, store.trials, work=cost, keep=store.add, workers=workers, progress=progress)
    report.draw(runs, folder / f"{suite}.svg")
    text = report.markdown(runs)
    (folder / f"{suite}.md").write_text(text, encoding="utf-8")
    return text


def cost(job: Job) -> float:
    """About how long a run takes; a generation costs more in high dimension."""
    return float(job.max_evaluations * (20 + job.case.dimension))


def chosen_functions(text: str, known: Sequence[int]) -> list[int]:
    if text in ("all", "odd", "even"):
        return [function for function in known if text == "all" or function % 2 == (text == "odd")]
    found = numbers("functions", text)
    if not set(found) <= set(known):
        raise ArgumentError(f"functions: found {text!r}, wanted some of {known[0]} to {known[-1]}")
    return found


def numbers(argument: str, text: str) -> list[int]:
    """`1,3,7-9` in order."""
    found: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    except ValueError:
        found = set()
    if not found or min(found) < 1:
        raise ArgumentError(f"{argument}: found {text!r}, wanted whole numbers such as 1,3 or 1-5")
    return sorted(found)
