"""The page and the figure of `fmnes bench few`: tables by suite, and regret against evaluations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fmnes.plots import drawing
from fmnes.strategies import DEFAULT_METHOD
from fmnes_bench.coco.runs import BBOB_GROUPS
from fmnes_bench.few.problems import REAL, SEARCH_GROUPS, Case
from fmnes_bench.few.rows import CHECKPOINTS, REGRETS, SURROGATE, TARGETS, Row
from fmnes_bench.peers import PEERS
from fmnes_bench.search.suite import GROUP_OF
from fmnes_bench.trials import table

#: Smaller regrets count as this one.
FLOOR = 1e-4
#: Multiples of d in the tables.
COLUMNS = (10, 20, 50, 100)
#: Ratios of evaluations are cut off here.
CLIP = 50.0
#: Multiples of d of the areas under the runtime curves.
AREA = 50
#: Panels side by side in the figure.
PANELS = 3
REAL_UNITS = {"lens": "µm", "double-gauss": "µm", "airfoil": "counts", "op-amp": "mW"}

TITLES = {
    "shared": "Shared problems",
    "bbob": "COCO's functions (bbob)",
    "search": "Failing problems of the search benchmark",
    "hidden": "Hidden constraints from the literature",
    "boxes": "Boxes with a small working part",
    "real": "Real problems",
}

ABOUT = f"""# Few evaluations: budgets of 10 d to 200 d

`fmnes bench few --suite shared,bbob,search,hidden,boxes,real` makes the rows (`rows.jsonl` in the folder of
`--out`; it needs `pip install "fmnes[bench,few]"`, and `real` a copy of the repository with XFOIL and
ngspice). `fmnes bench few --suite none --out docs/benchmarks/few --page docs/benchmarks/few.md` makes this
page of the rows that are kept with it.

Regret is (best value − optimum) / (value at the start − optimum), at most 1, and below {FLOOR:g} it counts as
{FLOOR:g}. The tables have its geometric mean over problems and instances after 10 d, 20 d, 50 d and 100 d
evaluations; failed evaluations count. Where there is no start, the median value of uniformly random points
that work takes the place of its value. *To 1e-3*, *1e-6* and *1e-8*: the share of runs that reach this
regret, and the evaluations of all runs divided by the number of runs that reach it. *Failed*: the share of
the evaluations. *ms*: processor time of the method for an evaluation, without the objective's. A star marks a
method that has not run on all problems and instances of its group: its means are over fewer runs."""


# -- The page.


def page(rows: Iterable[Row], figure: str | None) -> str:
    """All tables; figure: the file name of the plot."""
    rows = longest(rows)
    parts = [ABOUT, *_calls(rows)]
    for suite, title in TITLES.items():
        own = [row for row in rows if row.key.case.suite == suite]
        if not own:
            continue
        parts += [f"## {title}", _runs(own)]
        if suite == "shared" and figure:
            parts.append(
                f"![Regret against evaluations: a panel for each dimension, a line for each method]({figure})"
            )
        if suite == "bbob":
            parts += _areas(own)
        if suite == "real":
            parts += _values(own)
        else:
            parts += [*_regrets(own), *_on_the_same_runs(own)]
        if suite in ("shared", "search"):
            parts += _failures(own)
        if suite == "boxes":
            parts += _found(own)
        if suite == "search":
            parts += _ratios(own)
    return "\n\n".join(parts) + "\n"


def longest(rows: Iterable[Row]) -> list[Row]:
    """Of the runs of a method on a problem the one with the largest budget."""
    found: dict[tuple[Case, str], Row] = {}
    for row in rows:
        where = (row.key.case, row.key.method)
        if where not in found or row.key.budget > found[where].key.budget:
            found[where] = row
    return [found[where] for where in sorted(found)]


def methods_of(rows: Iterable[Row]) -> list[str]:
    """Ours first, then the peers in their order."""
    order = [DEFAULT_METHOD, SURROGATE, *PEERS]
    return sorted({row.key.method for row in rows}, key=lambda m: order.index(m) if m in order else -1)


def mean_regret(rows: Iterable[Row], multiple: int) -> float:
    """The geometric mean; NaN if a run was shorter."""
    regrets = [row.regret(multiple) for row in rows]
    if not regrets or any(regret is None for regret in regrets):
        return math.nan
    return math.exp(statistics.fmean(math.log(max(FLOOR, regret or 0.0)) for regret in regrets))


def per_success(rows: Sequence[Row], which: int) -> float:
    """Evaluations of all runs, up to the hit, over the number of runs that have one; inf if none has."""
    hits = sum(row.hits[which] is not None for row in rows)
    spent = sum(row.hits[which] or row.evaluations for row in rows)
    return spent / hits if hits else math.inf


def failed_per_success(rows: Sequence[Row], which: int) -> float:
    """The same of the failed evaluations, for rows in which they were counted."""
    reached = [row.failed_before[which] for row in rows]
    hits = sum(failed is not None for failed in reached)
    failed = sum(row.failed if n is None else n for n, row in zip(reached, rows, strict=True))
    return failed / hits if hits else math.inf


def area(row: Row, multiple: int) -> float:
    """The area under the runtime curve over TARGETS, between 0 and 1: axis from d to `multiple` d, log."""
    t = np.maximum(np.asarray(row.targets, dtype=float) / row.key.case.d, 1.0)
    return float(np.clip(1 - np.log(t) / math.log(multiple), 0, 1).sum() / len(TARGETS))


def _runs(rows: Sequence[Row]) -> str:
    problems = {row.key.case.problem for row in rows}
    instances = sorted({row.key.case.instance for row in rows})
    shown = f"{instances[0]} to {instances[-1]}" if len(instances) > 1 else str(instances[0])
    return f"{len(problems)} problems, instances {shown}, {len(rows):,} runs."


def _groups(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows by d; of suites with dimensions of their own by problem."""
    if rows[0].key.case.suite in ("hidden", "boxes", "real"):
        cases = sorted({(row.key.case.d, row.key.case.problem) for row in rows})
        return [(f"{name}, d = {d}", [r for r in rows if r.key.case.problem == name]) for d, name in cases]
    dimensions = sorted({row.key.case.d for row in rows})
    return [(str(d), [row for row in rows if row.key.case.d == d]) for d in dimensions]


