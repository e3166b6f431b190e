"""Reading a run: at any moment, wherever it lies, in the user's names and units; nothing is changed by it."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError, RunError, StopReason, read_run
from fmnes.html.document import head, seconds_left, why
from fmnes.outcome import Outcome, infeasible, lost
from fmnes.space import Space
from fmnes.storage.directory import RunDirectory


def bumpy(x: Any) -> Any:
    if x[0] < 0:
        raise fmnes.Infeasible("negative")
    if x[1] < 0:
        return math.nan, {"mass": 1.0}
    return float(x @ x), {"mass": float(x[0]), "layers": 3}


def run_in(path: Path, **settings: Any) -> fmnes.Result:
    settings = {"rng": 1, "max_evaluations": 200, **settings}
    return fmnes.minimize(bumpy, [1.0, 1.0], 0.3, run_dir=path, **settings)


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, whatever it is made of."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return a is not None and b is not None and a.tobytes() == b.tobytes()
    if isinstance(a, fmnes.Failure):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) or (a != a and b != b)


def test_the_time_left_follows_the_budget_that_ends_first(tmp_path: Path) -> None:
    run_in(tmp_path / "a.run")
    run = read_run(tmp_path / "a.run")
    seconds = run.history["seconds"] * 0 + 4.0  # 200 evaluations in 4 s
    active = replace(
        run, result=None, state="running (process 1)", history={**run.history, "seconds": seconds}
    )

    def left(**settings: Any) -> float | None:
        return seconds_left(replace(active, settings=settings))

    assert left(max_evaluations=500) == pytest.approx(6.0, rel=0.05)
    assert left(max_evaluations=500, max_seconds=5.0) == pytest.approx(1.0, rel=0.25)
    assert left(max_evaluations=100) == 0 and left() is None and left(max_seconds=1.0) == 0
    assert "200 of 50,000" in head(replace(active, settings={"max_evaluations": 50_000}))
    assert "about 17 minutes left" in why(replace(active, settings={"max_evaluations": 50_000}), run.path)
    assert " left" not in why(replace(active, settings={}), run.path) and "200 of" not in head(run)


# -- a run that has ended ---------------------------------------------------------------------------------


def test_the_result_is_the_one_that_was_returned(tmp_path: Path) -> None:
    result = run_in(tmp_path / "run", restarts=1)
    before = contents(tmp_path)
    run = read_run(tmp_path / "run")
    assert run.result is not None
    for field in fields(result):
        assert same(getattr(run.result, field.name), getattr(result, field.name)), field.name
    assert (run.state, run.message) == ("MAX_EVALUATIONS", result.message)
    assert (run.names, run.parameters) == (("x0", "x1"), None)
    assert same(run.best.x, result.x) and run.best.fun == result.fun
    assert same(run.history, result.history) and len(run.history["best"]) == result.nit
    assert run.settings["max_evaluations"] == 200 and run.objective["name"] == "bumpy"
    assert run.summary.evaluations == 200 and run.summary.failed == result.n_infeasible
    assert [(f.reason, f.count) for f in run.failures] == [(f.reason, f.count) for f in result.failures]
    assert same([f.x for f in run.failures], [f.x for f in result.failures])
    assert "MAX_EVALUATIONS; 200 evaluations" in repr(run)
    assert contents(tmp_path) == before


def test_the_best_is_counted_as_the_run_has_counted_it(tmp_path: Path) -> None:
    views: list[fmnes.View] = []
    run_in(tmp_path / "run", callback=views.append, max_evaluations=None, target=1e-3)
    counted = read_run(tmp_path / "run").best.evaluation
    assert counted == views[-1].best.evaluation or counted > views[-1].evaluations
    assert read_run(tmp_path / "run").evaluations["value"][counted - 1] <= 1e-3


def test_every_evaluation_is_there(tmp_path: Path) -> None:
    points: list[Any] = []

    def seen(x: Any) -> Any:
        points.append(x.copy())
        return bumpy(x)

    options: dict[str, Any] = {"rng": 1, "max_evaluations": 200, "surrogate": False}
    fmnes.minimize(seen, [1.0, 1.0], 0.3, **options, run_dir=tmp_path / "run")
    table = read_run(tmp_path / "run").evaluations
    assert len(table) == 200
    assert np.array_equal(np.transpose([table["x0"], table["x1"]]), points)
    assert table.parameters["x1"] is table["x1"]
    for i, x in enumerate(points):
        expected = "infeasible" if min(x) < 0 else "value"
        assert table["status"][i] == expected
        assert table["reason"][i] == ("negative" if x[0] < 0 else "returned NaN" if x[1] < 0 else "")
        assert table["value"][i] == x @ x if expected == "value" else np.isnan(table["value"][i])
        assert np.isnan(table["mass"][i]) if x[0] < 0 else table["mass"][i] == (1.0 if x[1] < 0 else x[0])
    assert list(table.outputs) == ["mass", "layers"]
    assert (table["generation"][:2].tolist(), table["slot"][:3].tolist()) == ([-1, 0], [0, 0, 1])
    assert np.all(table["seconds"] >= 0) and np.all(abs(table["started"] - time.time()) < 600)


def test_a_known_point_may_be_better_than_all(tmp_path: Path) -> None:
    known = [([0.0, 0.0], -1.0)]
    result = run_in(tmp_path / "run", known=known, max_evaluations=20)
    run = read_run(tmp_path / "run")
    assert (run.best.fun, run.best.evaluation, result.fun) == (-1.0, 0, -1.0)
    assert run.best.x.tolist() == [0.0, 0.0]


def test_points_too_long_to_be_kept(tmp_path: Path) -> None:
    d = 10_001
    few = {"method": "cr-fm-nes", "max_evaluations": 3, "rng": 1, "population_size": 4}
    fmnes.minimize(lambda x: float(x @ x), np.ones(d), 0.3, run_dir=tmp_path / "r", **few)
    run = read_run(tmp_path / "r")
    assert len(run.best.x) == d == len(run.names)
    assert (run.evaluations.parameters, len(run.evaluations), run.failures) == ({}, 3, [])
    assert "x0" not in run.evaluations.columns


# -- a run under way, or cut short --------------------------------------------------------------------------


def test_a_run_is_read_while_it_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmnes.run.state.SNAPSHOT_SECONDS", 0.0)
    path, seen = tmp_path / "run", []

    def look(view: fmnes.View) -> None:
        run = read_run(path)
        assert run.state.startswith(f"running (process {os.getpid()} on ")
        assert (run.result, run.message) == (None, None)
        assert run.summary.evaluations == len(run.evaluations) == view.evaluations
        assert run.best.fun == view.best.fun and same(run.best.x, view.best.x)
        assert len(run.history["best"]) == view.generation - 1  # its snapshot is still to come
        copied = tmp_path / "copy"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(path, copied)
        elsewhere = read_run(copied)
        assert elsewhere.state == "stopped; resume it"
        assert len(elsewhere.evaluations) == view.evaluations
        seen.append(view)

    run_in(path, callback=look, max_evaluations=60)
    assert len(seen) > 5


KILLED = """
import os, signal, sys
import fmnes
from tests.test_reading import bumpy
calls = 0
def killed(x):
    global calls
    calls += 1
    if calls > 50:
        os.kill(os.getpid(), signal.SIGKILL)
    return bumpy(x)
