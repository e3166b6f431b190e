"""What failing points have in common, where the answer is known. src/fmnes/analysis/"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes.analysis.effects import importance
from fmnes.analysis.explanation import Explanation, explanation_of, with_error
from fmnes.analysis.prediction import Prediction, prediction
from fmnes.analysis.rules import Rule, _information, _log_tail
from fmnes.reading.data import Table
from fmnes_bench.few import problems

NO_LOGS: frozenset[str] = frozenset()


def table(points: Mapping[str, Any], value: Any, reason: Any = "it broke") -> Table:
    """Evaluations with these points; a value of NaN is a failure."""
    value = np.asarray(value, dtype=float)
    n, failed = len(value), np.isnan(value)
    reasons = np.where(failed, np.broadcast_to(np.asarray(reason, dtype=object), n), "")
    nothing = np.zeros(n, np.int64)
    columns = {k: np.asarray(v, float) for k, v in points.items()}
    return Table(nothing, nothing, value, failed, reasons, np.zeros(n, dtype=bool), columns)


def uniform(n: int, d: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f"p{i}": rng.uniform(size=n) for i in range(d)}


def rule_of(found: Explanation, reason: str = "it broke") -> Rule:
    (one,) = [failure for failure in found.failures if failure.reason == reason]
    assert one.rule is not None
    return one.rule


def failing(points: Mapping[str, Any], failed: Any, value: Any = None) -> Explanation:
    value = sum(points.values()) if value is None else value
    return explanation_of(table(points, np.where(failed, np.nan, value)), NO_LOGS)


# -- rules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [30, 100, 1000, 20_000])
def test_a_half_space_is_one_condition(n: int) -> None:
    points = uniform(n, 5)
    failed = points["p2"] < 0.3
    rule = rule_of(failing(points, failed))
    (condition,) = rule.conditions
    assert (condition.name, condition.relation) == ("p2", "<")
    # Between the last failing point and the first that works.
    assert points["p2"][failed].max() < condition.value < points["p2"][~failed].min()
    assert rule.covered == rule.described == rule.points == rule.failed == failed.sum()


def test_the_numbers_are_those_of_a_fuzzy_edge() -> None:
    points = uniform(2000, 3)
    noise = np.random.default_rng(1).uniform(size=2000)
    failed = noise < np.where(points["p1"] > 0.7, 0.9, 0.05)
    found = failing(points, failed)
    rule = rule_of(found)
    (condition,) = rule.conditions
    assert (condition.name, condition.relation) == ("p1", ">")
    assert condition.value == pytest.approx(0.7, abs=0.01)
    inside = points["p1"] > condition.value
    assert rule.points == inside.sum() and rule.failed == (inside & failed).sum() == rule.covered
    assert rule.described == failed.sum()
    percent = round(100 * rule.covered / rule.described), round(100 * rule.failed / rule.points)
    assert found.about_failures == (
        f"it broke: {percent[0]} % of the {failed.sum()} points have {condition}; of all {inside.sum()} "
        f"evaluated points with {condition}, {percent[1]} % failed.",
    )


@pytest.mark.parametrize(("low", "high"), [(0.6, math.inf), (-math.inf, 0.4)])
def test_a_corner_is_two_conditions(low: float, high: float) -> None:
    points = uniform(400, 6)
    failed = (points["p1"] > low) & (points["p1"] < high) & (points["p4"] < 0.5)
    rule = rule_of(failing(points, failed))
    assert {condition.name for condition in rule.conditions} == {"p1", "p4"}
    assert rule.covered == rule.described == rule.points == rule.failed == failed.sum()


def test_a_band_is_an_interval() -> None:
    points = uniform(500, 4)
    rule = rule_of(failing(points, (points["p3"] > 0.4) & (points["p3"] < 0.6)))
    assert rule.region == "0.4 < p3 < 0.6"
    assert rule.points == rule.failed == rule.described


def test_both_sides_of_an_interval_are_one_rule() -> None:
    points = uniform(300, 4)
    failed = (points["p1"] < 0.25) | (points["p1"] > 0.7)
    rule = rule_of(failing(points, failed))
    low, high = rule.conditions
    assert rule.outside and (low.relation, high.relation) == ("<", ">")
    assert low.value == pytest.approx(0.25, abs=0.02) and high.value == pytest.approx(0.7, abs=0.02)
    assert rule.region == f"{low} or {high}"
    assert rule.covered == rule.described == rule.points == rule.failed == failed.sum()
    whole = {"layers": np.random.default_rng(2).integers(1, 9, 300), "width": points["p0"]}
    rule = rule_of(failing(whole, (whole["layers"] < 3) | (whole["layers"] > 6)))
    assert rule.region == "layers < 3 or layers > 6"
    assert rule.points == rule.failed == rule.described


def test_a_second_condition_that_adds_little_is_left_out() -> None:
    points = uniform(1000, 3)
    failed = (points["p0"] < 0.5) & (points["p1"] > 0.02)
    assert [condition.name for condition in rule_of(failing(points, failed)).conditions] == ["p0"]


def test_chance_adds_no_second_condition() -> None:
    """Of 60 fuzzy half spaces at most 0.6 get one on average; more than 4 are less likely than 0.001."""
    two = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, 12])
        points = uniform(60, 8, seed)
        failed = rng.uniform(size=60) < np.where(points["p0"] < 0.5, 0.75, 0.02)
        (one,) = failing(points, failed).failures
        two += one.rule is not None and len(one.rule.conditions) == 2
    assert two <= 4


def test_a_rule_covers_at_least_half_of_what_it_describes() -> None:
    points = uniform(600, 3)
    failed = (points["p0"] < 0.15) | (points["p1"] < 0.14) | (points["p2"] < 0.13)
    rule = rule_of(failing(points, failed, np.ones(600)))
    assert 2 * rule.covered >= rule.described


def test_two_reasons_have_a_rule_each() -> None:
    points = uniform(500, 4)
    thin, high = points["p0"] < 0.25, points["p3"] > 0.8
    reason = np.where(thin, "too thin", "too high")  # what is both was found to be too thin
    value = np.where(thin | high, np.nan, points["p1"])
    found = explanation_of(table(points, value, reason), NO_LOGS)
    first, second = rule_of(found, "too thin"), rule_of(found, "too high")
    assert str(first.conditions[0]).startswith("p0 < 0.2") and len(first.conditions) == 1
    assert str(second.conditions[0]).startswith("p3 > 0.8") and len(second.conditions) == 1
    assert first.covered == first.described == thin.sum()
    # All points with p3 > 0.8 fail, some of them for the other reason.
    assert second.covered == (high & ~thin).sum() and second.points == second.failed == high.sum()
    assert len(found.about_failures) == 2


def test_many_rare_reasons_are_described_together() -> None:
    points = uniform(400, 3)
    failed = points["p1"] > 0.9
    names = np.array([f"element {'abcdefghijklmnopqrst'[i % 20]} is tangled" for i in range(400)], object)
    found = explanation_of(table(points, np.where(failed, np.nan, 1.0), names), NO_LOGS)
    assert found.failures[-1].reason == "" and len(found.failures) == 6
    assert rule_of(found, "").covered == failed.sum()
    assert found.about_failures[-1].startswith("Of all failures, all ")


def test_most_points_fail_and_the_working_ones_are_described() -> None:
    points = uniform(600, 3)
    works = (points["p0"] > 0.6) & (points["p2"] < 0.4)
    found = failing(points, ~works)
    assert found.working is not None
    assert {condition.name for condition in found.working.conditions} == {"p0", "p2"}
    assert found.working.covered == found.working.described == works.sum() and found.working.failed == 0
    assert any("points that work have" in sentence for sentence in found.about_failures)
    assert failing(points, works).working is None


def test_whole_numbers_are_reported_as_such() -> None:
    rng = np.random.default_rng(3)
    points = {
        "layers": rng.integers(1, 9, 300),
        "teeth": rng.integers(1, 500, 300),
        "width": rng.uniform(size=300),
    }
    assert rule_of(failing(points, points["layers"] <= 2)).region == "layers ≤ 2"
    assert rule_of(failing(points, points["layers"] == 4)).region == "layers = 4"
    (condition,) = rule_of(failing(points, points["teeth"] >= 300)).conditions
    assert condition.relation == "≥" and condition.value in points["teeth"]


def test_thresholds_are_in_the_users_units_and_short() -> None:
    rng = np.random.default_rng(4)
    points = {"rate": np.exp(rng.uniform(math.log(1e-9), math.log(1e3), 200)), "other": rng.uniform(size=200)}
    failed = points["rate"] < 1e-4
    found = explanation_of(table(points, np.where(failed, np.nan, 1.0)), frozenset({"rate"}))
    (condition,) = rule_of(found).conditions
    assert points["rate"][failed].max() < condition.value < points["rate"][~failed].min()
    assert len(str(condition)) <= len("rate < 0.00011")
    # A logarithm turns no rule into another one.
    plain = rule_of(failing(points, failed))
    assert (plain.covered, plain.points) == (found.failures[0].rule.covered, found.failures[0].rule.points)


@pytest.mark.parametrize("share", [0.03, 0.3, 0.7, 0.97])
def test_random_failures_have_no_sentence(share: float) -> None:
    """In 100 runs chance gives at most 1 rule on average; more than 5 of them are less likely than 0.001."""
    said = 0
    for seed in range(100):
        rng = np.random.default_rng([seed, 7])
        points = uniform(120, 5, seed)
        found = failing(points, rng.uniform(size=120) < share, rng.normal(size=120))
        said += bool(found.about_failures)
    assert said <= 5


def test_one_success_among_hundreds_of_failures_says_nothing() -> None:
    points = uniform(300, 4)
    failed = np.full(300, True)
    failed[17] = False
    found = failing(points, failed)
    assert found.failed == 299 and found.sentences == () and found.failures[0].rule is None
    assert str(found) == "The evaluations show no clear pattern."


def test_no_failures_all_failures_and_nothing_at_all() -> None:
    points = uniform(50, 2)
    found = failing(points, np.full(50, False))
    assert found.failures == () and found.about_failures == () and found.failure.shares == {}
    found = failing(points, np.full(50, True))
    assert found.sentences == ("Every one of 50 evaluated points failed.",)
    found = explanation_of(table({}, []), NO_LOGS)
    assert (found.evaluations, found.failures, found.sentences) == (0, (), ())
    # Points of more than 10,000 coordinates are not kept.
    found = explanation_of(table({}, [1.0] * 20 + [np.nan] * 30), NO_LOGS)
    assert found.failed == 30 and found.sentences == ()


def test_points_at_one_place_count_once() -> None:
    """A hundred failures of one cluster are no evidence about parameters that do not vary elsewhere."""
    rng = np.random.default_rng(5)
    spread = rng.uniform(size=(60, 3))
    failed = spread[:, 0] < 0.3
    cluster = np.array([0.31, 0.9, 0.9]) + 1e-6 * rng.normal(size=(500, 3))
    x = np.concatenate([spread, cluster])
    points = {f"p{i}": x[:, i] for i in range(3)}
    found = failing(points, np.concatenate([failed, np.full(500, False)]))
    (condition,) = rule_of(found).conditions
    assert condition.name == "p0" and 0.25 < condition.value < 0.35
    assert next(iter(found.failure.shares)) == "p0"


def test_a_rule_is_of_the_region_searched_and_not_of_its_densest_part() -> None:
    rng = np.random.default_rng(5)
    spread = rng.uniform(size=(200, 3))
    dense = [0.29, 0.5, 0.5] + 0.02 * rng.uniform(-1, 1, size=(3000, 3))
    failed = np.concatenate([spread[:, 0] < 0.3, (dense[:, 0] < 0.3) & (dense[:, 1] > 0.5)])
    x = np.concatenate([spread, dense])
    found = failing({f"p{i}": x[:, i] for i in range(3)}, failed)
    assert [condition.name for condition in rule_of(found).conditions] == ["p0"]


def test_shares_are_of_the_region_searched_and_not_of_its_densest_part() -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(size=(100, 2)), 0.5 + rng.uniform(-1, 1, size=(3000, 2)) * [0.02, 1e-4]])
    value = (x[:, 0] - 0.5) ** 2 + 100 * (x[:, 1] - 0.5) ** 2
    found = importance({"a": x[:, 0], "b": x[:, 1]}, value, NO_LOGS)
    assert found.shares["b"] > 0.95 and found.points < 110


@pytest.mark.parametrize(("n", "total", "m"), [(12, 5, 6), (30, 3, 10), (9, 8, 4)])
def test_the_tail_of_chance_is_that_of_all_draws(n: int, total: int, m: int) -> None:
    labels = [1] * total + [0] * (n - total)
    hits = [sum(labels[i] for i in rows) for rows in itertools.combinations(range(n), m)]
    for k in range(max(0, m + total - n), min(m, total) + 1):
        share = sum(hit >= k for hit in hits) / len(hits)
        assert math.exp(_log_tail(k, m, total, n)) == pytest.approx(share, rel=1e-9)


def test_information_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(6)
    inside, y = rng.uniform(size=200) < 0.4, rng.uniform(size=200) < 0.2

    def entropy(*groups: np.ndarray) -> float:
        shares = [group.mean() for group in groups if group.any()]
        return -sum(share * math.log(share) for share in shares)

    joint = entropy(inside & y, inside & ~y, ~inside & y, ~inside & ~y)
    definition = 200 * (entropy(y, ~y) + entropy(inside, ~inside) - joint)
    counts = (np.array([(inside & y).sum()]), np.array([inside.sum()]))
    assert _information(*counts, int(y.sum()), 200)[0] == pytest.approx(definition)


# -- parameters -------------------------------------------------------------------------------------------


def test_shares_are_those_of_an_additive_function() -> None:
    """Of 3 a + b the variance is 90 and 10 %; ranks change that little."""
    points = uniform(3000, 4)
    value = 3 * points["p2"] + points["p0"]
    found = failing(points, np.full(3000, False), value)
    assert list(found.value.shares) == ["p2", "p0"]
    assert found.value.shares["p2"] == pytest.approx(0.9, abs=0.03)
    assert sum(found.value.shares.values()) == pytest.approx(1) and found.value.explained > 0.95
    (sentence,) = found.about_parameters
    assert sentence.startswith("The value depends most on p2 (9") and "and p0 (" in sentence


def test_a_parabola_counts_although_it_has_no_slope() -> None:
    points = uniform(200, 3)
    found = failing(points, np.full(200, False), (points["p1"] - 0.5) ** 2)
    assert list(found.value.shares) == ["p1"] and found.value.explained > 0.8


def test_scales_of_values_and_parameters_do_not_matter() -> None:
    points = uniform(300, 3)
    value = points["p0"] + 2 * (points["p1"] - 0.4) ** 2
    first = importance(points, value, NO_LOGS)
    scaled = {name: 1e200 * column for name, column in points.items()}
    second = importance(scaled, np.exp(300 * value), NO_LOGS)
    assert list(first.shares) == list(second.shares)
    assert list(first.shares.values()) == pytest.approx(list(second.shares.values()))


def test_noise_has_no_clear_difference() -> None:
    named = 0
    for seed in range(100):
        points = uniform(60, 40, seed)
        value = np.random.default_rng([seed, 8]).normal(size=60)
        named += bool(failing(points, np.full(60, False), value).value.shares)
    assert named <= 6


@pytest.mark.parametrize("value", [1.0, 1e300, 0.0])
def test_a_constant_objective_depends_on_nothing(value: float) -> None:
    points = uniform(100, 3)
    found = failing(points, np.full(100, False), np.full(100, value))
    assert found.value.shares == {} and found.sentences == ()


def test_one_parameter_is_not_compared() -> None:
    points = uniform(100, 1)
    found = failing(points, points["p0"] < 0.3)
    assert found.value.shares == {} == found.failure.shares
    assert found.about_failures and not found.about_parameters


@pytest.mark.parametrize("n", [0, 1, 2, 5, 12])
def test_few_points_give_no_warning_and_no_claim(n: int) -> None:
    points = uniform(n, 30)
    assert failing(points, np.arange(n) % 2 == 0).sentences in (
        (),
        ("Every one of 1 evaluated points failed.",),
    )


def test_hostile_numbers() -> None:
    rng = np.random.default_rng(9)
    points = {
        "wide": 1.7e308 * rng.uniform(-1, 1, 80),
        "same": np.full(80, 3.0),
        "copy": np.repeat([1.0, 2.0], 40),
        "tiny": np.repeat([5e-324, 0.0, 1e-323, 1e-310], 20),
    }
    failed = points["wide"] < 0
    found = explanation_of(
        table(points, np.where(failed, np.nan, 10.0 ** rng.uniform(-300, 300, 80))), frozenset({"tiny"})
    )
    assert rule_of(found).region == "wide < 0"


def test_duplicates_alone() -> None:
    points = {"a": np.repeat([0.0, 1.0], 50), "b": np.tile([0.0, 1.0], 50)}
    found = failing(points, points["a"] == 0)
    assert list(found.failure.shares) == ["a"]
    assert found.sentences  # no exception


# -- runs -------------------------------------------------------------------------------------------------


def simulate(p: dict[str, Any]) -> float:
    if p["thickness"] < 0.5:
        raise fmnes.Infeasible("too thin")
    return (p["thickness"] - 1) ** 2 + p["layers"] + 0.01 * p["angle"]


SPACE = {
    "thickness": fmnes.Real(0.1, 10, log=True),
    "angle": fmnes.Real(0, 3),
    "layers": fmnes.Integer(1, 12),
}


def test_a_result_and_a_directory_give_the_same(tmp_path: Path) -> None:
    run_dir = tmp_path / "beam.run"
    result = fmnes.minimize(
        simulate, SPACE, rng=1, max_evaluations=150, run_dir=run_dir, keep_evaluations=True
    )
    found = fmnes.explain(result)
    assert found == fmnes.explain(run_dir) == fmnes.explain(fmnes.read_run(run_dir))
    assert (found.evaluations, found.failed) == (result.nfev, result.n_infeasible)
    (condition,) = rule_of(found, "too thin").conditions
    assert condition.name == "thickness" and 0.4 < condition.value < 0.6
    assert next(iter(found.value.shares)) == "layers"


def test_the_report_has_the_sentences_the_shares_and_the_map(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from fmnes.html import document

    hostile = "<b>&amp;</b>"

    def fails(p: dict[str, Any]) -> float:
        if p[hostile] < 0.5:
            raise fmnes.Infeasible(f"too thin {hostile}")
        return p[hostile] ** 2 + p["layers"]

    space = {hostile: fmnes.Real(0.1, 10, log=True), "layers": fmnes.Integer(1, 12)}
    fmnes.minimize(fails, space, rng=1, max_evaluations=150, surrogate=False, run_dir=tmp_path / "a.run")
    run = fmnes.read_run(tmp_path / "a.run")
    part = document.drawn("explained", run)
    for sentence in fmnes.explain(run).sentences:
        assert f"<p>{html.escape(sentence)}</p>" in part
    assert "<b>" not in part and "share for failure" in part and part.count("<svg") == 1
    assert part in document.report(tmp_path / "a.run")

    fmnes.minimize(lambda p: 1.0, space, rng=1, max_evaluations=30, run_dir=tmp_path / "b.run")
    part = document.drawn("explained", fmnes.read_run(tmp_path / "b.run"))
    assert "no clear pattern" in part and "<svg" not in part


def test_show_prints_the_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("typer")
    from fmnes.cli import app

    run = tmp_path / "beam.run"
    fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=150, run_dir=run)
    app(["show", str(run)], standalone_mode=False)
    shown = capsys.readouterr().out
    sentences = fmnes.explain(run).sentences
    assert len(sentences) >= 2 and all(sentence in shown for sentence in sentences)
    app(["show", str(run), "--failures"], standalone_mode=False)
    assert sentences[0] not in capsys.readouterr().out


def test_failures_that_were_taken_back_do_not_count(tmp_path: Path) -> None:
    calls = 0

    def breaks(x: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        if calls in range(40, 60):
            raise fmnes.Infeasible("no disk")
        return float(x @ x) if x[0] > -0.5 else math.nan

    run = tmp_path / "run"
    fmnes.minimize(breaks, [1.0, 2.0], 0.5, rng=1, max_evaluations=100, run_dir=run)
    assert fmnes.explain(run).failures[0].reason == "no disk"
    fmnes.resume(run, breaks, forget_failures="no disk", max_evaluations=100)
    found, read = fmnes.explain(run), fmnes.read_run(run)
    assert (found.evaluations, found.failed) == (read.answered, read.failed) == (100, found.failed)
    assert "no disk" not in {one.reason for one in found.failures}


def test_a_result_without_evaluations_is_refused() -> None:
    result = fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=20)
    with pytest.raises(fmnes.ArgumentError, match="keep_evaluations=True"):
        fmnes.explain(result)


def test_a_long_run_near_its_optimum_still_names_the_region() -> None:
    """Most points lie near the optimum, at the edge of what works."""

    def edge(x: np.ndarray) -> float | None:
        return float(x[0] + (x[1] - 0.5) ** 2 + (x[2] - 0.5) ** 2) if x[0] > 0.2 else None

    result = fmnes.minimize(edge, bounds=[(0, 1)] * 3, rng=2, max_evaluations=2000, keep_evaluations=True)
    rule = rule_of(fmnes.explain(result), "returned None")
    (condition,) = rule.conditions
    assert (condition.name, condition.relation) == ("x0", "<")
    assert condition.value == pytest.approx(0.2, abs=0.05)


def test_random_failures_of_a_search_say_nothing() -> None:
    said = 0
    for seed in range(20):
        rng = np.random.default_rng([seed, 11])
        result = fmnes.minimize(
            lambda x, rng=rng: float(x @ x) if rng.uniform() > 0.3 else None,
            np.ones(4),
            1.0,
            rng=seed,
            max_evaluations=300,
            keep_evaluations=True,
        )
        said += bool(fmnes.explain(result).about_failures)
    assert said <= 2


# -- the expected optimum ---------------------------------------------------------------------------------


def expected(points: Mapping[str, Any], value: Any, logs: frozenset[str] = NO_LOGS) -> Prediction:
    found = prediction(table(points, value), logs)
    assert found is not None
    return found


def bowl(points: Mapping[str, Any]) -> np.ndarray:
    """The optimum is 1, at 0.6."""
    return np.asarray(1 + sum((i + 1) * (p - 0.6) ** 2 for i, p in enumerate(points.values())))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_optimum_of_a_bowl_is_announced(d: int) -> None:
    points = uniform(30 * d, d)
    found = expected(points, bowl(points))
    assert found.better and found.value + found.error < found.best == bowl(points).min()
    there = float(bowl({name: np.array(at) for name, at in found.parameters.items()}))
    assert abs(there - found.value) <= 2 * found.error and there < found.best
    (sentence,) = explanation_of(table(points, bowl(points)), NO_LOGS).about_optimum
    assert with_error(found.value, found.error) in sentence and "Evaluate this point" in sentence


def test_a_better_point_that_is_expected_to_fail_is_not_announced() -> None:
    points = uniform(100, 2)
    fails = points["p0"] > 0.4  # and with it the optimum of the bowl
    found = expected(points, np.where(fails, np.nan, bowl(points)))
    works = points["p0"][~fails]
    assert 0.3 < found.parameters["p0"] < 0.4 and found.parameters["p0"] <= works.max() + 0.01


def test_points_that_violate_a_limit_are_no_answers() -> None:
    points = uniform(100, 2)
    *columns, _, named = table(points, bowl(points))
    answer = prediction(Table(*columns, points["p0"] > 0.4, named), NO_LOGS)
    assert answer is not None and answer.parameters["p0"] < 0.41
    assert answer.best == bowl(points)[points["p0"] <= 0.4].min()


def test_values_without_order_announce_nothing() -> None:
    said = 0
    for seed in range(20):
        values = np.random.default_rng([seed, 3]).standard_normal(60)
        found = prediction(table(uniform(60, 3, seed), values), NO_LOGS)
        assert found is None or not found.better
        said += found is not None
    assert said <= 4


def test_after_convergence_no_better_point_is_announced() -> None:
    result = fmnes.minimize(
        lambda x: float(x @ x) + 1, [1.0, 2.0], 0.5, rng=1, max_evaluations=300, keep_evaluations=True
    )
    found = fmnes.explain(result)
    assert result.fun < 1 + 1e-8
    assert found.predicted is None or (not found.predicted.better and found.predicted.error < 1e-3)
    assert "Evaluate this point" not in str(found)


def test_whole_parameters_stay_whole_and_logarithms_are_their_own() -> None:
    rng = np.random.default_rng(5)
    points = {"rate": np.exp(rng.uniform(-5, 5, 80)), "layers": 2 + 3 * rng.integers(0, 7, 80).astype(float)}
    value = (np.log(points["rate"]) - 1) ** 2 + (points["layers"] - 9.5) ** 2 / 10
    found = expected(points, value, frozenset({"rate"}))
    assert found.parameters["layers"] in (8.0, 11.0)
    assert found.parameters["rate"] == pytest.approx(math.e, rel=0.2)


def test_the_scales_of_parameters_and_values_do_not_matter() -> None:
    points = uniform(60, 2)
    one = expected(points, bowl(points))
    far = {"p0": 1e-9 * points["p0"], "p1": 1e9 + 1e8 * points["p1"]}
    other = expected(far, 1e200 * bowl(points))
    assert other.better and other.value == pytest.approx(1e200 * one.value, rel=1e-4)
    assert other.parameters["p0"] == pytest.approx(1e-9 * one.parameters["p0"], rel=1e-2)


def test_what_cannot_be_modelled_predicts_nothing() -> None:
    points = uniform(40, 2)
    assert prediction(table({}, [1.0] * 40), NO_LOGS) is None
    assert prediction(table(points, np.full(40, np.nan)), NO_LOGS) is None
    assert prediction(table(points, np.ones(40)), NO_LOGS) is None
    assert prediction(table(uniform(5, 2), np.arange(5.0)), NO_LOGS) is None
    assert prediction(table(uniform(200, 21), np.arange(200.0)), NO_LOGS) is None
    assert prediction(table({**points, "c (choice no.)": np.arange(40) % 2}, bowl(points)), NO_LOGS) is None
    assert explanation_of(table(points, bowl(points)), NO_LOGS, noisy=True).predicted is None


def test_what_is_said_of_the_optimum_is_mostly_true() -> None:
    """benchmarks/prediction.py has the numbers."""
    within, better = [], []
    for name, instance in itertools.product(problems.FORMULAS, range(3)):
        fun, x0, lower, upper = problems.make(name, 2, instance)
        options = {"max_evaluations": 40, "rng": instance, "keep_evaluations": True, "surrogate": False}
        result = fmnes.minimize(
            fun, x0, problems.SIGMA0, bounds=list(zip(lower, upper, strict=True)), **options
        )
        found = fmnes.explain(result).predicted
        if found is not None:
            there = fun(np.array(list(found.parameters.values())))
            within.append(abs(there - found.value) <= found.error)
            better += [there < found.best] * found.better
    assert len(within) >= 24 and np.mean(within) > 0.67
    assert len(better) >= 6 and np.mean(better) > 0.67


def test_a_number_has_the_digits_that_its_error_allows() -> None:
    assert with_error(10.51834, 0.1312) == "10.52 ± 0.13"
    assert with_error(0.00012346, 0.0000021) == "0.0001235 ± 2.1e-06"
    assert with_error(-1234567.0, 3210.0) == "-1.2346e+06 ± 3.2e+03"
    assert with_error(512.0, 34.0) == "512 ± 34"
    assert with_error(2.0, 0.0) == "2 ± 0"


def test_the_report_has_the_expected_optimum_beside_the_best_point(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from fmnes.html import document

    def bent(p: dict[str, float]) -> float:
        return (p["<b>"] - 0.3) ** 2 + (p["height"] - p["<b>"]) ** 2

    space = {"<b>": fmnes.Real(0, 1), "height": fmnes.Real(0, 1)}
    fmnes.minimize(bent, space, rng=2, max_evaluations=25, surrogate=False, run_dir=tmp_path / "a.run")
    run = fmnes.read_run(tmp_path / "a.run")
    found = fmnes.explain(run).predicted
    assert found is not None and found.better
    part = document.drawn("explained", run)
    assert "expected optimum" in part and with_error(found.value, found.error) in part
    assert "<b>" not in part
