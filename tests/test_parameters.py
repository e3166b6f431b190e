"""Named parameters: what may be said of them, and runs that speak in their words."""

from __future__ import annotations

import concurrent.futures
import math
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmnes
from fmnes.parameters import read_parameter, table_of
from fmnes.search.advance import again as begin_again
from fmnes.space import Space, make_space
from fmnes.storage.directory import RunDirectory
from tests.rows import through

SPACE = {
    "thickness": fmnes.Real(0.1, 10, log=True),
    "angle": fmnes.Real(start=3.0, sigma=0.5),
    "load": fmnes.Real(lower=0, start=1.0, sigma=0.2),
    "layers": fmnes.Integer(1, 12),
    "pitch": fmnes.Real(0, 5, multiple_of=0.25),
}


def simulate(p: dict[str, Any]) -> float:
    """Fails where thickness is small; best at thickness 2, angle 1, load 0, 7 layers, pitch 1.75."""
    assert list(p) == list(SPACE)
    assert type(p["layers"]) is int
    if p["thickness"] < 0.5:
        raise fmnes.Infeasible("too thin")
    logs = math.log(p["thickness"] / 2.0)
    return float(
        logs**2 + (p["angle"] - 1) ** 2 + p["load"] + 0.1 * (p["layers"] - 7) ** 2 + (p["pitch"] - 1.75) ** 2
    )


# -- what may be said -------------------------------------------------------------------------------------


