"""The report of a COCO study: tables and plot."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.plots import drawing
from fmnes.strategies import METHODS as OURS
from fmnes_bench.coco.runs import SUITES, TARGETS, WITH_VALUES, Case, Run, area
from fmnes_bench.trials import table

# -- The runtime curves of one suite, one panel per dimension. Skipped without matplotlib.


def curve(runs: Sequence[Run], budget: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Evaluations per dimension, and the share of all pairs of problem and target reached by then."""
    t = np.sort([hit / run.job.case.dimension for run in runs for hit in run.hits])
    t = t[t <= budget]
    share = np.arange(len(t) + 1) / (len(runs) * len(TARGETS))
    return np.concatenate([[0.0], t, [float(budget)]]), np.append(share, share[-1])


def draw(runs: Sequence[Run], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fmnes"  # the same drawing gives the same file
    from matplotlib import pyplot

    dimensions = sorted({run.job.case.dimension for run in runs})
    methods = list(dict.fromkeys(run.job.method for run in runs))
    columns = min(len(dimensions), 3)
    count = -(-len(dimensions) // columns)
    figure, grid = pyplot.subplots(
        count, columns, figsize=(4 * columns, 3.2 * count), squeeze=False, sharey=True, layout="constrained"
    )
    panels: list[Any] = list(grid.flat)
    for panel in panels[len(dimensions) :]:
        panel.set_axis_off()
    for panel, d in zip(panels, dimensions, strict=False):
        for i, method in enumerate(methods):
            chosen = [run for run in runs if run.job.method == method and run.job.case.dimension == d]
            if chosen:
                t, share = curve(chosen, chosen[0].job.budget)
                colour, pattern = drawing.line_style(i)
                panel.step(t, share, pattern, where="post", color=colour, linewidth=1.2, label=method)
        panel.set_xscale("log")
        panel.set_xlim(1, max(run.job.budget for run in runs))
        panel.set_ylim(0, 1)
        panel.set_title(f"{runs[0].job.case.suite}, d = {d}")
        panel.set_xlabel("evaluations / d")
    panels[0].set_ylabel("share of targets reached")
    panels[0].legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


# -- Tables: areas by dimension and by group of functions, and differences from the best peer.


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
    failed = ""
    if suite == "bbob-constrained":
        failed = " A violated constraint is a failed evaluation, but for methods that are given its value: "
        failed += f"{', '.join(WITH_VALUES)}."
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
    functions = sorted({case.function for case in cases})
    parts = _parts(cases, {name: [f for f in functions if test(f)] for name, test in PARTS.items()})
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


def _parts(cases: Sequence[Case], by_name: Mapping[str, Sequence[int]]) -> list[Part]:
    """The problems of each dimension and each set of functions, where there are any."""
    parts = [
        (d, name, [case for case in cases if case.dimension == d and case.function in functions])
        for d in sorted({case.dimension for case in cases})
        for name, functions in by_name.items()
    ]
    return [part for part in parts if part[2]]


def _table(title: str, found: Areas, parts: Sequence[Part]) -> list[str]:
    rows = []
    for d, name, cases in parts:
        means = [_shown(*mean_and_error({case: of[case] for case in cases})) for of in found.values()]
        rows.append([d, name, len(cases), *means])
    return [*table(["d", title, "problems", *found], rows), ""]


def is_ours(method: str) -> bool:
    return method.removesuffix("-bipop") in OURS or method.startswith("afm-nes-")


def _against_peers(found: Areas, parts: Sequence[Part]) -> list[str]:
    """The mean difference problem by problem, whose error is less than that of two means."""
    ours, peers = [m for m in found if is_ours(m)], [m for m in found if not is_ours(m)]
    if not ours or not peers:
        return []
    rows = []
    for d, name, cases in parts:
        means = {m: mean_and_error({case: of[case] for case in cases})[0] for m, of in found.items()}
        best = max(peers, key=means.__getitem__)
        differences = []
        for m in ours:
            paired = mean_and_error({case: found[m][case] - found[best][case] for case in cases})
            ratio = means[m] / means[best] if means[best] else math.nan
            differences.append(f"{_shown(*paired, sign='+')} ({ratio:.2f})")
        rows.append([d, name, best, *differences])
    title = "Ours less the best peer of each line, problem by problem, and the ratio of the means:"
    return [title, "", *table(["d", "functions", "best peer", *ours], rows), ""]


def _shown(mean: float, error: float, sign: str = "") -> str:
    return f"{mean:{sign}.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")