killed.__qualname__ = "bumpy"
fmnes.minimize(killed, [1.0, 1.0], 0.3, rng=1, run_dir=sys.argv[1])
"""


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", KILLED, path], cwd=Path(__file__).parents[1], timeout=300)
    assert done.returncode == -signal.SIGKILL
    for place in (path, Path(shutil.copytree(path, tmp_path / "copy"))):
        run = read_run(place)
        assert (run.state, run.result, run.message) == ("stopped; resume it", None, None)
        assert len(run.evaluations) == run.summary.evaluations == 50
        assert run.names == ("x0", "x1") and run.best.fun == np.nanmin(run.evaluations.value)
    result = fmnes.resume(path, bumpy, max_evaluations=80, keep_evaluations=True)
    assert len(result.evaluations) == result.nfev == 80
    assert np.array_equal(result.evaluations["x0"][:50], run.evaluations["x0"])


def test_a_run_in_which_nothing_is_evaluated_yet(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", config()).close()
    run = read_run(tmp_path / "run")
    assert (run.state, run.names, run.result, run.failures) == ("stopped; resume it", (), None, [])
    assert run.best == (None, math.inf, 0)
    assert (len(run.evaluations), run.history["best"].shape) == (0, (0,))
    assert list(run.evaluations) == [] and "value" in run.evaluations.columns


def test_no_file_stays_open(tmp_path: Path) -> None:
    run_in(tmp_path / "run", max_evaluations=20)

    def is_open() -> bool:
        links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
        return any(str(tmp_path) in os.readlink(link) for link in links if os.path.lexists(link))

    run = read_run(tmp_path / "run")
    assert not is_open()
    assert run.evaluations is run.evaluations and run.failures is run.failures  # read once
    assert not is_open()
    tables = run.tables()
    next(tables)
    assert is_open()  # so that this test can fail
    tables.close()
    assert not is_open()


# -- in the user's words ------------------------------------------------------------------------------------


#: The settings of a run in `config.json`.
SETTINGS: dict[str, Any] = {
    "max_evaluations": 10,
    "max_seconds": None,
    "workers": 1,
    "vectorized": False,
    "timeout": None,
    "retries": 2,
    "on_error": "infeasible",
    "restarts": 0,
    "target": None,
    "restart_from": "start",
    "second_look": True,
    "evaluate_start": True,
}


def config(**objective: Any) -> dict[str, Any]:
    function = {"kind": "function", "name": "f", "module": "m"}
    return {
        "settings": SETTINGS,
        "objective": objective or function,
        "search": {},
        "versions": {},
    }


SPACE = {
    "thickness": fmnes.Real(0.1, 10, log=True),
    "layers": fmnes.Integer(1, 12),
    "status": fmnes.Real(0, 1),
}


def named_run(path: Path) -> None:
    """As a run with named parameters leaves it: all numbers are the search's."""
    space = Space(SPACE)
    with RunDirectory.create(path, {**config(), "parameters": space.as_json()}) as directory:
        for slot, (thickness, layers, status) in enumerate([(0.1, 2, 0.5), (10, 3, 0.25), (1.5, 12, 1.0)]):
            x = space.numbers({"thickness": thickness, "layers": layers, "status": status})
            outcome = Outcome("value", 5.0 - slot, outputs={"mass": 2.0, "layers": 7, "output.layers": "x"})
            directory.log.record((0, 0, slot, 0, 0), outcome, x, 1.0, 0.5)
        directory.log.record((0, 0, 3, 0, 0), infeasible("cracked", detail="tail"), x, 1.0, 0.5)
        directory.log.record((0, 0, 4, 0, 0), lost("node"), x, 1.0, 0.5)
        result = {
            "x": x.tolist(), "fun": 3.0, "success": True, "stop_reason": "XTOL", "message": "short",
            "nfev": 4, "nit": 1, "n_infeasible": 1, "x_mean": x.tolist(), "seed": 1, "failures": [],
            "second_looks": 0, "n_repeated": 0,
        }  # fmt: skip
        directory.finish(result)