@through(
    ("make", "words"),
    [
        (lambda: fmnes.Real(0, 10, log=True), "on a log scale"),
        (lambda: fmnes.Real(-1, 10, log=True), "on a log scale"),
        (lambda: fmnes.Real(start=-1, sigma=2, log=True), "on a log scale"),
        (lambda: fmnes.Real(1, 1), "equal"),
        (lambda: fmnes.Real(2, 1), "crossed"),
        (lambda: fmnes.Real(0, 1, start=2), "outside of its bounds"),
        (lambda: fmnes.Real(0), "no start and no sigma"),
        (lambda: fmnes.Real(0, start=1), "no sigma"),
        (lambda: fmnes.Real(), "no bounds and no start"),
        (lambda: fmnes.Real(0, 1, sigma=0), "a positive number"),
        (lambda: fmnes.Real(0.1, 1, sigma=0.5, log=True), "a factor above 1"),
        (lambda: fmnes.Real(start=1e20, sigma=1e-3), "too small to change"),
        (lambda: fmnes.Real(0, 1, multiple_of=0), "positive"),
        (lambda: fmnes.Real(0.1, 1, multiple_of=0.1, log=True), "wanted one of them"),
        (lambda: fmnes.Real(0, 0.1, multiple_of=0.25), "fewer than two"),
        (lambda: fmnes.Real(0, 1, start=0.3, multiple_of=0.25), "such as 0.25 or 0.5"),
        (lambda: fmnes.Real("a", "b"), "wanted a number"),
        (lambda: fmnes.Real(["steel", "wood"]), r"fmnes\.Categorical\("),  # type: ignore[arg-type]
        (lambda: fmnes.Real(math.nan, 1), "wanted a number"),
        (lambda: fmnes.Real(math.inf, 1), "wanted a number"),
        (lambda: fmnes.Real(np.zeros(2), 1), "wanted a number"),  # type: ignore[arg-type]
        (lambda: fmnes.Real(0, 1, log="yes"), "True or False"),  # type: ignore[arg-type]
        (lambda: fmnes.Integer(0.5, 3), "a whole number"),  # type: ignore[arg-type]
        (lambda: fmnes.Integer(1, 9, start=2.5), "such as 2 or 3"),  # type: ignore[arg-type]
        (lambda: fmnes.Integer(0, 10**20), "found upper=1(0){20}, wanted -2"),
        (lambda: fmnes.Integer(1 - 2**63, 0), "found lower=-92.*wanted -2"),
        (lambda: fmnes.Integer(start=10**20, sigma=1e19), "found start=1(0){20}, wanted -2"),
        (lambda: fmnes.Integer(1, 1), "equal"),
        (lambda: fmnes.Integer(True, 3), "wanted a number"),
        (lambda: fmnes.Integer(0, 3, log=True), r"option 'log', wanted fmnes.Real\(.*log=True"),  # type: ignore[call-arg]
        (lambda: fmnes.Integer(0, 8, multiple_of=2), "wanted fmnes.Real"),  # type: ignore[call-arg]
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(make: Any, words: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=words):
        make()


def test_step_is_refused_with_both_names_it_could_mean() -> None:
    with pytest.raises(fmnes.ArgumentError, match=r"sigma= .* or multiple_of="):
        fmnes.Real(0, 1, step=0.1)  # type: ignore[call-arg]


@through(
    ("space", "words"),
    [
        ({"material": ["steel", "wood"]}, r"fmnes\.Categorical\("),
        ({"material": ("steel", "wood", "glass")}, r"fmnes\.Categorical\("),
        ({"a": (0, 1)}, r"fmnes.Real\(0, 1\)"),
        ({"a": 3.0}, "leave it out"),
        ({}, "found none"),
        ({"": fmnes.Real(0, 1)}, "the name ''"),
        ({3: fmnes.Real(0, 1)}, "the name 3"),
        (fmnes.Real(0, 1), r"found Real\(0.0, 1.0\) without names, wanted such as {'width'"),
        ([fmnes.Integer(0, 3), fmnes.Real(0, 1)], r"found \[Integer\(0, 3\), .* without names"),
    ],
)
def test_a_space_of_something_else_is_refused_in_words(space: Any, words: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=words):
        fmnes.minimize(lambda p: 0.0, space)


def test_two_parameters_of_one_name_are_refused() -> None:
    with pytest.raises(fmnes.ArgumentError, match="two of the name 'a'"):
        make_space([("a", fmnes.Real(0, 1)), ("a", fmnes.Real(0, 2))])


@pytest.mark.parametrize("argument", ["sigma0", "bounds", "integers"])
def test_what_parameters_say_is_not_said_twice(argument: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=f"{argument}: found together with named parameters"):
        fmnes.minimize(simulate, SPACE, **{argument: 1})


@pytest.mark.parametrize("name", SPACE)
def test_repr_says_it_again(name: str) -> None:
    assert eval(repr(SPACE[name]), vars(fmnes)) == SPACE[name]
    assert "None" not in repr(SPACE[name]).replace("(None, ", "")


@pytest.mark.parametrize("name", SPACE)
def test_a_table_brings_a_parameter_back(name: str) -> None:
    assert read_parameter(name, table_of(SPACE[name])) == SPACE[name]


def test_a_table_is_read_as_its_parameter() -> None:
    found = read_parameter("k", {"start": 1000.0, "sigma": 3.0, "lower": 100.0, "upper": 2e4, "log": True})
    assert found == fmnes.Real(100.0, 2e4, start=1000.0, sigma=3.0, log=True)
    assert read_parameter("n", {"lower": 1, "upper": 9, "integer": True}) == fmnes.Integer(1, 9)


@through(
    ("table", "words"),
    [
        ({"lower": 0, "uper": 1}, "did you mean 'upper'"),
        ({"choices": ["a"]}, "one choice, 'a'"),
        ({"values": ["a", "b"]}, r"choices = \["),
        ({"lower": 0, "upper": 1, "step": 0.1}, "found the key 'step'.*write sigma .* or multiple_of"),
        ({"lower": 1, "upper": 2, "scale": "log"}, "found the key 'scale'.*write log = true"),
        ({"lower": 1, "upper": 9, "integer": True, "log": True}, "wanted one of them"),
        ({"lower": 1, "upper": 9, "integer": True, "multiple_of": 2}, "wanted one of them"),
        ({"lower": 1, "upper": 9, "integer": 1}, "true or false"),
    ],
)
def test_a_wrong_table_is_refused_with_the_name(table: dict[str, Any], words: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=f"^width: .*{words}"):
        read_parameter("width", table)


# -- the user's numbers and the search's ------------------------------------------------------------------


def test_the_start_follows_from_the_range() -> None:
    start = Space(SPACE).start()
    assert start["x0"] == [0.0, 3.0, 1.0, 6.5, 2.5]
    np.testing.assert_allclose(start["sigma0"], [math.log(100) / 4, 0.5, 0.2, 2.75, 1.25], rtol=1e-15)
    assert start["integers"] == [0, 0, 0, 1, 0.25]
    assert fmnes.Optimizer(SPACE).start_point == {
        "thickness": 1.0, "angle": 3.0, "load": 1.0, "layers": 6, "pitch": 2.5
    }  # fmt: skip


def test_multiples_are_counted_from_zero_whatever_the_bound() -> None:
    start = Space(
        {"a": fmnes.Real(0.1, 1.1, multiple_of=0.25), "b": fmnes.Real(0, 0.3, multiple_of=0.1)}
    ).start()
    assert start["bounds"].lower == [0.25, 0.0]
    assert start["bounds"].upper == [1.0, 0.3]


@settings(max_examples=300, deadline=None)
@given(
    st.floats(1e-300, 1e300),
    st.floats(1.001, 1e6),
    st.floats(0.01, 0.99),
)
def test_a_log_scale_keeps_its_ends_and_its_start_to_the_last_digit(
    low: float, factor: float, at: float
) -> None:
    high = min(low * factor, 1e308)
    start = min(max(low * (high / low) ** at, low), high)
    space = Space({"k": fmnes.Real(low, high, start=start, log=True)})
    for value in (low, high, start):
        assert space.named(space.numbers({"k": value})) == {"k": value}
    inside = np.linspace(math.log(low), math.log(high), 50)
    values = [space.named(np.array([v]))["k"] for v in (*inside, math.log(low) - 9, math.log(high) + 9)]
    assert low <= min(values)
    assert max(values) <= high
    assert space.table(inside[:, None])[:, 0].tolist() == values[:-2]


def test_a_log_scale_without_bounds_stays_positive_and_finite() -> None:
    space = Space({"k": fmnes.Real(start=1.0, sigma=2.0, log=True)})
    assert 0 < space.named(np.array([-1e6]))["k"] < space.named(np.array([1e6]))["k"] < math.inf


def test_a_space_goes_to_other_processes_and_to_json() -> None:
    space = Space(SPACE)
    assert pickle.loads(pickle.dumps(space)) == space
    assert Space.from_json(space.as_json()) == space
    assert Space({"a": fmnes.Real(0, 1)}) != space


@pytest.mark.parametrize("data", [{}, [1], [{"lower": 0}], [{"name": "a", "lower": 0}], None])
def test_foreign_json_is_refused(data: Any) -> None:
    with pytest.raises(fmnes.ArgumentError):
        Space.from_json(data)


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"a": 1}, "found no b"),
        ({"a": 1, "b": 1, "c": 1}, "found 'c'"),
        ({"a": 1, "b": "x"}, "found b = 'x'"),
        ({"a": 0, "b": 1}, "a positive number"),
        ([1, 2], "wanted a dict with a, b"),
    ],
)
def test_a_wrong_point_is_refused(point: Any, words: str) -> None:
    space = {"a": fmnes.Real(1, 2, log=True), "b": fmnes.Real(0, 1)}
    with pytest.raises(fmnes.ArgumentError, match=words):
        fmnes.Optimizer(space, known=[(point, 1.0)])


