"""The tables of benchmarks/scale.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from benchmarks.scale import Case, Trial

Cells = dict[Case, list[Trial]]


def report(trials: Sequence[Trial], driver: dict[str, float]) -> str:
    cells: Cells = {}
    for trial in trials:
        cells.setdefault(trial.case._replace(seed=0), []).append(trial)
    parts = [
        ["## The driver", *driver_table(driver)],
        ["## Waiting, and overlapping generations", *schemes(cells, is_even)],
        [
            "## Slower in a region, and lost nodes",
            *schemes(cells, lambda c: c.region == "slow" or c.lost > 0),
        ],
        ["## λ beside the workers", *schemes(cells, is_small)],
        ["## From one worker to many", *sweep(cells)],
        ["## Where the driver is the limit", *limits(cells)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if len(part) > 4)


def is_even(case: Case) -> bool:
    """Of the first table: no loss, no region, no driver, λ at least half the number of workers."""
    even = case.region == "even" and case.lost == case.driver == 0
    return even and 2 * case.population >= case.workers and case.workers in (100, 1000)


def is_small(case: Case) -> bool:
    even = case.region == "even" and case.lost == case.driver == 0 and case.spread == 0.5
    return even and case.scheme == "first" and case.workers == 1000 and case.overlap > 0


def driver_table(driver: dict[str, float]) -> list[str]:
    rows = [f"| {name} | {milliseconds:.3f} |" for name, milliseconds in driver.items()]
    return ["", "| search | ms of the driver a task |", "| --- | --- |", *rows]


def schemes(cells: Cells, chosen: Callable[[Case], bool]) -> list[str]:
    titles = (
        "problem | d | workers | times | λ | overlap | utilisation | time to the target | evaluations | gain"
    )
    head = f"| {titles} |"
    rows = []
    for case, trials in sorted(cells.items(), key=lambda cell: order(cell[0])):
        if not chosen(case):
            continue
        how = f"{case.overlap:g}" + (", own λ" if case.scheme == "own" else "")
        waiting = cells.get(case._replace(overlap=0.0, scheme="first"))
        gain = time_of(waiting)[0] / time_of(trials)[0] if waiting and case.overlap else math.nan
        gained = f"{gain:.2f} ×" if math.isfinite(gain) else ""  # both reached it
        times = f"σ = {case.spread:g}" + (", slow region" if case.region == "slow" else "")
        times += f", {case.lost:.0%} lost" if case.lost else ""
        numbers = f"{mean(t.utilisation for t in trials)[0]:.1%} | {shown(time_of(trials))}{solved(trials)}"
        evaluations = shown(mean(t.evaluations for t in trials))
        where = f"| {case.problem} | {case.d} | {case.workers} | {times} | {case.population}"
        rows.append(f"{where} | {how} | {numbers} | {evaluations} | {gained} |")
    return ["", head, "|" + " --- |" * 10, *rows]


def order(case: Case) -> tuple[object, ...]:
    place = (case.spread, case.region, case.lost, case.workers, case.d, case.problem)
    return (*place, case.population, case.scheme, case.overlap)


def sweep(cells: Cells) -> list[str]:
    """λ = workers, 10 at least."""
    rows = []
    for case, trials in sorted(cells.items(), key=lambda cell: (cell[0].problem, cell[0].workers)):
        overlap = cells.get(case._replace(overlap=0.5))
        plain = case.driver == case.lost == case.overlap == 0 and case.region == "even" and case.spread == 0.5
        if not (plain and overlap and case.population == max(case.workers, 10)):
            continue
        numbers = []
        for found in (trials, overlap):
            share = mean(t.utilisation for t in found)[0]
            numbers.append(f"{share:.1%} | {shown(time_of(found))}{solved(found)}")
        where = f"| {case.problem} | {case.d} | {case.workers} | {case.population}"
        rows.append(f"{where} | {' | '.join(numbers)} |")
    head = (
        "| problem | d | workers | λ | utilisation | time to the target | utilisation, overlap = 0.5 | time |"
    )
    return ["", head, "|" + " --- |" * 8, *rows]


def limits(cells: Cells) -> list[str]:
    """What the driver leaves of the workers; with an overlap, so that nothing else keeps them waiting."""
    rows = []
    for case, trials in sorted(cells.items(), key=lambda cell: (cell[0].workers, -cell[0].driver)):
        if case.driver and case.problem == "sphere" and case.overlap == 0.5 and case.scheme == "first":
            share = mean(t.utilisation for t in trials)[0]
            rows.append(
                f"| {case.workers} | {case.driver:.2g} | {case.workers * case.driver:.2g} | {share:.1%} |"
            )
    head = (
        "| workers | the driver's task, in mean evaluations | tasks at its door, times that | utilisation |"
    )
    return ["", head, "|" + " --- |" * 4, *rows]


def mean(values: object) -> tuple[float, float]:
    """And its standard error; NaN of one value."""
    numbers = [float(value) for value in values]  # type: ignore[attr-defined]
    average = sum(numbers) / len(numbers)
    if len(numbers) < 2:
        return average, math.nan
    variance = sum((number - average) ** 2 for number in numbers) / (len(numbers) - 1)
    return average, math.sqrt(variance / len(numbers))


def time_of(trials: Sequence[Trial]) -> tuple[float, float]:
    """Of a target that is reached: what all trials took, over how many reached it."""
    reached = sum(trial.reached for trial in trials)
    if reached == len(trials):
        return mean(trial.time for trial in trials)
    return (sum(trial.time for trial in trials) / reached if reached else math.inf), math.nan


def solved(trials: Sequence[Trial]) -> str:
    reached = sum(trial.reached for trial in trials)
    return "" if reached == len(trials) else f" ({reached} of {len(trials)})"


def shown(found: tuple[float, float]) -> str:
    value, error = found
    text = f"{value:.0f}" if math.isfinite(value) else "never"
    return text if math.isnan(error) else f"{text} ± {error:.1g}" if error < 1 else f"{text} ± {error:.0f}"