def test_named_parameters_in_their_units(tmp_path: Path) -> None:
    named_run(tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.parameters == SPACE and run.names == tuple(SPACE)
    assert run.best.x == {"thickness": 1.5, "layers": 12, "status": 1.0} == run.result.x == run.result.x_mean
    assert type(run.best.x["layers"]) is int and run.result.stop_reason is StopReason.XTOL
    assert run.result.parameters == SPACE and run.result.vector.tolist() == [1.5, 12, 1.0]
    [failure] = run.failures
    assert (failure.reason, failure.count, failure.detail) == ("cracked", 1, "tail")
    assert failure.x.tolist() == [[1.5, 12, 1.0]]
    table = run.evaluations
    assert table.parameters["thickness"].tolist() == [0.1, 10, 1.5, 1.5, 1.5]
    assert table["thickness"] is table.parameters["thickness"]
    assert table["layers"].dtype == np.int64 and table["layers"].tolist() == [2, 3, 12, 12, 12]
    assert table["status"].tolist() == ["value", "value", "value", "infeasible", "lost"]


def test_names_that_clash_are_told_apart(tmp_path: Path) -> None:
    named_run(tmp_path / "run")
    table = read_run(tmp_path / "run").evaluations
    parameters, outputs = ("thickness", "layers", "parameter.status"), ("mass", "output.layers")
    assert table.columns[7:13] == (*parameters, *outputs, "output.output.layers")
    assert len(set(table.columns)) == len(table.columns)
    assert table["parameter.status"].tolist() == table.parameters["status"].tolist()
    assert table["output.layers"].tolist()[:3] == [7, 7, 7] == table.outputs["layers"].tolist()[:3]
    assert table["output.output.layers"].tolist() == ["x", "x", "x", None, None]
    assert list(next(iter(table))) == list(table.columns)


SIMULATOR = """
import sys
x = float(sys.argv[1])
print("mesh", x, file=sys.stderr)
if x < 0.9:
    sys.exit(3)
if x < 1.0:
    print("FAIL too thin")
else:
    print(x)
"""


def test_what_was_kept_of_a_program_that_failed(tmp_path: Path) -> None:
    (tmp_path / "simulate.py").write_text(SIMULATOR)
    command = fmnes.Command([sys.executable, str(tmp_path / "simulate.py"), "{x0}"])
    fmnes.minimize(command, [1.0], 0.2, rng=1, max_evaluations=12, run_dir=tmp_path / "run", workers=2)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    failures = read_run(tmp_path / "moved").failures
    assert {failure.reason for failure in failures} == {"exited with code 3", "too thin"}
    for failure in failures:
        assert "mesh" in failure.detail
        directory = Path(str(failure.directory))
        assert directory.parent == tmp_path / "moved" / "kept" and (directory / "params.json").is_file()
        assert json.loads((directory / "params.json").read_text())["x"] == failure.x[0].tolist()
    shutil.rmtree(tmp_path / "moved" / "kept")
    assert [failure.directory for failure in read_run(tmp_path / "moved").failures] == [None, None]


def test_what_was_kept_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "simulate.py").write_text(SIMULATOR)
    argv = [sys.executable, str(tmp_path / "simulate.py"), "{x0}"]
    command = fmnes.Command(argv, directory=tmp_path / "work")
    fmnes.minimize(command, [1.0], 0.2, rng=1, max_evaluations=6, run_dir=tmp_path / "run")
    for failure in read_run(tmp_path / "run").failures:
        assert Path(str(failure.directory)).parent == tmp_path / "work"