# -- runs -------------------------------------------------------------------------------------------------


def check_solved(result: fmnes.Result) -> None:
    assert list(result.x) == list(SPACE)
    assert result.x["thickness"] == pytest.approx(2.0, abs=1e-3)
    assert result.x["load"] == pytest.approx(0.0, abs=1e-5)
    assert result.x["layers"] == 7
    assert type(result.x["layers"]) is int
    assert result.x["pitch"] == 1.75
    assert simulate(result.x) == result.fun
    assert result.vector is not None
    assert result.vector.tolist() == list(result.x.values())
    assert list(result.x_mean) == list(SPACE)


def test_minimize_speaks_in_the_users_words() -> None:
    views: list[fmnes.View] = []
    result = fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=3000, callback=views.append)
    check_solved(result)
    assert views[-1].best.x == result.x
    assert set(views[-1].mean) == set(SPACE)
    (failure,) = result.failures
    assert failure.reason == "too thin"
    assert (failure.x[:, 0] < 0.5).all()
    assert (failure.x[:, 0] >= 0.1).all()


def test_named_parameters_and_arrays_are_one_search() -> None:
    """The same numbers, bit by bit, but for the words."""
    space = Space(SPACE)

    def plain(x: Any) -> float:
        return simulate(space.named(x))

    named = fmnes.minimize(simulate, SPACE, rng=3, max_evaluations=500)
    arrays = fmnes.minimize(plain, **space.start(), rng=3, max_evaluations=500)
    assert space.named(arrays.x) == named.x
    assert (named.fun, named.nfev, named.n_infeasible) == (arrays.fun, arrays.nfev, arrays.n_infeasible)