def _by_method(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """Methods, how they are shown, and their rows; a star where some of the cases are missing."""
    cases = {row.key.case for row in rows}
    found = []
    for method in methods_of(rows):
        own = [row for row in rows if row.key.method == method]
        found.append((method, f"`{method}`" + ("" if len(own) == len(cases) else "\\*"), own))
    return found


def _regrets(rows: Sequence[Row]) -> list[str]:
    head = ["d", "method", *(f"{c} d" for c in COLUMNS), *(f"to {r:.0e}" for r in REGRETS)]
    head = [word.replace("e-0", "e-") for word in [*head, "failed", "ms", "runs"]]
    lines: list[list[Any]] = []
    for group, members in _groups(rows):
        regrets = {m: [mean_regret(own, c) for c in COLUMNS] for m, _, own in _by_method(members)}
        complete = [m for m, shown, _ in _by_method(members) if not shown.endswith("*")]
        best = [_least(regrets[m][i] for m in complete) for i in range(len(COLUMNS))]
        for method, shown, own in _by_method(members):
            cells = [_regret(x, x == least) for x, least in zip(regrets[method], best, strict=True)]
            hits = [_hits(own, which) for which in range(len(REGRETS))]
            lines.append([group, shown, *cells, *hits, _failed(own), _milliseconds(own), len(own)])
    return ["\n".join(table(head, lines))]


def _on_the_same_runs(rows: Sequence[Row]) -> list[str]:
    """Each method with a star, and ours on the problems and instances on which it has run."""
    lines: list[list[Any]] = []
    for group, members in _groups(rows):
        ours = {row.key.case: row for row in members if row.key.method == SURROGATE}
        for method, shown, own in _by_method(members):
            shared = [row for row in own if row.key.case in ours]
            if method == SURROGATE or not shown.endswith("*") or not shared:
                continue
            for name, these in ((method, shared), (SURROGATE, [ours[row.key.case] for row in shared])):
                cells = [_regret(mean_regret(these, c), False) for c in COLUMNS]
                lines.append([group, f"`{name}`", *cells, len(these)])
    what = "The methods with a star, each beside `surrogate` on the same problems and instances:"
    head = ["d", "method", *(f"{c} d" for c in COLUMNS), "runs"]
    return [what, "\n".join(table(head, lines))] if lines else []


def _least(values: Iterable[float]) -> float:
    return min((value for value in values if not math.isnan(value)), default=math.nan)


def _regret(value: float, best: bool) -> str:
    if math.isnan(value):
        return ""
    text = f"{value:.1e}".replace("e-0", "e-").replace("e+00", "")
    return f"**{text}**" if best else text


def _hits(rows: Sequence[Row], which: int) -> str:
    reached = sum(row.hits[which] is not None for row in rows)
    return f"{reached / len(rows):.0%}, {per_success(rows, which):.0f}" if reached else "–"


def _failed(rows: Sequence[Row]) -> str:
    return f"{sum(row.failed for row in rows) / sum(row.evaluations for row in rows):.0%}"


def _failures(rows: Sequence[Row]) -> list[str]:
    """Failed evaluations, on the problems on which some fail."""
    failing = {row.key.case.problem for row in rows if row.failed}
    rows = [row for row in rows if row.key.case.problem in failing and row.failed_before]
    if not rows:
        return []
    lines: list[list[Any]] = []
    for group, members in _groups(rows):
        for _, shown, own in _by_method(members):
            until = [failed_per_success(own, which) for which in range(len(REGRETS))]
            cells = ["–" if math.isinf(failed) else f"{failed:.0f}" for failed in until]
            lines.append(
                [group, shown, *cells, f"{statistics.fmean(row.failed for row in own):.0f}", len(own)]
            )
    what = (
        "Failed evaluations on the problems where some evaluations fail: those of all runs until they reach "
        "a regret, divided by the number of runs that reach it, and those of a whole run, which ends with "
        "the budget or at 1e-8."
    )
    head = ["d", "method", *(f"to {r:.0e}".replace("e-0", "e-") for r in REGRETS), "in a run", "runs"]
    return [what, "\n".join(table(head, lines))]


def _milliseconds(rows: Sequence[Row]) -> str:
    return f"{statistics.median(row.milliseconds for row in rows):.2g}"


def _areas(rows: Sequence[Row]) -> list[str]:
    """By groups of functions, as COCO names them."""
    methods = methods_of(rows)
    lines = []
    groups = {"all": range(1, 25), **BBOB_GROUPS}
    for d in sorted({row.key.case.d for row in rows}):
        for name, functions in groups.items():
            cells = []
            for method in methods:
                own = [r for r in rows if r.key.case.d == d and r.key.method == method]
                own = [r for r in own if int(r.key.case.problem[1:]) in functions and r.key.budget >= AREA]
                cells.append(f"{statistics.fmean(area(row, AREA) for row in own):.3f}" if own else "")
            lines.append([d, name, *cells])
    what = (
        f"Area under the runtime curve, from d to {AREA} d evaluations on a logarithmic axis, over the "
        f"{len(TARGETS)} regrets 1, … 1e-6; 1 would be all at once. (The default evaluates its start, and so "
        "reaches the first one at once.)"
    )
    return [what, "\n".join(table(["d", "functions", *(f"`{m}`" for m in methods)], lines))]


def _values(rows: Sequence[Row]) -> list[str]:
    """Median best values, because the optimum is unknown."""
    columns = (10, 20, 30, 50)
    lines: list[list[Any]] = []
    for name in REAL:
        members = [row for row in rows if row.key.case.problem == name]
        for _, shown, own in _by_method(members):
            cells = [_median_value(own, c) for c in columns]
            what = f"{name}, d = {own[0].key.case.d}, {REAL_UNITS[name]}"
            lines.append([what, shown, *cells, _failed(own), _milliseconds(own), len(own)])
    head = ["problem", "method", *(f"{c} d" for c in columns), "failed", "ms", "runs"]
    return ["Median best values; less is better.", "\n".join(table(head, lines))]


def _median_value(rows: Sequence[Row], multiple: int) -> str:
    if any(row.key.budget < multiple for row in rows):
        return ""
    gaps = [row.gaps[CHECKPOINTS.index(multiple)] for row in rows]
    values = [math.inf if gap is None else gap + row.optimum for gap, row in zip(gaps, rows, strict=True)]
    return f"{statistics.median(values):.4g}"


def _found(rows: Sequence[Row]) -> list[str]:
    """When the first evaluation works."""
    lines = []
    for group, members in _groups(rows):
        for _, shown, own in _by_method(members):
            found = sorted(row.working for row in own if row.working)
            lines.append(
                [
                    group,
                    shown,
                    f"{len(found)} of {len(own)}",
                    f"{statistics.median(found):.0f}" if found else "–",
                ]
            )
    return ["\n".join(table(["working part", "method", "found", "median evaluation"], lines))]


def _ratios(rows: Sequence[Row]) -> list[str]:
    """Evaluations over those of the default without its surrogate."""
    cells: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row.key.case.problem, row.key.case.d, row.key.method), []).append(row)
    lines: list[list[Any]] = []
    for d in sorted({d for _, d, _ in cells}):
        for group in SEARCH_GROUPS:
            for method in methods_of(rows):
                if method == DEFAULT_METHOD:
                    continue
                shown = [_ratio(cells, group, d, method, which) for which in range(len(REGRETS))]
                if any(shown):
                    lines.append([group, d, f"`{method}`", *shown])
    what = (
        f"Evaluations for each run that reaches a regret, over those of `{DEFAULT_METHOD}`: the geometric "
        f"mean over the problems of a group, each cut off at {CLIP:g} and 1/{CLIP:g}, and the largest one."
    )
    head = ["problems", "d", "method", *(f"to {r:.0e}".replace("e-0", "e-") for r in REGRETS)]
    return [what, "\n".join(table(head, lines))]


