"""The simulation of many workers: its clock, its losses, its driver, and that it can be taken up again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scale, scale_report
from benchmarks.scale import Case, Trial

CASE = Case("sphere", 5, 20, 20, 0.0, "first", 0.5, "even", 0.0, 0.0, 1)


def run(**changes: object) -> Trial:
    return scale.run(*CASE._replace(**changes))  # type: ignore[arg-type]


def test_one_worker_is_always_busy_and_takes_a_mean_evaluation_each() -> None:
    trial = run(workers=1)
    assert trial.reached and trial.utilisation == pytest.approx(1)
    assert trial.time == pytest.approx(trial.evaluations, rel=0.1)


def test_evaluations_of_equal_length_keep_all_workers_busy() -> None:
    trial = run(spread=0.0)
    assert trial.utilisation == pytest.approx(1, abs=0.02)  # but for those of the last generation
    assert trial.time == pytest.approx(trial.generations + 1)


def test_the_longer_the_tail_the_longer_the_wait_and_ahead_ends_it() -> None:
    waits = [run(spread=spread).utilisation for spread in (0.0, 0.5, 1.0)]
    assert waits[0] > waits[1] + 0.3 > waits[2] + 0.4
    overlap = run(overlap=1.0)
    assert overlap.utilisation > 0.95
    assert run(overlap=0.5).time < overlap.time < 0.7 * run().time
    assert run(overlap=1.0, scheme="own").utilisation < overlap.utilisation


def test_the_driver_serves_one_after_another() -> None:
    trial = run(overlap=1.0, driver=0.1)  # twice as many tasks at its door as it has time for
    assert trial.time == pytest.approx(0.1 * trial.evaluations, rel=0.05)
    assert trial.utilisation == pytest.approx(0.5, rel=0.15)
    assert run(driver=1e-9).time == pytest.approx(run().time, rel=1e-5)


def test_lost_evaluations_are_made_again_and_their_nodes_are_away() -> None:
    trial, without = run(lost=0.2, spread=0.0), run(spread=0.0)
    assert (trial.reached, trial.generations) == (True, without.generations)
    assert trial.time > without.time and trial.utilisation < 0.6


def test_a_slow_region_is_half_of_the_space_and_the_mean_stays() -> None:
    trial = run(region="slow", spread=0.0, workers=1)
    assert trial.time == pytest.approx(trial.evaluations, rel=0.25)
    assert run(region="slow", spread=0.0).utilisation < 0.7


def test_trials_are_kept_as_they_were() -> None:
    trial = run(overlap=0.5, driver=2e-05)
    fields = scale.as_line(trial).split(",")
    again = scale.of_fields(fields)
    assert again.case == trial.case
    assert again.time == pytest.approx(trial.time, rel=1e-5)
    assert len(fields) == len(scale.HEADER.split(","))


def test_every_part_has_its_trials_and_its_table(tmp_path: Path) -> None:
    for part in scale.PARTS:
        assert scale.study(part, 1e-4, 2), part
    trials = [
        run(workers=100, population=100, overlap=overlap, seed=seed)
        for overlap in (0.0, 0.5)
        for seed in (0, 1)
    ]
    trials += [run(workers=100, population=100, lost=0.01), run(overlap=0.5, driver=0.01)]
    text = scale_report.report(trials, {"d = 5": 0.1})
    for title in ("The driver", "Waiting", "lost nodes", "From one worker", "Where the driver"):
        assert title in text
    (row,) = [line for line in text.splitlines() if "| 100 | 0.5 |" in line and "×" in line]
    assert "2." in row.split("|")[-2] or "3." in row.split("|")[-2]