def test_workers_and_executors_get_the_same_points() -> None:
    settings: dict[str, Any] = {"rng": 5, "max_evaluations": 120, "surrogate": False}
    serial = fmnes.minimize(simulate, SPACE, **settings)
    workers = fmnes.minimize(simulate, SPACE, workers=2, **settings)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        threads = fmnes.minimize(simulate, SPACE, executor=pool, **settings)
    assert serial.x == workers.x == threads.x
    assert serial.fun == workers.fun == threads.fun


def test_a_vectorized_objective_gets_columns() -> None:
    def many(p: dict[str, Any]) -> Any:
        assert p["layers"].dtype == np.int64
        n = len(p["layers"])
        points = [{name: p[name][i].item() for name in p} for i in range(n)]
        return np.array([simulate(q) if q["thickness"] >= 0.5 else np.nan for q in points])

    settings: dict[str, Any] = {"rng": 5, "max_evaluations": 120, "surrogate": False}
    serial = fmnes.minimize(simulate, SPACE, **settings)
    assert fmnes.minimize(many, SPACE, vectorized=True, **settings).x == serial.x


def test_ask_gives_dicts_and_tell_takes_values_in_that_order(tmp_path: Path) -> None:
    opt = fmnes.Optimizer(SPACE, rng=2)

    def value(p: dict[str, Any]) -> float | None:
        return simulate(p) if p["thickness"] >= 0.5 else None

    while opt.stop_reason is None and opt.evaluations < 3000:
        points = opt.ask()
        assert isinstance(points, list)
        opt.tell([value(p) for p in points])
    assert opt.best.x == opt.result().x
    assert opt.mean["angle"] == pytest.approx(1.0, abs=1e-2)
    check_solved(opt.result())

    opt = fmnes.Optimizer(SPACE, rng=2)
    for id, p in opt.ask(2):
        opt.tell(id, value(p))
    opt.save(tmp_path / "o.npz")
    again = fmnes.Optimizer.load(tmp_path / "o.npz")
    assert again.ask() == opt.ask()
    assert isinstance(again.ask()[0], dict)
    assert again.space == Space(SPACE)


def test_a_run_directory_remembers_the_parameters(tmp_path: Path) -> None:
    whole = fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=200)
    fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=101, run_dir=tmp_path / "run")
    views: list[fmnes.View] = []
    resumed = fmnes.resume(tmp_path / "run", simulate, max_evaluations=200, callback=views.append)
    assert resumed.x == whole.x
    assert resumed.fun == whole.fun
    assert simulate(views[-1].best.x) == views[-1].best.fun
    assert fmnes.resume(tmp_path / "run").x == whole.x


def test_known_points_are_given_by_name() -> None:
    best = {"thickness": 2.0, "angle": 1.0, "load": 0.0, "layers": 7, "pitch": 1.75}
    result = fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=20, known=[(best, 0.0)])
    assert result.fun == 0.0
    assert result.x == pytest.approx(best)


def test_a_warm_start_goes_on_in_the_same_words(tmp_path: Path) -> None:
    first = fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=600, run_dir=tmp_path / "run")
    for source in (first, tmp_path / "run"):
        second = fmnes.minimize(simulate, SPACE, rng=2, max_evaluations=20, warm_start=source)
        assert second.fun <= first.fun
        assert list(second.x) == list(SPACE)
        bare = fmnes.minimize(simulate, rng=2, max_evaluations=20, warm_start=source)
        assert bare.x == second.x
    other = {name: p for name, p in SPACE.items() if name != "load"}
    with pytest.raises(
        fmnes.ArgumentError, match="wanted one of the parameters thickness \\(log\\), angle, layers"
    ):
        fmnes.minimize(simulate, other, warm_start=first)
    with pytest.raises(fmnes.ArgumentError, match="wanted one of arrays"):
        fmnes.minimize(simulate, np.zeros(5), 1.0, warm_start=first)