def _ratio(cells: dict[tuple[str, int, str], list[Row]], group: str, d: int, method: str, which: int) -> str:
    ratios: dict[str, float] = {}
    for name in GROUP_OF:
        own, other = cells.get((name, d, method)), cells.get((name, d, DEFAULT_METHOD))
        if GROUP_OF[name] != group or own is None or other is None:
            continue
        mine, theirs = per_success(own, which), per_success(other, which)
        both = math.isinf(mine) and math.isinf(theirs)
        ratios[name] = 1.0 if both else min(max(mine / theirs, 1 / CLIP), CLIP)
    if not ratios:
        return ""
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    worst = max(ratios, key=lambda name: ratios[name])
    return f"{mean:.2f}, {ratios[worst]:.2f} ({worst})"


def _calls(rows: Sequence[Row]) -> list[str]:
    lines = []
    for method in methods_of(rows):
        if method in PEERS:
            peer = PEERS[method]
            lines.append([f"`{method}`", peer.call, peer.failed])
        else:
            more = {DEFAULT_METHOD: "surrogate=False", SURROGATE: "surrogate=True"}.get(
                method, f'method="{method}"'
            )
            lines.append([f"`{method}`", f"`fmnes.minimize({more}, restarts=20)`", "NaN"])
    return ["\n".join(table(["method", "call", "a failed evaluation is"], lines))] if lines else []


