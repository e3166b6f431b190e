"""`fmnes bench coco`: what is counted on COCO's problems, and that a study goes on where it was stopped."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fmnes import ArgumentError, FmnesError
from fmnes.cli import app
from fmnes_bench.coco import chosen_functions, coco, numbers, report
from fmnes_bench.coco.runs import (
    NOMAD_BUDGET,
    SUITES,
    TARGETS,
    Case,
    Finished,
    Job,
    Recorder,
    Run,
    area,
    evaluate,
    jobs_for,
    method_named,
    open_store,
    opened,
    optimal_value,
    run_job,
    start_of,
)
from tests.rows import through

cocoex = pytest.importorskip("cocoex")

SPHERE = Case("bbob", 1, 1, 2)
CASES = [SPHERE, Case("bbob", 8, 3, 5), Case("bbob-constrained", 3, 1, 2), Case("bbob-mixint", 8, 2, 5)]


def run_of(case: Case, hits: tuple[int, ...], method: str = "fm-nes", budget: int = 100) -> Run:
    return Run(Job(case, method, budget), 7, 0, 1.0, 0.1, hits)


# -- what is measured -------------------------------------------------------------------------------------


def test_targets_are_the_51_of_the_study() -> None:
    assert len(TARGETS) == 51 and TARGETS[0] == 100 and TARGETS[-1] == pytest.approx(1e-8, rel=1e-14)
    np.testing.assert_allclose(np.diff(np.log10(TARGETS)), -0.2, atol=1e-12)


def test_area_by_hand() -> None:
    assert area((), 2, 100) == 0
    assert area([2] * 51, 2, 100) == 1
    # One evaluation per dimension fills all, ten of a hundred half, a hundred nothing.
    assert area([2, 20, 200], 2, 100) == pytest.approx(1.5 / 51)
    assert area([1, 20], 2, 100) == pytest.approx(1.5 / 51)  # sooner than d counts as d
    assert area([20, 400], 2, 100) == pytest.approx(0.5 / 51)  # a run with more evaluations, cut
    assert area([20, 400], 2, 10_000) == pytest.approx((0.75 + (1 - math.log10(200) / 4)) / 51)


def test_the_recorder_counts_every_evaluation_and_each_target_once() -> None:
    values = iter([500.0, np.nan, 103.0, np.inf, 104.0, 3.0 + 10**0.9])
    fun = Recorder(lambda x: next(values), optimum=3.0, max_evaluations=6)
    told = [fun([0.0]) for _ in range(6)]
    assert told[0] == 500 and math.isnan(told[1]) and math.isnan(told[3]) and told[4] == 104
    assert (fun.evaluations, fun.failed) == (6, 2)
    assert fun.hits == [3, 6, 6, 6, 6, 6]  # 10² at once, then 10^1.8 … 10^1.0; 10^0.8 is not reached
    assert fun.finished
    with pytest.raises(Finished):
        fun([0.0])
    assert fun.evaluations == 6


def test_a_run_ends_with_its_last_target() -> None:
    fun = Recorder(lambda x: 3.0 + 1e-9, optimum=3.0, max_evaluations=100)
    fun([0.0])
    assert fun.hits == [1] * 51
    with pytest.raises(Finished):
        fun([0.0])


# -- COCO's problems --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_best_value_is_cocos(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    best = optimal_value(case)
    if case.suite == "bbob":
        bare = cocoex.BareProblem("bbob", case.function, case.dimension, case.instance)
        assert best == pytest.approx(bare.best_value(), abs=1e-12)
    assert not list(tmp_path.iterdir())  # COCO writes a file to find it out
    # COCO knows its own last target, 1e-8, and says when it was reached: that must be ours.
    with opened(case) as problem:
        fun = Recorder(lambda x: evaluate(problem, x), best, 3000)
        start = start_of(case, problem)
        name = "cmawm" if start.integers.any() else "cma-es"
        with pytest.raises(Finished):
            method_named(name)(watched(fun, problem), start, 3000, 1)
        assert problem.final_target_hit and fun.best <= 1e-8
        assert problem.evaluations == fun.evaluations
        assert (fun.failed > 0) == (case.suite == "bbob-constrained")


def watched(fun: Recorder, problem: Any) -> Any:
    """Both agree after every evaluation."""

    def call(x: Any) -> float:
        value = fun(x)
        assert problem.final_target_hit == (len(fun.hits) == len(TARGETS))
        return value

    return call


def test_a_violated_constraint_is_a_failure_and_no_more() -> None:
    with opened(Case("bbob-constrained", 3, 1, 2)) as problem:
        start = start_of(Case("bbob-constrained", 3, 1, 2), problem)
        assert math.isfinite(evaluate(problem, start.x0))
        rng = np.random.default_rng(1)
        for x in rng.uniform(-5, 5, (100, 2)):
            assert math.isnan(evaluate(problem, x)) == (problem.constraint(x).max() > 0)


def test_starts() -> None:
    with opened(SPHERE) as problem:
        first, again = start_of(SPHERE, problem), start_of(SPHERE, problem)
    np.testing.assert_array_equal(first.x0, again.x0)
    assert (np.abs(first.x0) <= 4).all() and (first.sigma0 == 2).all() and not first.bounded
    with opened(SPHERE._replace(instance=2)) as problem:
        assert (start_of(SPHERE._replace(instance=2), problem).x0 != first.x0).all()
    case = Case("bbob-mixint", 1, 1, 5)
    with opened(case) as problem:
        start = start_of(case, problem)
    assert start.bounded and start.integers.tolist() == [True] * 4 + [False]
    np.testing.assert_allclose(start.sigma0, [0.2, 0.6, 1.4, 3.0, 2.0])


def test_groups_name_every_function_once() -> None:
    for name, suite in SUITES.items():
        problems = cocoex.Suite(name, "instances: 1", f"dimensions: {suite.dimensions[0]}")
        assert suite.functions == sorted({problem.id_function for problem in problems})
        assert suite.dimensions == tuple(cocoex.Suite(name, "instances: 1", "function_indices: 1").dimensions)


@through(
    ("method", "case"),
    [
        ("fm-nes", SPHERE),
        ("fm-nes", CASES[2]),
        ("cma-ipop", CASES[2]),
        ("cma-bipop", SPHERE),
        ("cma-ipop", CASES[3]),
        ("cmawm", CASES[3]),
        ("random", CASES[3]),
    ],
)
def test_a_run_repeats_and_keeps_to_its_budget(method: str, case: Case) -> None:
    one, two = run_job(case, method, 60), run_job(case, method, 60)
    assert one._replace(seconds=0) == two._replace(seconds=0)
    assert one.evaluations <= 60 * case.dimension
    assert one.evaluations == 60 * case.dimension or len(one.hits) == 51
    assert one.hits and list(one.hits) == sorted(one.hits)
    assert one.best <= TARGETS[len(one.hits) - 1]


def test_nomad_repeats_and_leaves_ctrl_c_alone() -> None:
    pytest.importorskip("PyNomad")
    run = run_job(SPHERE, "nomad", 20)
    assert 0 < run.evaluations <= 40 and run.hits
    assert run_job(SPHERE, "nomad", 20).hits == run.hits
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
        time.sleep(1)


def test_nomad_has_few_dimensions_and_evaluations() -> None:
    cases = [SPHERE, SPHERE._replace(dimension=20)]
    jobs = jobs_for(cases, ["nomad", "random"], 2000)
    assert Job(SPHERE, "nomad", NOMAD_BUDGET) in jobs and len(jobs) == 3


def test_ours_take_integers() -> None:
    assert run_job(CASES[3], "fm-nes", 60).hits


# -- the study --------------------------------------------------------------------------------------------

OPTIONS = {
    "methods": "random,fm-nes",
    "dimensions": "2",
    "instances": "1-2",
    "functions": "1-2",
    "budget": 40,
    "workers": 1,
}


def arguments(out: Path, **changed: Any) -> list[str]:
    options = {**OPTIONS, "out": out, **changed}
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def lines(folder: Path) -> list[str]:
    path = folder / "runs.csv"
    return path.read_text().splitlines() if path.exists() else []


def test_a_study_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    """First by Ctrl-C, then by kill -9, which leaves no worker behind."""
    for count, number in ((2, signal.SIGINT), (3, signal.SIGKILL)):
        command = [sys.executable, "-m", "fmnes", "bench", "coco", *arguments(tmp_path, budget=400)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        deadline = time.monotonic() + 240
        while len(lines(tmp_path)) < count and time.monotonic() < deadline:
            time.sleep(0.002)
        process.send_signal(number)
        said, _ = process.communicate(timeout=300)  # until every process that could write has gone
        assert process.returncode == (130 if number == signal.SIGINT else -number)
        assert ("the same command goes on" in said) == (number == signal.SIGINT)
    kept = lines(tmp_path)
    assert 3 <= len(kept) < 9
    with open(tmp_path / "runs.csv", "a") as file:
        file.write("bbob,2,1,2,ran")  # as if it had been killed while it wrote
    text = coco(**{**OPTIONS, "budget": 400, "out": tmp_path})  # type: ignore[arg-type]
    assert lines(tmp_path)[: len(kept)] == kept
    store = open_store(tmp_path)
    assert len(lines(tmp_path)) == 1 + len(store.trials) == 9
    for run in store.trials.values():
        again = run_job(*run.job)
        assert (run.evaluations, run.hits) == (again.evaluations, again.hits)
    assert (tmp_path / "bbob.md").read_text() == text
    assert "400 d evaluations" in text and "| 2 | even | 2 |" in text
    assert (tmp_path / "bbob.svg").stat().st_size > 1000


def test_the_command_line_and_the_data_for_cocopp(tmp_path: Path) -> None:
    words = arguments(tmp_path / "out", methods="random", functions="3", suite="bbob-constrained")
    done = CliRunner().invoke(app, ["bench", "coco", "--data", *words])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("# COCO: bbob-constrained\n")
    info = list((tmp_path / "out" / "data" / "random").rglob("*.info"))
    assert len(info) == 2  # a folder each, so that runs can be written at the same time
    assert "algId = 'random'" in info[0].read_text() and "suite = 'bbob-constrained'" in info[0].read_text()


def test_bad_input(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"suite": "bbob_mixint"}, "suite: found .* did you mean 'bbob-mixint'"),
        ({"methods": "fm-ness"}, "did you mean 'fm-nes'"),
        ({"methods": " , "}, "methods: found"),
        ({"dimensions": "7"}, "dimensions: found '7', wanted some of 2, 3, 5"),
        ({"dimensions": "two"}, "dimensions: found 'two', wanted whole numbers"),
        ({"functions": "25"}, "functions: found '25', wanted some of 1 to 24"),
        ({"instances": "0-3"}, "instances: found"),
        ({"instances": "3-1"}, "instances: found"),
        ({"budget": 1}, "budget"),
        ({"workers": 0}, "workers"),
    ]
    for changed, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            coco(**{**OPTIONS, "out": tmp_path / "out", **changed})  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_what_is_not_installed_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, methods, message in (
        ("cocoex", "random", r"fmnes\[coco\]"),
        ("cma", "random,cma-ipop", r"cma needs .*fmnes\[coco\]"),
        ("PyNomad", "nomad", "pip install PyNomadBBO"),
    ):
        with monkeypatch.context() as patch, pytest.raises(FmnesError, match=message):
            patch.setitem(sys.modules, module, None)
            coco(**{**OPTIONS, "methods": methods, "out": tmp_path / "out"})  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_numbers_and_functions() -> None:
    assert numbers("instances", "7-9,1,3") == [1, 3, 7, 8, 9]
    assert chosen_functions("odd", range(1, 7)) == [1, 3, 5]
    assert chosen_functions("even", range(1, 7)) == [2, 4, 6]
    assert chosen_functions("all", range(1, 4)) == [1, 2, 3]


# -- the report -------------------------------------------------------------------------------------------


def test_the_error_is_that_of_the_instances() -> None:
    values = {SPHERE._replace(function=f, instance=i): 10 * f + i for f in (1, 2) for i in (1, 2, 3)}
    mean, error = report.mean_and_error(values)  # type: ignore[arg-type]
    assert mean == 17 and error == pytest.approx(math.sqrt(2 * (1 / 3)) / 2)
    assert math.isnan(report.mean_and_error({SPHERE: 1.0})[1])


def test_the_report_by_hand() -> None:
    """d = 2, budget 100: 2 evaluations fill a target whole, 20 half of it."""
    runs = [
        run_of(SPHERE._replace(function=f, instance=i), hits, method)
        for f, i in ((1, 1), (1, 2), (2, 1), (2, 2))
        for method, hits in (("random", (20,) * 51), ("fm-nes", (2 if f == 1 else 20,) * 51))
    ]
    text = report.markdown(runs)
    assert "| 2 | all | 4 | 0.500 ± 0.000 | 0.750 ± 0.000 |" in text
    assert "| 2 | odd | 2 | 0.500 ± 0.000 | 1.000 ± 0.000 |" in text
    assert "| 2 | even | random | +0.000 ± 0.000 (1.00) |" in text
    assert "| 2 | separable | 4 |" in text and "multimodal" not in text


def test_a_method_with_a_smaller_budget_has_a_table_of_its_own() -> None:
    runs = [run_of(SPHERE, (2,) * 51, "nomad", 50), run_of(SPHERE, (20,) * 51, "random", 100)]
    runs.append(run_of(SPHERE._replace(dimension=20), (20,), "random", 100))
    first, second = report.markdown(runs).split("## 100 d evaluations")[1].split("## 50 d evaluations")
    assert "nomad" not in first and "| 20 | all | 1 |" in first
    assert "| 2 | all | 1 | 1.000 | 0.411 |" in second and "| 20 |" not in second


def test_the_curve_by_hand() -> None:
    t, share = report.curve([run_of(SPHERE, (2, 20)), run_of(SPHERE, (4, 1000))], 100)
    assert t.tolist() == [0, 1, 2, 10, 100]
    np.testing.assert_allclose(share, np.array([0, 1, 2, 3, 3]) / 102)
