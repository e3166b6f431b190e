"""A config.json whose checksum is right is still checked as what a user passes: it may have been edited."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import Command, Integer, Real, minimize, read_run, resume
from fmnes.storage.directory import _checksum

#: Neither of them is right everywhere, and none of them anywhere but where `minimize` takes it, too.
VALUES: list[Any] = [
    *(None, True, False, 5, 0, -1, 2.5, 10**30, float("inf"), float("nan")),
    *("x", "", "\0", "infeasible", [], [1], ["a", "b"], [[]], {}, {"a": 1}),
]
MISSING = object()
SETTINGS = (
    *("max_evaluations", "max_seconds", "workers", "vectorized", "timeout", "retries", "on_error"),
    *("restarts", "target", "restart_from", "second_look", "evaluate_start"),
)
#: What is right, and takes a budget, processes or another objective.
VALID: list[tuple[str, Any]] = [
    *(("max_evaluations", None), ("vectorized", True), ("workers", 5), ("workers", -1)),
    *(("timeout", 5), ("timeout", 2.5)),
]


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> float:
        self.calls += 1
        x = np.array(list(x.values())) if isinstance(x, dict) else x
        if x[0] < 0.2:
            raise ValueError("odd")
        return float(x @ x)


def write(run: Path, data: Any) -> None:
    envelope = json.loads((run / "config.json").read_text())
    envelope |= {"data": data, "checksum": _checksum(data)}
    (run / "config.json").write_text(json.dumps(envelope))


def config_of(run: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((run / "config.json").read_text())["data"]
    return data


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with more to do."""
    run = tmp_path_factory.mktemp("begun") / "run"
    minimize(Counted(), [1.0, 2.0], 0.5, rng=1, max_evaluations=20, run_dir=run)
    for name in ("result.json", "result.npz"):
        (run / name).unlink()
    return run


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_refused_as_those_of_a_user_are(name: str, begun: Path, tmp_path: Path) -> None:
    config = config_of(begun)
    assert set(config["settings"]) == set(SETTINGS)
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    refused = 0
    for value in [*VALUES, "uniform"]:
        if (name, value) in VALID:
            continue
        try:
            minimize(Counted(), [1.0, 2.0], 0.5, rng=1, **{"max_evaluations": 1, name: value})
            continue
        except fmnes.ArgumentError as error:
            said = str(error)
        write(run, {**config, "settings": {**config["settings"], name: value}})
        fun = Counted()
        with pytest.raises(fmnes.RunError) as found:
            resume(run, fun, max_evaluations=40)
        # JSON has no such numbers: the file is refused as a whole.
        wanted = "the number" if value in (float("inf"), VALUES[9]) else said
        assert wanted in str(found.value) and not fun.calls
        refused += 1
    assert refused >= 8


@pytest.mark.parametrize("name", [*SETTINGS, "other"])
def test_settings_that_are_missing_or_unknown_are_refused(name: str, begun: Path, tmp_path: Path) -> None:
    config = config_of(begun)
    if name in config["settings"]:
        del config["settings"][name]
    else:
        config["settings"][name] = 1
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    write(run, config)
    fun = Counted()
    with pytest.raises(fmnes.RunError, match=f"unusable configuration .*'{name}'"):
        resume(run, fun, max_evaluations=40)
    assert not fun.calls


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        yield from places(data[key], (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return {} if value is MISSING else value
    data = copy.deepcopy(data)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return data


RUNS: dict[str, Any] = {
    "arrays": ([1.0, 2.0], 0.5),
    "parameters": ({"a": Real(0.1, 3, log=True), "b": Integer(1, 5)}, None),
    "command": ([1.0, 2.0], 0.5),
}
COMMAND = Command(
    ["/bin/echo", "{x0}", "{x1}"],
    names=["x0", "x1"],
    value={"regex": r"^(\S+)"},
    outputs={"again": {"regex": r"^(\S+)"}},
    environment={"A": "1"},
)


@pytest.mark.parametrize("kind", RUNS)
def test_whatever_else_stands_there_ends_in_an_error_of_ours(kind: str, tmp_path: Path) -> None:
    """Or in nothing at all, where it does not matter. The settings have a test of their own."""
    x0, sigma0 = RUNS[kind]
    run, fun = tmp_path / "run", COMMAND if kind == "command" else Counted()
    minimize(fun, x0, sigma0, rng=1, max_evaluations=6, run_dir=run)
    config = config_of(run)
    for path in places(config):
        # As a whole they are tried.
        if path[:1] == ("settings",) and len(path) > 1:
            continue
        for value in (MISSING, None, 5, "x", [1], {"a": 1}):
            write(run, changed(config, path, value))
            if kind == "command":
                attempts: list[Any] = [lambda: resume(run)]
            else:
                attempts = [lambda: resume(run), lambda: resume(run, Counted(), max_evaluations=6)]
            attempts.append(lambda: str(read_run(run)))
            for attempt in attempts:
                try:
                    attempt()
                except fmnes.FmnesError:
                    continue
                except Exception as error:
                    pytest.fail(f"{'.'.join(map(str, path))} = {value!r}: {type(error).__name__}: {error}")