# -- The figure.


def draw(rows: Iterable[Row], path: Path) -> bool:
    """Regret against evaluations on the shared problems, a panel for each d; False if there are no rows.

    Methods with fewer runs than the others are left out: their curves could not be compared.
    """
    rows = [row for row in longest(rows) if row.key.case.suite == "shared"]
    if not rows:
        return False
    groups = _groups(rows)
    methods = methods_of(rows)
    wide = min(PANELS, len(groups))
    high = math.ceil(len(groups) / wide)
    figure = drawing.blank(8, 3.2 * high + 0.2)
    first = None
    for i, (d, members) in enumerate(groups):
        panel = figure.add_subplot(high, wide, i + 1, sharey=first)
        first = first or panel
        for method, shown, own in _by_method(members):
            curve = [(c, mean_regret(own, c)) for c in CHECKPOINTS]
            curve = [(c, regret) for c, regret in curve if not math.isnan(regret)]
            if curve and not shown.endswith("*"):
                colour, pattern = drawing.line_style(methods.index(method))
                panel.loglog(*zip(*curve, strict=True), pattern, color=colour, label=method)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="#dddddd", linewidth=0.6)
        panel.set_title(f"d = {d}", loc="left", fontsize=10)
        panel.set_xlabel("evaluations / d", fontsize=9)
        panel.set_ylabel("regret" if i % wide == 0 else "", fontsize=9)
    # Every method is in some panel: one legend for all.
    known: dict[str, Any] = {}
    for panel in figure.axes:
        known |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    figure.legend(
        known.values(), known.keys(), loc="outside lower center", ncols=5, frameon=False, fontsize=9
    )
    path.write_text(drawing.as_svg(figure) + "\n", encoding="utf-8")
    return True
