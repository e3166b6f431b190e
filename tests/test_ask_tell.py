"""Ask for a few points with ids and tell them one by one: any order, any subset, any process, one search."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import LOST, XNES, ArgumentError, Optimizer, Resampling, StopReason, UsageError
from fmnes.search.advance import again as begin_again
from fmnes.search.stopping import limit_reached
from tests.rows import through
from tests.variants import METHODS, ONE_OF_EACH

each_method = pytest.mark.parametrize("method", ONE_OF_EACH.values(), ids=ONE_OF_EACH)


def value(x: np.ndarray) -> float:
    """An ellipsoid that fails beyond a border."""
    return math.nan if x[0] < 0.6 else float((x**2 * [1, 30, 900]).sum())


def start(method: Any = "fm-nes", **settings: Any) -> Optimizer:
    return Optimizer([1.0, 2.0, 3.0], 0.5, **{"rng": 1, "population_size": 8, "method": method, **settings})


def contents(opt: Optimizer) -> tuple[Any, dict[str, bytes]]:
    metadata, arrays = opt.dump()
    return metadata, {name: np.asarray(array).tobytes() for name, array in arrays.items()}


def by_list(opt: Optimizer, generations: int) -> Optimizer:
    while opt.generation < generations and not limit_reached(opt):
        opt.tell([value(x) for x in opt.ask()])
    return opt


class Engine:
    """Asks for a few points, tells them in any order, late or twice, loses some, saves and loads."""

    def __init__(self, opt: Optimizer, rng: np.random.Generator, path: Path) -> None:
        self.opt, self.rng, self.path = opt, rng, path
        self.out: dict[str, np.ndarray] = {}
        self.old: list[str] = []

    def step(self) -> None:
        kind = self.rng.choice(["ask", "tell", "lose", "twice", "load"], p=[0.35, 0.45, 0.08, 0.08, 0.04])
        if kind == "ask" or not self.out:
            points = self.opt.ask(int(self.rng.integers(1, 5)))
            assert not {p.id for p in points} & self.out.keys(), "given out twice"
            self.out |= dict(points)
        elif kind == "tell":
            id = self.rng.choice(sorted(self.out))
            self.opt.tell(str(id), value(self.out.pop(id)))
            self.old.append(str(id))
        elif kind == "lose":
            id = self.rng.choice(sorted(self.out))
            self.opt.tell(str(id), LOST)
            del self.out[id]
        elif kind == "twice" and self.old:
            before = contents(self.opt)
            self.opt.tell(str(self.rng.choice(self.old)), -1e9)
            assert contents(self.opt) == before, "the first answer counts"
        elif kind == "load":
            self.opt.save(self.path)
            self.opt = Optimizer.load(self.path)
            if self.rng.random() < 0.5:  # whoever had points is gone; else they still answer
                self.out.clear()
            else:
                # What is open can be given out again, and either answer will do.
                again = self.opt.ask(100)
                assert {p.id for p in again} >= self.out.keys()
                self.out |= dict(again)

    def run(self, generations: int) -> Optimizer:
        for _ in range(100_000):
            if self.opt.generation >= generations or limit_reached(self.opt):
                return self.opt
            self.step()
        raise AssertionError("it does not come to an end")


@each_method
@pytest.mark.parametrize("bounds", [None, (0.7, 3.1)], ids=["free", "bounds"])
def test_whatever_the_order_it_is_the_search_of_ask_and_tell(
    method: Any, bounds: Any, tmp_path: Path
) -> None:
    """Subsets, LOST, answers twice, saving and loading in between: bit for bit, counters included."""
    wanted = contents(by_list(start(method, bounds=bounds), 5))
    for seed in range(2):
        engine = Engine(start(method, bounds=bounds), np.random.default_rng(seed), tmp_path / "state.npz")
        assert contents(engine.run(5)) == wanted


@pytest.mark.parametrize("limits", [{"target": 200.0}, {"max_evaluations": 43}], ids=str)
@pytest.mark.parametrize("method", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_target_and_budget_are_applied_in_slot_order(method: Any, limits: Any, tmp_path: Path) -> None:
    plain = by_list(start(method, **limits), 30)
    assert limit_reached(plain)
    for seed in range(2):
        engine = Engine(start(method, **limits), np.random.default_rng(seed), tmp_path / "state.npz")
        found = engine.run(30)
        for late, x in engine.out.items():  # what was under way comes in after the stop
            found.tell(late, value(x))
        for name in ("evaluations", "n_infeasible", "generation", "stop"):
            assert getattr(found, name) == getattr(plain, name)
        np.testing.assert_array_equal(found.best.x, plain.best.x)
        assert found.best[1:] == plain.best[1:]
        assert found.result().success is plain.result().success


def test_the_first_hit_in_slot_order_counts_in_every_order() -> None:
    told = [3.0, math.nan, -5.0, -9.0, math.nan, -7.0]
    plain = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6, target=-5.0)
    plain.ask()
    plain.tell(told)
    assert plain.evaluations == 3
    for order in itertools.permutations(range(6)):
        opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6, target=-5.0)
        points = opt.ask(6)
        for i in order:
            opt.tell(points[i].id, told[i])
        assert (opt.evaluations, opt.n_infeasible, opt.best.evaluation) == (3, 1, 3)
        assert opt.stop == plain.stop and opt.generation == 0
        # A stop is advice. All values are known, so asking for more goes on with the next generation.
        later = opt.ask(1)
        assert opt.generation == 1 and opt.evaluations == 6 and later[0].id.startswith("0-1-")
        assert opt.best.fun == -9.0 and opt.best.evaluation == 4
    while plain.generation == 0:
        plain.ask()
        plain.tell([told[slot] for _, _, slot, *_ in plain.asked])
    plain.ask()
    assert contents(plain) == contents(opt)


def test_a_budget_hands_out_the_first_points_only() -> None:
    opt, plain = (start(max_evaluations=11) for _ in range(2))
    by_list(plain, 1), by_list(opt, 1)
    points = opt.ask(100)
    np.testing.assert_array_equal([p.x for p in points], plain.ask())
    assert len(points) == 3 and opt.ask(1) == []
    opt.tell(points[2].id, 5.0)  # early: it is counted when those before it are
    assert opt.evaluations == 8 and opt.ask(100) == []
    opt.tell(points[0].id, LOST)
    assert [p.id for p in opt.ask(100)] == [points[0].id]
    opt.tell(points[0].id, 3.0)
    assert opt.evaluations == 9 and opt.ask(100) == []
    opt.tell(points[1].id, 4.0)
    plain.tell([3.0, 4.0, 5.0])
    assert opt.stop_reason is StopReason.MAX_EVALUATIONS and opt.generation == 1
    assert contents(opt) == contents(plain)
    assert len(opt.ask(100)) == 5  # advice: the rest is there for those who go on


# -- ids and handing out ----------------------------------------------------------------------------------


def test_workers_get_different_points_and_lost_ones_come_again() -> None:
    opt = start()
    points = [opt.ask(1)[0] for _ in range(8)]
    np.testing.assert_array_equal([p.x for p in points], start().ask())
    assert len({p.id for p in points}) == 8
    assert opt.ask(1) == opt.ask(5) == []
    opt.tell(points[5].id, LOST)
    opt.tell(points[2].id, LOST)
    assert [p.id for p in opt.ask(5)] == [points[2].id, points[5].id]
    assert opt.ask(5) == []
    for p in points[1:]:
        opt.tell(p.id, 1.0)
        assert opt.ask(5) == [], "the generation is not complete"
    opt.tell(points[0].id, 1.0)
    assert opt.generation == 1 and len(opt.ask(np.int64(3))) == 3 and len(opt.ask(8)) == 5


def test_points_are_read_only_and_stay_what_they_were() -> None:
    opt = start(Resampling(XNES()))
    points = opt.ask(8)
    kept = [p.x.copy() for p in points]
    with pytest.raises(ValueError, match="read-only"):
        points[0].x[0] = 0.0
    for p in points:
        opt.tell(p.id, None)
    for p in opt.ask(8):
        with pytest.raises(ValueError, match="read-only"):
            p.x[0] = 0.0
    np.testing.assert_array_equal([p.x for p in points], kept)


def test_an_id_is_plain_text_and_names_one_evaluation_only() -> None:
    """Over generations, redraws and restarts."""
    seen: list[str] = []
    opt = start(Resampling(XNES()))
    for _ in range(3):
        while opt.generation < 4:
            for id, x in opt.ask(8):
                seen.append(id)
                opt.tell(json.loads(json.dumps(id)), value(x))
        opt = begin_again(opt, opt.x0, opt.sigma0, 2 * opt.population_size, None)
    assert len(set(seen)) == len(seen) > 100
    assert all(type(id) is str and set(id) <= set("0123456789abcdef-") for id in seen)
    # A late answer to a search before the restart is recognised as such.
    before = contents(opt)
    for id in seen:
        opt.tell(id, -1e9)
    assert contents(opt) == before


def test_late_and_double_answers_are_ignored_and_the_first_counts() -> None:
    opt, plain = start(), start()
    first = opt.ask(8)
    opt.tell(first[3].id, 7.0)
    before = contents(opt)
    for late in (-1e9, 7.0, LOST, None):
        opt.tell(first[3].id, late)
        assert contents(opt) == before and opt.ask(1) == []
    for p in first:
        opt.tell(p.id, 7.0 if p is first[3] else value(p.x))
    plain.tell([7.0 if i == 3 else value(x) for i, x in enumerate(plain.ask())])
    assert contents(opt) == contents(plain)
    opt.tell(first[0].id, -1e9)
    assert contents(opt) == contents(plain)
    # An answer to a draw that was replaced.
    opt = start(Resampling(XNES()))
    first = opt.ask(8)
    for p in first:
        opt.tell(p.id, None if p is first[4] else value(p.x))
    redrawn = opt.ask(8)
    before = contents(opt)
    opt.tell(first[4].id, -1e9)
    assert contents(opt) == before and first[4].id not in {p.id for p in redrawn}


UNKNOWN: dict[str, Any] = {
    "text": "7",
    "empty": "",
    "a number": 7,
    "none": None,
    "bytes": b"0-0-0-0-00000000",
    "an array": np.zeros(3),
    "other digits": "0-0-0-0-١٢٣٤٥٦٧٨",
    "a line more": "0-0-0-0-00000000\n",
    "huge": "0-0-" + "9" * 10_000 + "-0-00000000",
    "negative": "0-0--1-0-00000000",
}


@through("id", UNKNOWN.values())
def test_what_is_no_id_is_refused(id: Any) -> None:
    opt = start()
    opt.ask(3)
    before = contents(opt)
    with pytest.raises(
        ArgumentError, match=r"tell: found (the id .*wanted one that ask\(n\) gave|two arguments)"
    ):
        opt.tell(id, 1.0)
    assert contents(opt) == before


def test_ids_of_another_search_or_of_the_future_are_refused() -> None:
    opt, other = start(), start(rng=2)
    (point,) = opt.ask(1)
    restart, generation, slot, redraw, mark = point.id.split("-")
    wrong = {
        "seed": other.ask(1)[0].id,
        "restart": f"1-{generation}-{slot}-{redraw}-{mark}",
        "generation": f"{restart}-1-{slot}-{redraw}-{mark}",
        "slot": f"{restart}-{generation}-8-{redraw}-{mark}",
        "another slot": f"{restart}-{generation}-1-{redraw}-{mark}",
        "redraw": f"{restart}-{generation}-{slot}-1-{mark}",
        "mark": f"{restart}-{generation}-{slot}-{redraw}-{'0' * 8}",
    }
    before = contents(opt)
    for id in wrong.values():
        for told in (1.0, LOST):
            with pytest.raises(ArgumentError, match="of another search, or of a later generation"):
                opt.tell(id, told)
    assert contents(opt) == before
    opt.tell(point.id, 1.0)


@pytest.mark.parametrize("bad", ["1.0", [1.0, 2.0], object(), 1j])
def test_a_value_that_is_no_number_is_refused_and_changes_nothing(bad: Any) -> None:
    opt = start()
    (point,) = opt.ask(1)
    before = contents(opt)
    with pytest.raises(ArgumentError, match=r"tell: .*wanted one real number"):
        opt.tell(point.id, bad)
    assert contents(opt) == before


@through("n", [0, -1, True, False, 2.5, "3", math.nan, [1], -(10**400)])
def test_a_number_of_points_that_is_none_is_refused(n: Any) -> None:
    with pytest.raises(ArgumentError, match=r"n: found .*wanted a whole number above 0"):
        start().ask(n)


def test_a_huge_number_of_points_is_as_many_as_there_are() -> None:
    assert len(start().ask(10**15)) == 8


# -- mixed, saved, and without any point ------------------------------------------------------------------


def test_both_forms_in_one_generation_are_one_count() -> None:
    plain = by_list(start(), 3)
    opt = by_list(start(), 2)
    points = opt.ask(4)
    opt.tell(points[2].id, value(points[2].x))
    X = opt.ask()  # all that need a value, whoever else may have them
    assert len(X) == 7
    with pytest.raises(ArgumentError, match="wanted 7 values"):
        opt.tell([1.0] * 8)
    opt.tell([LOST if i == 0 else value(x) for i, x in enumerate(X)])
    assert opt.evaluations == 16, "all wait for the first slot"
    (again,) = opt.ask()
    opt.tell([value(again)])
    assert contents(opt) == contents(plain)
    # Told by id in between, the list of the last ask() does not fit any more.
    X = opt.ask()
    (point,) = opt.ask(1)
    opt.tell(point.id, value(point.x))
    with pytest.raises(UsageError, match=r"wanted ask\(\) first"):
        opt.tell([value(x) for x in X])
    opt.tell([value(x) for x in opt.ask()])
    assert contents(opt) == contents(by_list(plain, 4))


def test_after_a_load_everything_open_is_given_out_again_and_old_ids_still_tell(tmp_path: Path) -> None:
    opt, plain = start(), by_list(start(), 1)
    points = opt.ask(5)
    opt.tell(points[3].id, value(points[3].x))
    opt.save(tmp_path / "state.npz")
    loaded = Optimizer.load(tmp_path / "state.npz")
    again = loaded.ask(100)
    assert [p.id for p in again] == [p.id for p in (*points[:3], points[4], *opt.ask(100))]
    for p in (*points, *again[::-1]):
        loaded.tell(p.id, value(p.x))
    assert contents(loaded) == contents(plain)


@pytest.mark.parametrize("bounds", [None, (0.9, 3.05)])
def test_answers_to_points_that_were_asked_for_after_the_save(bounds: Any, tmp_path: Path) -> None:
    """The same points come again, so the file from before them is enough."""
    opt = by_list(start(bounds=bounds, rng=5), 2)
    opt.save(tmp_path / "state.npz")
    points = opt.ask(100)
    loaded = Optimizer.load(tmp_path / "state.npz")
    for p in points[::-1]:
        for o in (opt, loaded):
            o.tell(p.id, value(p.x))
    assert contents(loaded) == contents(opt)


def test_early_values_in_an_edited_file_are_refused(tmp_path: Path) -> None:
    opt = start()
    opt.tell(opt.ask(2)[1].id, 1.0)
    metadata, arrays = opt.dump()
    assert contents(Optimizer.restore(metadata, arrays)) == contents(opt)
    for early in (np.ones(7, dtype=bool), np.ones(8), np.arange(8)):
        with pytest.raises(fmnes.SnapshotError):
            Optimizer.restore(metadata, {**arrays, "current.out_of_order": early})
    counted = arrays["current.open"].copy()
    counted[1] = False
    with pytest.raises(fmnes.SnapshotError, match="counted"):
        Optimizer.restore(metadata, {**arrays, "current.open": counted})
    for restart in (-1, "0", None, 1.0):
        with pytest.raises(fmnes.SnapshotError):
            Optimizer.restore({**metadata, "restart": restart}, arrays)


def test_generations_outside_the_bounds_end_with_no_feasible_and_asking_goes_on() -> None:
    def far() -> Optimizer:
        return Optimizer(np.zeros(6), 1e6, rng=1, bounds=(-1e-9, 1e-9), bounds_as="failure", method="xnes")

    opt, plain = far(), far()
    assert opt.ask(3) == [] and plain.ask().shape == (0, 6)
    assert opt.stop_reason is StopReason.NO_FEASIBLE and opt.stop == plain.stop
    for _ in range(3):
        assert opt.ask(3) == []
        plain.tell(float(x @ x) for x in plain.ask())
        plain.ask()
    assert contents(opt) == contents(plain)


WORKER = """
    import json, sys, fmnes

    path, ids = sys.argv[1], json.loads(sys.argv[2])
    opt = fmnes.Optimizer.load(path)
    points = dict(opt.ask(100))
    for id in ids or list(points)[::-1][:3]:
        x = points.get(id)
        if x is not None:
            opt.tell(id, float("nan") if x[0] < 0.6 else float((x**2 * [1, 30, 900]).sum()))
    opt.save(path)
    print(json.dumps(list(points)))
"""


@pytest.mark.parametrize("method", ["fm-nes", "cma-es 2016 /R"])
def test_another_process_asks_and_tells(method: str, tmp_path: Path) -> None:
    """Three at a time from the end, each time in a fresh process."""
    path = tmp_path / "state.npz"
    opt = start(METHODS[method])
    mine = opt.ask(2)
    opt.save(path)
    environment = {**os.environ, "PYTHONPATH": str(Path(fmnes.__file__).parent.parent)}
    for turn in range(3):
        ids = [mine[1].id] if turn == 0 else []
        command = [sys.executable, "-c", textwrap.dedent(WORKER), str(path), json.dumps(ids)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        assert (mine[0].id in json.loads(done.stdout)) or turn == 2
    opt = Optimizer.load(path)
    opt.tell(mine[0].id, value(mine[0].x))
    plain = start(METHODS[method])
    wanted = max(opt.generation, 1)
    while opt.generation < wanted:
        for p in opt.ask(2):
            opt.tell(p.id, value(p.x))
    assert contents(opt) == contents(by_list(plain, wanted))
