"""Categories: choices without an order, beside numbers and alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes.search.categories import SIGNAL, Categories
from fmnes.search.grid import neighbours
from fmnes.space import Space
from tests.reference import categories as literal

MATERIALS = ["steel", "aluminium", "wood", "glass", "copper"]
SPACE = {
    "material": fmnes.Categorical(MATERIALS),
    "width": fmnes.Real(0.1, 10, log=True),
    "layers": fmnes.Integer(1, 9),
    "angle": fmnes.Real(-5, 5),
}


def cost(p: dict[str, Any]) -> float:
    numbers = (p["width"] - 2) ** 2 + (p["layers"] - 4) ** 2 + (p["angle"] - 1) ** 2
    return numbers + 0.5 * (p["material"] != "wood")


def breaking(p: dict[str, Any]) -> float:
    """Two of five choices fail always, and a part of the space besides."""
    if p["material"] in ("steel", "glass"):
        raise fmnes.Infeasible(f"{p['material']} breaks")
    if p["width"] * p["layers"] < 1:
        raise fmnes.Infeasible("too thin")
    return cost(p)


# -- the update --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_update_is_the_literal_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = [2, 5, 3]
    fast = Categories(np.array(counts), 4)
    slow = literal.begin(counts)
    for _ in range(60):
        chosen = fast.draw(rng, 10)
        n = int(rng.integers(0, 11))
        f = np.where(np.arange(10) < n, chosen.sum(axis=1) + rng.normal(size=10), np.inf)
        chosen = chosen[np.argsort(f, kind="stable")]
        fast.update(chosen, n)
        slow = literal.update(slow, chosen.tolist(), n, fast._least, SIGNAL)
        for mine, theirs in zip(fast.q, slow["q"], strict=True):
            assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-12)
            assert mine.sum() == pytest.approx(1.0)
        assert fast._delta == pytest.approx(slow["Delta"], rel=1e-9)


def test_every_choice_keeps_its_margin_and_the_failing_ones_have_no_more() -> None:
    rng = np.random.default_rng(1)
    categories = Categories(np.array([5, 3]), 2)
    for _ in range(200):
        chosen = categories.draw(rng, 10)
        failed = (chosen[:, 0] == 1) | (chosen[:, 0] == 3)
        order = np.lexsort((rng.random(10), failed))
        categories.update(chosen[order], int((~failed).sum()))
        for q, least in zip(categories.q, categories._least, strict=True):
            assert (q >= least * (1 - 1e-9)).all()
    assert categories.q[0][[1, 3]] == pytest.approx(2 * [categories._least[0]], rel=1e-6)


def test_draws_follow_the_probabilities() -> None:
    categories = Categories(np.array([3]), 1)
    categories.q = [np.array([0.2, 0.7, 0.1])]
    drawn = categories.draw(np.random.default_rng(1), 20_000)[:, 0]
    found = np.bincount(drawn.astype(int)) / 20_000
    assert found == pytest.approx(categories.q[0], abs=4 * 0.5 / 20_000**0.5)


# -- searches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_choice_beside_numbers_is_found(seed: int) -> None:
    result = fmnes.minimize(cost, SPACE, rng=seed, max_evaluations=3000)
    assert result.success and result.x["material"] == "wood" and result.fun < 1e-8
    assert type(result.x["layers"]) is int and result.x_mean["material"] == "wood"


@pytest.mark.parametrize("seed", range(5))
def test_choices_that_always_fail_die_out(seed: int) -> None:
    result = fmnes.minimize(
        breaking, SPACE, rng=seed, max_evaluations=3000, keep_evaluations=True, second_look=False
    )
    assert result.x["material"] == "wood" and result.fun < 1e-8
    later = result.evaluations["material"][len(result.evaluations) // 2 :]
    assert np.isin(later, ["steel", "glass"]).mean() < 0.1


def test_an_unlucky_choice_comes_back() -> None:
    """It fails at the start and in the first generations, and is best."""
    calls = Counter[str]()

    def unlucky(p: dict[str, Any]) -> float | None:
        calls[p["kind"]] += 1
        if p["kind"] == "best" and calls["best"] <= 5:
            return None
        return p["x"] ** 2 + p["y"] ** 2 + (p["kind"] != "best")

    space = {"kind": fmnes.Categorical(["best", "a", "b"]), "x": fmnes.Real(-3, 5), "y": fmnes.Real(-3, 5)}
    result = fmnes.minimize(unlucky, space, rng=1, max_evaluations=2000)
    assert result.x["kind"] == "best" and result.fun < 1e-8


@pytest.mark.parametrize("seed", range(10))
def test_a_small_space_of_choices_is_enumerated(seed: int) -> None:
    space = {
        "a": fmnes.Categorical([1, 2, None]),
        "b": fmnes.Categorical(["x", "y"]),
        "n": fmnes.Integer(0, 3),
    }
    seen = Counter[Any]()

    def table(p: dict[str, Any]) -> float | None:
        seen[tuple(p.values())] += 1
        return None if p["a"] == 1 else (p["a"] is not None) + (p["b"] == "x") + abs(p["n"] - 2)

    result = fmnes.minimize(table, space, rng=seed)
    assert result.x == {"a": None, "b": "y", "n": 2} and result.success
    assert len(seen) == 24 and set(seen.values()) == {1} and "24 points" in result.message


def test_choices_alone_in_a_large_space() -> None:
    space = {f"c{i}": fmnes.Categorical(list("abcde")) for i in range(10)}
    result = fmnes.minimize(
        lambda p: float(sum(choice != "d" for choice in p.values())), space, rng=1, max_evaluations=2000
    )
    assert result.success and result.fun == 0 and set(result.x.values()) == {"d"}


def test_before_success_every_other_choice_is_tried_at_the_best_point() -> None:
    """`c` is better only very close to the optimum: no generation could tell."""

    def trap(p: dict[str, Any]) -> float:
        return p["x"] ** 2 + p["y"] ** 2 + (1e-15 if p["kind"] != "c" else 0.0)

    space = {"kind": fmnes.Categorical(["a", "b", "c", "d"]), "x": fmnes.Real(-3, 5), "y": fmnes.Real(-3, 5)}
    result = fmnes.minimize(trap, space, rng=3, ftol=None, keep_evaluations=True)
    assert result.success and set(result.evaluations["kind"][-60:]) == set("abcd")


def test_neighbours_are_all_other_choices() -> None:
    opt = fmnes.Optimizer(SPACE, rng=1)
    grid = opt._start.grid
    assert grid is not None
    around = neighbours(grid, np.array([2.0, 0.5, 4.0, 1.0]), opt._start.choices)
    assert sorted(around[:, 0].tolist()) == [0, 1, 2, 2, 3, 4] and sorted(around[:, 2].tolist())[0] == 3


def test_a_parameter_that_matters_for_some_choices_only() -> None:
    def solver(p: dict[str, Any]) -> float:
        if p["solver"] == "direct":
            return 1.0
        return (p["tolerance"] - 0.3) ** 2 + (0.5 if p["solver"] == "old" else 0.0)

    space = {"solver": fmnes.Categorical(["direct", "old", "new"]), "tolerance": fmnes.Real(0, 1)}
    result = fmnes.minimize(solver, space, rng=1, max_evaluations=1000)
    assert result.x["solver"] == "new" and result.x["tolerance"] == pytest.approx(0.3, abs=1e-4)


def test_restarts_and_the_budget() -> None:
    result = fmnes.minimize(breaking, SPACE, rng=1, max_evaluations=1500, restarts="bipop")
    assert result.fun < 1e-8 and result.nfev <= 1500
    again = fmnes.minimize(breaking, SPACE, rng=1, max_evaluations=1500, restarts="bipop")
    assert again == result


def test_without_bounds_and_with_the_start_given() -> None:
    space = {
        "c": fmnes.Categorical(MATERIALS, start="glass"),
        "x": fmnes.Real(start=1.0, sigma=0.5),
        "y": fmnes.Real(start=3.0, sigma=0.5),
    }
    asked = []

    def simulate(p: dict[str, Any]) -> float:
        asked.append(p)
        return (p["x"] - 5) ** 2 + p["y"] ** 2 + (p["c"] != "wood")

    result = fmnes.minimize(simulate, space, rng=1, max_evaluations=2000)
    assert asked[0] == {"c": "glass", "x": 1.0, "y": 3.0} and result.x["c"] == "wood" and result.fun < 1e-8


def test_bounds_as_failure_known_points_and_vectorized() -> None:
    known = [({"material": "wood", "width": 2.0, "layers": 4, "angle": 0.0}, 1.0)]
    result = fmnes.minimize(cost, SPACE, rng=1, max_evaluations=900, bounds_as="failure", known=known)
    assert result.x["material"] == "wood" and result.fun < 1e-3

    def many(p: dict[str, Any]) -> Any:
        assert p["material"].dtype == object and p["layers"].dtype == np.int64
        return [cost(dict(zip(p, row, strict=True))) for row in zip(*p.values(), strict=True)]

    plain = fmnes.minimize(cost, SPACE, rng=1, max_evaluations=400, surrogate=False)
    assert fmnes.minimize(many, SPACE, rng=1, max_evaluations=400, vectorized=True).x == plain.x


def test_workers_find_the_same() -> None:
    alone = fmnes.minimize(breaking, SPACE, rng=2, max_evaluations=120)
    assert fmnes.minimize(breaking, SPACE, rng=2, max_evaluations=120, workers=2) == alone


# -- state -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 37, 160, 333])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, at: int) -> None:
    fmnes.minimize(breaking, SPACE, rng=4, max_evaluations=at, run_dir=tmp_path / "run")
    resumed = fmnes.resume(tmp_path / "run", breaking, max_evaluations=500)
    assert resumed == fmnes.minimize(breaking, SPACE, rng=4, max_evaluations=500)
    assert fmnes.read_run(tmp_path / "run").best.x == resumed.x


@pytest.mark.parametrize("space", [SPACE, {f"c{i}": fmnes.Categorical(["a", "b", "c"]) for i in range(6)}])
def test_a_saved_optimizer_goes_on_the_same(tmp_path: Path, space: Any) -> None:
    def value(p: dict[str, Any]) -> float:
        return cost(p) if "width" in p else float(sum(choice != "b" for choice in p.values()))

    one, told = fmnes.Optimizer(space, rng=3), 0
    while one.stop_reason is None and told < 300:
        points = one.ask()
        one.save(tmp_path / "search.npz")
        other = fmnes.Optimizer.load(tmp_path / "search.npz")
        assert other.ask() == points and other.space == one.space
        values = [value(p) for p in points]
        one.tell(values)
        other.tell(values)
        assert other.mean == one.mean and other.sigma == one.sigma
        told += len(points)


def test_a_result_and_a_table_have_the_choices(tmp_path: Path) -> None:
    result = fmnes.minimize(
        breaking, SPACE, rng=1, max_evaluations=80, run_dir=tmp_path / "run", keep_evaluations=True
    )
    assert json.loads(json.dumps(result.as_json()))["x"]["material"] == result.x["material"]
    assert "material = 'wood'" in str(result) or result.x["material"] != "wood"
    table = fmnes.read_run(tmp_path / "run").evaluations
    assert set(table["material"]) <= set(MATERIALS) and table["layers"].dtype == np.int64
    table.to_csv(tmp_path / "table.csv")
    assert ",wood," in (tmp_path / "table.csv").read_text()
    steel = fmnes.minimize(
        lambda p: None if p["c"] == "a" else p["x"] ** 2,
        {"c": fmnes.Categorical(["a", "b"]), "x": fmnes.Real(-5, 9)},
        rng=1,
        max_evaluations=300,
        keep_evaluations=True,
    )
    assert "c (choice no.)" in str(fmnes.explain(steel))
    flags = Space({"a": fmnes.Categorical([True, False]), "b": fmnes.Categorical([1.5, 2.5])})
    columns = flags.columns(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert [column.dtype.kind for column in columns.values()] == ["b", "f"] and columns["b"][0] == 2.5


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: fmnes.Categorical([]), "no choices, wanted a list of at least two"),
        (lambda: fmnes.Categorical(["steel"]), "one choice, 'steel'.*leave it out"),
        (lambda: fmnes.Categorical(["steel", "wood", "steel"]), "the choice 'steel' twice"),
        (lambda: fmnes.Categorical([1, 1.0]), "twice"),
        (lambda: fmnes.Categorical([["a"], ["b"]]), r"the choice \['a'\], wanted text.*names"),
        (lambda: fmnes.Categorical([print, len]), "wanted text, finite numbers"),
        (lambda: fmnes.Categorical([1.0, float("nan")]), "wanted text, finite numbers"),
        (lambda: fmnes.Categorical(range(10_000)), "10000 choices, wanted at most 1000.*fmnes.Integer"),
        (lambda: fmnes.Categorical("steel"), "wanted a list"),
        (lambda: fmnes.Categorical({"a", "b"}), "sort it"),
        (lambda: fmnes.Categorical(7), "wanted a list"),  # type: ignore[arg-type]
        (lambda: fmnes.Categorical(["a", "b"], start="c"), "start='c', wanted one of 'a', 'b'"),
        (lambda: fmnes.Categorical([1, 2], start="1"), "start='1', wanted one of 1, 2; did you mean 1"),
        (lambda: fmnes.Categorical([1, 2], start=True), "start=True"),
    ],
)
def test_bad_choices_are_refused_in_words(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=words):
        make()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"method": "xnes"}, "method: found 'xnes' together with categories, wanted 'afm-nes'"),
        ({"method": fmnes.Resampling(fmnes.CMAES())}, "together with categories"),
        ({"covariance": np.eye(4)}, "covariance"),
        ({"overlap": 0.5, "workers": 2}, "overlap: .*categories"),
        ({"surrogate": True}, "surrogate: .*categories"),
        ({"known": [({**dict.fromkeys(SPACE, 1.0), "material": "brass"}, 1.0)]}, "known, point 0: .*'brass'"),
    ],
)
def test_what_does_not_go_with_categories_is_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=words):
        fmnes.minimize(cost, SPACE, max_evaluations=10, **options)


def test_a_warm_start_is_refused_in_words() -> None:
    before = fmnes.minimize(cost, SPACE, rng=1, max_evaluations=50)
    with pytest.raises(fmnes.ArgumentError, match=r"warm_start: .*categories"):
        fmnes.minimize(cost, SPACE, warm_start=before, max_evaluations=10)


def test_choices_of_another_type_are_other_choices() -> None:
    kinds = [fmnes.Categorical(c) for c in ([1, 2], ["1", "2"], [True, False], [1, 3], [1.0, 2.0])]
    equal = [kinds[0] == other for other in kinds]
    assert equal == [True, False, False, False, True] and hash(kinds[0]) == hash(kinds[4])
    assert kinds[0].index(np.int64(2)) == 1 and fmnes.Categorical(["a", None]).index(None) == 1
    with pytest.raises(fmnes.ArgumentError, match="found choice='2', wanted one of 1, 2; did you mean 2"):
        kinds[0].index("2")


@pytest.mark.parametrize(
    "kind", [fmnes.Categorical(["a", 1, None, True, 2.5]), fmnes.Categorical([3, 4], start=4)]
)
def test_categories_come_back_from_json_and_from_their_repr(kind: fmnes.Categorical) -> None:
    space = Space({"c": kind})
    assert Space.from_json(json.loads(json.dumps(space.as_json()))) == space
    assert eval(f"fmnes.{kind!r}", {"fmnes": fmnes}) == kind


def test_a_snapshot_with_a_choice_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    opt = fmnes.Optimizer(SPACE, rng=1)
    opt.ask()
    metadata, arrays = opt.dump()
    arrays["current.x"] = arrays["current.x"].copy()
    arrays["current.x"][0, 0] = 7.0
    with pytest.raises(fmnes.SnapshotError):
        fmnes.Optimizer.restore(metadata, arrays)


# -- problem files -----------------------------------------------------------------------------------------

PROBLEM = """
command = ["/bin/sh", "-c", "test $0 = wood && echo FAIL wood burns || echo $1", "{material}", "{width}"]
[parameters.material]
choices = ["steel", "copper", "wood"]
start = "copper"
[parameters.width]
lower = 1
upper = 10
[run]
max_evaluations = 30
seed = 1
"""


def test_a_problem_file_with_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("typer")
    from fmnes.cli import app

    def say(*words: str) -> str:
        app([*words], standalone_mode=False)
        return capsys.readouterr().out

    path, run = tmp_path / "problem.toml", str(tmp_path / "problem.run")
    path.write_text(PROBLEM)
    assert "steel, copper, wood" in say("check", str(path))
    assert "1.5" in say("try", str(path), "material=copper", "width=1.5")
    with pytest.raises(fmnes.ArgumentError, match="found 'brass', wanted one of steel, copper, wood"):
        say("try", str(path), "material=brass")
    assert "wood burns" in say("minimize", str(path))
    assert "material" in say("show", run)
    say("export", run, "--output", str(tmp_path / "table.csv"))
    assert ",copper," in (tmp_path / "table.csv").read_text()
    say("report", run)
    assert "steel, copper, wood" in (tmp_path / "problem.run" / "report.html").read_text()
    path.write_text(PROBLEM.replace('["steel", "copper", "wood"]', '[1, 2, "copper"]'))
    with pytest.raises(fmnes.RunError, match="of another problem"):  # choices of another type
        say("minimize", str(path))
