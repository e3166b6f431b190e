"""An algorithm for IOHexperimenter, on its own problems, with its own loggers; integrations/ioh.py."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ioh
import numpy as np
import pytest

import fmnes
from fmnes.integrations.ioh import Algorithm
from tests.rows import through

_numbers = itertools.count()


def wrapped(fun: Any, **settings: Any) -> Any:
    """A problem of our own. Each has another name: ioh keeps the functions it was given by name."""
    settings = {"dimension": 3, "lb": -5, "ub": 5} | settings
    return ioh.wrap_problem(fun, f"ours{next(_numbers)}", ioh.ProblemClass.REAL, **settings)


def sphere(x: Any) -> float:
    return float(sum(number**2 for number in x))


def logged(problem: Any, algorithm: Algorithm, folder: Path, watched: tuple[str, ...] = ()) -> Any:
    """What the logger has written of one run: the result, one row for each evaluation, and the summary."""
    logger = ioh.logger.Analyzer(
        triggers=[ioh.logger.trigger.ALWAYS],
        root=str(folder),
        folder_name="log",
        algorithm_name=str(algorithm),
        store_positions=True,
    )
    logger.watch(algorithm, list(watched))
    problem.attach_logger(logger)
    result = algorithm(problem)
    problem.detach_logger()
    logger.close()
    (file,) = (folder / "log").rglob("*.dat")
    header, *lines = file.read_text().splitlines()
    names = header.split()
    rows = [dict(zip(names, map(float, line.split()), strict=True)) for line in lines]
    (summary,) = (folder / "log").glob("*.json")
    return result, rows, json.loads(summary.read_text())


def test_the_logger_sees_every_evaluation_once(tmp_path: Path) -> None:
    problem = ioh.get_problem(8, 1, 3, ioh.ProblemClass.BBOB)
    result, rows, summary = logged(problem, Algorithm(rng=1, noise=False), tmp_path)
    assert result.success and problem.state.final_target_found
    assert result.nfev == problem.state.evaluations == len(rows) > 100
    assert [row["evaluations"] for row in rows] == list(range(1, result.nfev + 1))
    assert min(row["raw_y"] for row in rows) == pytest.approx(result.fun - problem.optimum.y, abs=1e-9)
    points = np.array([[row[f"x{i}"] for i in range(3)] for row in rows])
    assert (abs(points) <= 5).all() and len(np.unique(points, axis=0)) == len(points)
    assert summary["algorithm"]["name"] == "fmnes afm-nes"


def test_a_run_ends_at_the_optimum_and_within_its_budget() -> None:
    problem = ioh.get_problem(1, 1, 3, ioh.ProblemClass.BBOB)
    result = Algorithm(rng=1)(problem)
    assert result.stop_reason is fmnes.StopReason.TARGET
    assert 0 <= result.fun - problem.optimum.y <= 1e-8
    problem.reset()
    coarse = Algorithm(rng=1, precision=1e-2)(problem)
    assert coarse.nfev < result.nfev and coarse.success
    problem.reset()
    assert (
        Algorithm(rng=1, max_evaluations=50, surrogate=False)(problem).nfev == problem.state.evaluations == 50
    )


def test_a_target_of_the_users_is_in_the_problems_numbers() -> None:
    problem = wrapped(lambda x: -sphere(x), optimization_type=ioh.OptimizationType.MAX)
    result = Algorithm(rng=1, target=-0.5)(problem)
    assert result.stop_reason is fmnes.StopReason.TARGET
    assert -0.5 <= problem.state.current_best.y < -1e-4 and result.fun == -problem.state.current_best.y


def test_problems_that_maximise_are_maximised() -> None:
    problem = wrapped(lambda x: 3 - sphere(x), optimization_type=ioh.OptimizationType.MAX)
    result = Algorithm(rng=1)(problem)
    assert problem.state.current_best.y == pytest.approx(3) and result.fun == pytest.approx(-3)


@pytest.mark.parametrize("enforced", ["SOFT", "HARD", "OVERRIDE"])
def test_what_violates_a_constraint_has_failed(enforced: str) -> None:
    kind = getattr(ioh.ConstraintEnforcement, enforced)
    limit = ioh.RealConstraint(lambda x: max(0.0, 1 - x[0]), name="limit", enforced=kind)
    problem = wrapped(sphere, constraints=[limit])
    # Where it begins by itself depends on the problem's number, which is that of ours in this process.
    result = Algorithm(rng=1, x0=[2.0, 2.0, 2.0], max_evaluations=3000)(problem)
    assert result.x[0] >= 1 and result.x == pytest.approx([1, 0, 0], abs=1e-3)
    assert result.n_infeasible > 0 and result.failures[0].reason == "a constraint is violated"
    assert (result.failures[0].x[:, 0] < 1).all()
    assert result.nfev == problem.state.evaluations


def test_what_is_nan_or_raises_has_failed() -> None:
    def fun(x: Any) -> float:
        if x[0] < -1:
            raise RuntimeError("diverged")
        return float("nan") if x[0] < 0 else sphere(x)

    result = Algorithm(rng=2, x0=[1.0, 1.0, 1.0])(wrapped(fun))
    assert result.fun < 1e-8 and {"returned NaN", "RuntimeError: diverged"} <= {
        f.reason for f in result.failures
    }


def test_whole_numbers_where_the_problem_wants_them(tmp_path: Path) -> None:
    problem = ioh.get_problem("LeadingOnes", 1, 12, ioh.ProblemClass.PBO)
    result, rows, _ = logged(problem, Algorithm(rng=1), tmp_path)
    assert problem.state.optimum_found and result.fun == -12 and result.nfev == len(rows)
    assert {row[f"x{i}"] for row in rows for i in range(12)} == {0.0, 1.0}


def test_without_bounds_the_user_says_where_to_begin() -> None:
    largest = np.finfo(float).max
    problem = wrapped(sphere, lb=-largest, ub=largest)
    with pytest.raises(fmnes.ArgumentError, match="x0: found none"):
        Algorithm(rng=1)(problem)
    assert Algorithm(rng=1, x0=[1.0, 2.0, 3.0], sigma0=1.0)(problem).fun < 1e-8


def test_the_method_and_other_options_are_those_of_minimize() -> None:
    problem = ioh.get_problem(15, 1, 3, ioh.ProblemClass.BBOB)
    algorithm = Algorithm(
        "cr-fm-nes", rng=1, x0=[1, 1, 1], sigma0=0.5, population_size=12, max_evaluations=300
    )
    result = algorithm(problem)
    ours = fmnes.minimize(
        lambda x: problem(x), [1, 1, 1], 0.5, method="cr-fm-nes", population_size=12, max_evaluations=300,
        bounds=[(-5, 5)] * 3, rng=algorithm.seed, target=problem.optimum.y + 1e-8,
    )  # fmt: skip
    assert ours == result and str(algorithm) == "fmnes cr-fm-nes"


def test_each_run_has_a_seed_of_its_own_that_does_not_depend_on_others() -> None:
    def seeds(*keys: tuple[int, int, int], rng: int = 7) -> list[int]:
        algorithm = Algorithm(rng=rng, max_evaluations=1)
        found = []
        for key in keys:
            algorithm(ioh.get_problem(*key, ioh.ProblemClass.BBOB))
            found.append(algorithm.seed)
        return found

    assert len({*seeds((1, 1, 3), (1, 1, 3), (2, 1, 3), (1, 2, 3), (1, 1, 4))}) == 5
    assert seeds((2, 1, 3), (1, 1, 3))[1] == seeds((3, 1, 3), (1, 1, 3))[1]
    assert seeds((1, 1, 3)) != seeds((1, 1, 3), rng=8)
    fresh = Algorithm(max_evaluations=1), Algorithm(max_evaluations=1)
    for algorithm in fresh:
        algorithm(ioh.get_problem(1, 1, 3, ioh.ProblemClass.BBOB))
    assert fresh[0].seed != fresh[1].seed


def test_its_step_size_and_failures_can_be_watched(tmp_path: Path) -> None:
    problem = wrapped(lambda x: float("nan") if x[0] < 0 else sphere(x))
    result, rows, _ = logged(
        problem, Algorithm(rng=1, x0=[1, 1, 1], max_evaluations=300), tmp_path, ("sigma", "n_infeasible")
    )
    assert np.isnan(rows[0]["sigma"]) and 0 < rows[-1]["sigma"] < rows[20]["sigma"]
    assert rows[0]["n_infeasible"] == 0 < rows[-1]["n_infeasible"] <= result.n_infeasible


@pytest.mark.filterwarnings("ignore:There is already a folder:UserWarning")
def test_an_experiment_repeats_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bests(folder: str) -> list[Any]:
        experiment = ioh.Experiment(
            Algorithm(max_evaluations=60, rng=3, surrogate=False),
            fids=[1, 8],
            iids=[1, 2],
            dims=[2],
            reps=2,
            problem_class=ioh.ProblemClass.BBOB,
            output_directory=str(tmp_path),
            folder_name=folder,
            run_attributes=["seed"],
            zip_output=False,
        )
        experiment()
        found = []
        for file in sorted((tmp_path / folder).glob("*.json")):
            for scenario in json.loads(file.read_text())["scenarios"]:
                found += [(run["seed"], run["evals"], run["best"]["y"]) for run in scenario["runs"]]
        return sorted(found)

    monkeypatch.chdir(tmp_path)  # where ioh puts the folders that it merges
    first = bests("first")
    assert len(first) == 8 and {evaluations for _, evaluations, _ in first} == {60}
    assert len({seed for seed, _, _ in first}) == 8
    assert first == bests("second")


@through(
    ("settings", "word"),
    [
        ({"workers": 2}, "found the option 'workers'"),
        ({"timeout": 2}, "found the option 'timeout'"),
        ({"budget": 2}, "found the option 'budget', wanted max_evaluations="),
        ({"method": "nope"}, "method: found 'nope'"),
        ({"max_evaluations": 0}, "max_evaluations: found 0"),
        ({"precision": None}, "precision: found None"),
        ({"rng": "x"}, "rng: found 'x'"),
    ],
)
def test_wrong_settings_are_said_before_any_problem(settings: Any, word: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=word):
        Algorithm(**settings)


def test_what_is_no_problem_is_refused() -> None:
    with pytest.raises(fmnes.ArgumentError, match=r"problem: found .* wanted a problem of ioh"):
        Algorithm()(sphere)


def test_without_ioh_the_install_line_is_named() -> None:
    code = "import sys; sys.modules['ioh'] = None; import fmnes.integrations.ioh"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and 'pip install "fmnes[ioh]"' in done.stderr
