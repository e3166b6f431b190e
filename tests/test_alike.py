"""Reasons that differ in their numbers only are told as one, and the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import plots
from fmnes._text import MAX_ALIKE, group_reasons, kind_of
from fmnes.outcome import Outcome
from fmnes.run.history import MAX_POINTS, Ledger


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("mesh failed", "mesh failed"),
        ("residual 1.23e-04 after 37 steps", "residual … after … steps"),
        ("x=-0.5, y=+.25 at 0x7fA0", "x=…, y=… at …"),
        ("X3 dies out", "X… dies out"),
    ],
)
def test_a_kind_is_a_reason_without_its_numbers(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind == kind_of(kind)


def test_a_few_are_told_apart_and_many_as_one() -> None:
    few = [f"surface {i}" for i in range(MAX_ALIKE)]
    many = [f"residual {i}" for i in range(MAX_ALIKE + 1)]
    told = group_reasons([*few, *many, "mesh failed"])
    assert set(told.values()) == {*few, "residual …", "mesh failed"}


def failing(ledger: Ledger, reasons: list[str]) -> Ledger:
    for i, reason in enumerate(reasons):
        ledger.add(Outcome("infeasible", reason=reason, detail=reason), np.full(3, i))
    return ledger


def listed(ledger: Ledger) -> list[tuple[str, int, str, list[float]]]:
    return [(f.reason, f.count, f.detail, f.x[:, 0].tolist()) for f in ledger.failures()]


@pytest.mark.parametrize("cut", [0, 5, MAX_ALIKE, MAX_ALIKE + 1, 60])
def test_a_ledger_tells_them_so_also_after_it_was_saved(cut: int) -> None:
    rng = np.random.default_rng(1)
    few = [f"surface {i % 7}" for i in range(200)]
    reasons = [f"residual {x:.3e}" for x in rng.random(3 * MAX_POINTS)] + few + ["mesh failed"]
    rng.shuffle(reasons)
    ledger = failing(Ledger(), reasons)
    counts = {reason: count for reason, count, _, _ in listed(ledger)}
    told = group_reasons(reasons)
    assert counts == {as_told: sum(told[r] == as_told for r in reasons) for as_told in told.values()}
    assert counts["residual …"] == 3 * MAX_POINTS and len(counts) == 9
    (many,) = [f for f in ledger.failures() if f.reason == "residual …"]
    assert len(many.x) == MAX_POINTS
    assert many.detail == next(reason for reason in reasons if reason.startswith("residual"))

    def goes_on(ledger: Ledger) -> Ledger:
        for i, reason in enumerate(reasons[cut:], cut):
            ledger.add(Outcome("infeasible", reason=reason, detail=reason), np.full(3, i))
        return ledger

    assert listed(goes_on(Ledger.restore(*failing(Ledger(), reasons[:cut]).dump()))) == listed(ledger)


@pytest.mark.parametrize("count", [MAX_ALIKE, MAX_ALIKE + 1])
def test_a_ledger_draws_the_line_where_all_others_do(count: int) -> None:
    reasons = [f"residual {i}" for i in range(count)]
    assert {reason for reason, *_ in listed(failing(Ledger(), reasons))} == {*group_reasons(reasons).values()}


def objective(x: Any) -> float:
    if x[0] < 0.3:
        raise ValueError(f"no convergence at x={x[0]:.17g} after 37 steps")
    if x[1] < 0.1:
        raise fmnes.Infeasible(f"y={x[1]:.17g} is in the wall")
    return float(x @ x)


def test_a_result_its_run_and_its_picture_agree(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options: dict[str, Any] = {"rng": 1, "run_dir": tmp_path / "run"}
    result = fmnes.minimize(objective, [1.0, 1.0], 0.5, max_evaluations=150, **options)
    result = fmnes.resume(tmp_path / "run", objective, max_evaluations=300)
    run = fmnes.read_run(tmp_path / "run")
    whole = {(failure.reason, failure.count) for failure in result.failures}
    kinds = {"ValueError: no convergence at x=… after … steps", "y=… is in the wall"}
    assert {reason for reason, _ in whole} == kinds
    assert sum(count for _, count in whole) == result.n_infeasible
    assert {(failure.reason, failure.count) for failure in run.failures} == whole
    assert {(reason.reason, reason.count) for reason in run.reasons} == whole
    for failure in result.failures:
        (told,) = [reason for reason in run.reasons if reason.reason == failure.reason]
        x, y = failure.x[0]
        assert told.point is not None and list(told.point.values()) == [x, y]
        words = f"x={x:.17g} after 37" if "ValueError" in failure.reason else f"y={y:.17g} is"
        assert words in failure.detail and words in told.detail  # the first one's own
    labels = [bars.get_label() for bars in plots.failures(run).axes[0].containers]
    assert {label.split(" × ")[0] for label in labels} == {str(count) for _, count in whole}