# -- what is no run, or damaged -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [3, None, b"run", "a\0b"])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(ArgumentError, match="path: found"):
        read_run(path)


def test_what_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    for path in (tmp_path, tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(RunError, match=str(path)):
            read_run(path)


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.pop("settings"),
        lambda c: c.update(settings=[]),
        lambda c: c.pop("objective"),
        lambda c: c.update(objective="f"),
        lambda c: c.update(objective={"kind": "function"}),
        lambda c: c.update(parameters="x"),
        lambda c: c.update(parameters=[]),
        lambda c: c.update(parameters=[{"name": "a", "lower": 0, "upper": 1}]),
        lambda c: c.update(parameters=[{"name": n, "lower": 0, "upper": 1} for n in "aa"]),
        lambda c: c.update(parameters=[{"name": n, "lower": 1, "upper": 0} for n in "ab"]),
        lambda c: c["objective"].update(names=["a"]),
        lambda c: c["objective"].update(names=3),
    ],
)
def test_configurations_that_no_run_has(tmp_path: Path, edit: Callable[[Any], Any]) -> None:
    run_in(tmp_path / "run", max_evaluations=10)
    with RunDirectory.open(tmp_path / "run") as directory:
        changed = json.loads(json.dumps(directory.config))
        edit(changed)
        directory.update_config(changed)
    with pytest.raises(RunError, match="found an unusable"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    "edit",
    [
        lambda r: r.clear(),
        lambda r: r.pop("x"),
        lambda r: r.update(x="abc"),
        lambda r: r.update(x=[[1.0], [2.0]]),
        lambda r: r.update(x=[1.0]),
        lambda r: r.update(x_mean=[1.0, 2.0, 3.0]),
        lambda r: r.update(fun="low"),
        lambda r: r.update(stop_reason="BORED"),
        lambda r: r.update(nfev=None),
        lambda r: r.update(covariance="round"),
    ],
)
def test_results_that_no_run_has(tmp_path: Path, edit: Callable[[Any], Any]) -> None:
    run_in(tmp_path / "run", max_evaluations=10)
    with RunDirectory.open(tmp_path / "run") as directory:
        result = directory.result
        edit(result)
        directory.finish(result)
    with pytest.raises(RunError, match="found an unusable"):
        read_run(tmp_path / "run")


