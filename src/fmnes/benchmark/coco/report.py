"""The tables: areas by dimension and by group of functions, and how far ours are from the best peer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from fmnes.benchmark.coco.problems import SUITES, Case
from fmnes.benchmark.coco.runs import Run
from fmnes.benchmark.coco.runtimes import TARGETS, area
from fmnes.strategies import METHODS as OURS

Areas = dict[str, dict[Case, float]]
"""By method and problem."""
Part = tuple[int, str, list[Case]]
"""A dimension, a name for some functions, and their problems."""

PARTS: dict[str, Callable[[int], bool]] = {
    "all": lambda function: True,
    "odd": lambda function: function % 2 == 1,
    "even": lambda function: function % 2 == 0,
}


def markdown(runs: Sequence[Run]) -> str:
    """For the whole budget, and for the smaller one that a method was given, if any."""
    suite = runs[0].job.case.suite
    lines = [f"# COCO: {suite}", "", explanation(suite), ""]
    for budget in sorted({run.job.budget for run in runs}, reverse=True):
        lines += _section([run for run in runs if run.job.budget >= budget], budget)
    return "\n".join(lines)


def explanation(suite: str) -> str:
    failed = " A violated constraint is a failed evaluation." if suite == "bbob-constrained" else ""
    return (
        f"Area under the runtime curve: for each problem and each of {len(TARGETS)} targets "
        f"f − f_opt ≤ {TARGETS[0]:g} … {TARGETS[-1]:g} that was reached at evaluation t, "
        "1 − ln(t/d) / ln(budget), at least 0 and at most 1, and 0 for a target that was not reached; "
        "the mean over all. More is better. ± is the standard error of the mean over the functions' "
        f"instances.{failed}"
    )


def areas(runs: Iterable[Run], budget: int) -> Areas:
    found: Areas = defaultdict(dict)
    for run in runs:
        found[run.job.method][run.job.case] = area(run.hits, run.job.case.dimension, budget)
    return dict(found)


def mean_and_error(values: dict[Case, float]) -> tuple[float, float]:
    """Over functions, each the mean of its instances; the error is that of these means.

    The functions are the suite, not a sample of one: only their instances are chance. NaN with one of each.
    """
    by_function = defaultdict(list)
    for case, value in values.items():
        by_function[case.dimension, case.function].append(value)
    means, squares = [], []
    for instances in by_function.values():
        n = len(instances)
        mean = sum(instances) / n
        means.append(mean)
        squares.append(sum((v - mean) ** 2 for v in instances) / (n * (n - 1)) if n > 1 else math.nan)
    return sum(means) / len(means), math.sqrt(sum(squares)) / len(means)


def _section(runs: Sequence[Run], budget: int) -> list[str]:
    found = areas(runs, budget)
    # Only problems that every method has run: NOMAD has few dimensions.
    cases = [case for case in next(iter(found.values())) if all(case in of for of in found.values())]
    parts = _parts(cases, {name: [f for f in _functions(cases) if test(f)] for name, test in PARTS.items()})
    groups = _parts(cases, SUITES[cases[0].suite].groups)
    return [
        f"## {budget:,} d evaluations",
        "",
        *_table("functions", found, parts),
        "By group of functions:",
        "",
        *_table("group", found, groups),
        *_against_peers(found, parts),
    ]


def _functions(cases: Iterable[Case]) -> list[int]:
    return sorted({case.function for case in cases})


def _parts(cases: Sequence[Case], by_name: Mapping[str, Sequence[int]]) -> list[Part]:
    """The problems of each dimension and each set of functions, where there are any."""
    parts = [
        (d, name, [case for case in cases if case.dimension == d and case.function in functions])
        for d in sorted({case.dimension for case in cases})
        for name, functions in by_name.items()
    ]
    return [part for part in parts if part[2]]


def _table(title: str, found: Areas, parts: Sequence[Part]) -> list[str]:
    lines = [_line(["d", title, "problems", *found]), _line(["---"] * (3 + len(found)))]
    for d, name, cases in parts:
        means = [_shown(*mean_and_error({case: of[case] for case in cases})) for of in found.values()]
        lines.append(_line([str(d), name, str(len(cases)), *means]))
    return [*lines, ""]


def is_ours(method: str) -> bool:
    return method.removesuffix("-bipop") in OURS


def _against_peers(found: Areas, parts: Sequence[Part]) -> list[str]:
    """The mean difference problem by problem, whose error is less than that of two means."""
    ours, peers = [m for m in found if is_ours(m)], [m for m in found if not is_ours(m)]
    if not ours or not peers:
        return []
    lines = ["Ours less the best peer of each line, problem by problem, and the ratio of the means:", ""]
    lines += [_line(["d", "functions", "best peer", *ours]), _line(["---"] * (3 + len(ours)))]
    for d, name, cases in parts:
        means = {m: mean_and_error({case: of[case] for case in cases})[0] for m, of in found.items()}
        best = max(peers, key=means.__getitem__)
        differences = []
        for m in ours:
            paired = mean_and_error({case: found[m][case] - found[best][case] for case in cases})
            ratio = means[m] / means[best] if means[best] else math.nan
            differences.append(f"{_shown(*paired, sign='+')} ({ratio:.2f})")
        lines.append(_line([str(d), name, best, *differences]))
    return [*lines, ""]


def _shown(mean: float, error: float, sign: str = "") -> str:
    return f"{mean:{sign}.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