def test_a_warm_start_stays_inside_narrower_bounds() -> None:
    space = {"a": fmnes.Real(0, 10), "b": fmnes.Real(0, 10)}
    first = fmnes.minimize(lambda p: (p["a"] - 8) ** 2 + p["b"], space, rng=1, max_evaluations=300)
    narrow = {"a": fmnes.Real(0, 5), "b": fmnes.Real(0, 10)}
    second = fmnes.minimize(
        lambda p: (p["a"] - 8) ** 2 + p["b"], narrow, rng=1, max_evaluations=300, warm_start=first
    )
    assert second.x["a"] == 5.0


def test_a_program_gets_the_users_units_by_name(tmp_path: Path) -> None:
    program = "import sys; t, n = float(sys.argv[1]), sys.argv[2]; print(abs(t - 2) + int(n) + 1)"
    command = fmnes.Command([sys.executable, "-c", program, "{thickness}", "{layers}"])
    space = {"thickness": SPACE["thickness"], "layers": fmnes.Integer(0, 3)}
    run = tmp_path / "run"
    result = fmnes.minimize(command, space, rng=1, max_evaluations=60, run_dir=run)
    assert result.x["layers"] == 0
    assert result.x["thickness"] == pytest.approx(2, abs=0.2)
    assert result.fun == abs(result.x["thickness"] - 2) + 1
    assert fmnes.resume(run, max_evaluations=70).fun <= result.fun


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        [],
        [{"name": "a"}],
        "a",
        [{"name": "a", "lower": 1, "upper": 2}],
        [{"name": "a", "lower": 2, "upper": 1}],
    ],
)
def test_a_run_directory_with_unusable_parameters_is_refused_in_words(
    tmp_path: Path, parameters: Any
) -> None:
    fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=20, run_dir=tmp_path / "run")
    with RunDirectory.open(tmp_path / "run") as directory:
        directory.update_config({**directory.config, "parameters": parameters})
    with pytest.raises(fmnes.RunError, match="unusable configuration"):
        fmnes.resume(tmp_path / "run", simulate, max_evaluations=40)


def test_a_covariance_says_how_far_to_look() -> None:
    narrow = fmnes.Optimizer(SPACE, covariance=1e-6 * np.eye(5), rng=1)
    assert {p["thickness"] for p in narrow.ask()} != {1.0}
    assert all(abs(math.log(p["thickness"])) < 0.01 for p in narrow.ask())


def test_a_search_that_begins_again_keeps_its_words() -> None:
    opt = fmnes.Optimizer(SPACE, rng=1)
    again = begin_again(opt, opt.x0, opt.sigma0, 8, None)
    assert set(again.ask()[0]) == set(SPACE)


def test_a_format_for_whole_numbers_is_refused_for_others_before_anything_runs(tmp_path: Path) -> None:
    command = fmnes.Command([sys.executable, "-c", "print(1)", "{thickness:5d}", "{layers:5d}"])
    space = {"thickness": fmnes.Real(0, 1), "layers": fmnes.Integer(0, 3)}
    with pytest.raises(fmnes.ArgumentError, match=r"thickness:5d"):
        fmnes.minimize(command, space, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resume_reads_the_environment_in_the_problem_file_again(tmp_path: Path) -> None:
    """It may hold secrets, so the run directory has its names only."""
    file = tmp_path / "problem.toml"
    file.write_text('[program]\nenvironment = { OFFSET = "5" }\n')
    program = "import os, sys; print(float(sys.argv[1]) ** 2 + float(os.environ['OFFSET']))"
    argv = [sys.executable, "-c", program, "{a}"]
    command = fmnes.Command(argv, environment={"OFFSET": "5"}, problem_file=file)
    run = tmp_path / "run"
    space = {"a": fmnes.Real(-1, 2)}
    assert fmnes.minimize(command, space, rng=1, max_evaluations=10, run_dir=run).fun >= 5
    assert "OFFSET" in (run / "config.json").read_text()
    file.write_text('[program]\nenvironment = { OFFSET = "-5" }\n')
    assert fmnes.resume(run, max_evaluations=20).fun < 0
    file.write_text("[program]\n")
    with pytest.raises(fmnes.ArgumentError, match="found no OFFSET in its environment"):
        fmnes.resume(run, max_evaluations=30)
    file.unlink()
    with pytest.raises(fmnes.ArgumentError, match="found no problem file"):
        fmnes.resume(run, max_evaluations=30)