def test_damaged_files(tmp_path: Path) -> None:
    run_in(tmp_path / "run", max_evaluations=10)
    for name in ("config.json", "result.json", "result.npz", "evaluations.sqlite"):
        copy = Path(shutil.copytree(tmp_path / "run", tmp_path / name))
        whole = (copy / name).read_bytes()
        (copy / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(RunError, match=name):
            read_run(copy)
    (tmp_path / "result.npz" / "result.npz").unlink()  # which the message calls for
    assert read_run(tmp_path / "result.npz").result.nfev == 10


def test_rows_that_do_not_belong_together(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", config()) as directory:
        for slot, d in enumerate((2, 3)):
            directory.log.record((0, 0, slot, 0, 0), Outcome("value", 5.0), np.ones(d), 1.0, 0.5)
    with pytest.raises(RunError, match="points of different lengths"):
        _ = read_run(tmp_path / "run").evaluations
    with RunDirectory.create(tmp_path / "long", config()) as directory:
        short = [((0, i, 0, 0, 0), Outcome("value", 0.0), np.ones(2), 1.0, 0.0) for i in range(10_000)]
        directory.log.record_many(short)
        directory.log.record((1, 0, 0, 0, 0), Outcome("value", 1.0), np.ones(3), 1.0, 0.0)  # the second batch
    with pytest.raises(RunError, match="points of 3 coordinates, wanted 2"):
        _ = read_run(tmp_path / "long").evaluations


def test_a_directory_full_of_pipes_is_not_waited_for(tmp_path: Path) -> None:
    run_in(tmp_path / "run", max_evaluations=10)
    (tmp_path / "run" / "result.npz").unlink()
    os.mkfifo(tmp_path / "run" / "result.npz")
    with pytest.raises(RunError, match="plain file"):
        read_run(tmp_path / "run")


# -- what is kept of the end of a run ------------------------------------------------------------------------


def test_a_run_that_goes_on_has_no_ending(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run_in(path, max_evaluations=50)
    assert (path / "result.npz").is_file()
    states = []

    def look(_: Any) -> None:
        states.append((path / "result.npz").exists() or read_run(path).result)

    result = fmnes.resume(path, bumpy, max_evaluations=100, callback=look)
    assert states and not any(states)
    assert same(read_run(path).result.history, result.history)


def test_an_ending_that_cannot_be_written_takes_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmnes.storage.snapshot._MAX_METADATA_BYTES", 100)
    monkeypatch.setattr("fmnes.run.state.Snapshots.take", lambda *_: None)
    with pytest.warns(RuntimeWarning, match=r"result\.npz: could not be written"):
        result = run_in(tmp_path / "run", max_evaluations=50)
    run = read_run(tmp_path / "run")
    assert run.result.fun == result.fun and len(run.history["best"]) == 0


def test_a_run_that_is_taken_up_again_has_no_result_any_more(tmp_path: Path) -> None:
    run_in(tmp_path / "run")
    assert read_run(tmp_path / "run").result is not None
    with RunDirectory.open(tmp_path / "run"):  # as `resume` does before all else
        found = read_run(tmp_path / "run")
    assert found.result is None
    assert found.message is None
    assert found.state.startswith("running")
