"""Whatever its settings are, a run writes plain data only, which can be read back at every generation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import minimize, resume
from fmnes.run import state
from fmnes.storage import directory
from fmnes.storage.directory import RunDirectory
from fmnes.storage.snapshot import read_snapshot
from tests.torture import differences, portrait, watching

_PLAIN = (str, int, float, bool, type(None))


def not_plain(data: Any, place: str) -> Iterator[str]:
    """Where there is anything that JSON does not have; NumPy's float64 is a float to `json`, and no more."""
    if type(data) is dict:
        for key, value in data.items():
            if type(key) is not str:
                yield f"{place}: the key {key!r}"
            yield from not_plain(value, f"{place}.{key}")
    elif type(data) in (list, tuple):
        for i, value in enumerate(data):
            yield from not_plain(value, f"{place}[{i}]")
    elif type(data) not in _PLAIN:
        yield f"{place}: {type(data)} {data!r}"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A snapshot at every generation; what was written that is not plain."""
    found: list[str] = []
    write_snapshot, as_read = directory.write_snapshot, directory._plain

    def watched_snapshot(path: Any, metadata: Any, arrays: Any, **options: Any) -> None:
        found.extend(not_plain(metadata, path.name))
        write_snapshot(path, metadata, arrays, **options)

    def watched_json(name: str, data: Any) -> Any:
        found.extend(not_plain(data, name))
        return as_read(name, data)

    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.0)
    monkeypatch.setattr(directory, "write_snapshot", watched_snapshot)
    monkeypatch.setattr(directory, "_plain", watched_json)
    return found


def lightest(x: Any) -> float:
    """Best at an edge of what can be evaluated, so that a second look is due."""
    a, b = x.values() if isinstance(x, dict) else x
    if a < 0 or a * b < 1:
        raise fmnes.Infeasible("it broke")
    return np.float32(2 * a + b) if a > 50 else 2 * a + b  # type: ignore[return-value]


def many(x: Any) -> Any:
    return np.where((x[:, 0] < 0) | (x[:, 0] * x[:, 1] < 1), np.nan, 2 * x[:, 0] + x[:, 1])


METHODS: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in ("afm-nes", "fm-nes", "dx-nes-ic", "xnes", "cma-es", "cr-fm-nes")},
    "resampling": {"method": fmnes.Resampling(fmnes.CMAES(population_size=np.int64(8)), np.int64(200))},  # type: ignore[arg-type]
    "settings": {"method": fmnes.FMNES(refresh=np.int64(3), reset=False)},  # type: ignore[arg-type]
}
RESTARTS: dict[str, dict[str, Any]] = {
    "none": {},
    "two": {"restarts": np.int64(2), "restart_from": "best"},
    "bipop": {"restarts": "bipop", "restart_from": "uniform", "bounds": (np.int64(-5), 5.0)},
}
#: So that searches end early: a restart or a second look follows.
EARLY: dict[str, Any] = {"xtol": 0.3, "ftol": 1e-2, "rng": 2, "max_evaluations": 1000}
OTHERS: dict[str, dict[str, Any]] = {
    "second looks": {**EARLY, "method": "fm-nes", "evaluate_start": False},
    "bounds for all": {"bounds": (np.float32(-5), np.int64(5))},
    "bounds in pairs": {"bounds": [(-5, None), (None, np.float64(5))], "bounds_as": "failure"},
    "bounds as vectors": {"bounds": fmnes.Bounds(np.array([-5, -5]), np.array([np.inf, 5]))},
    "whole numbers": {"integers": np.True_, "bounds": (-5, 5), "x0": [0, 1]},
    "quarters": {"integers": np.array([0.25, 0.0])},
    "one of two": {"integers": [np.True_, False], "method": "dx-nes-ic"},
    "flags of NumPy": {"second_look": np.True_, "evaluate_start": np.False_, "vectorized": np.False_},
    "numbers for flags": {"second_look": 0, "evaluate_start": 1},
    "limits of NumPy": {
        "max_evaluations": np.float64(500),
        "max_seconds": np.float32(1000),
        "timeout": None,
        "retries": np.int8(1),
        "workers": np.int64(1),
        "xtol": np.float32(1e-6),
        "ftol": np.float32(1e-6),
        "rng": np.uint64(2**63),
    },
    "a target": {"target": np.float32(2.9)},
    "a whole target": {"target": np.int64(3)},
    "known": {"known": [([2, 2], np.float32(7)), (np.array([3, 3]), None), ([0, 0], np.float64(np.nan))]},
    "a start that succeeds": {"max_evaluations": 200, "x0": np.array([2, 2]), "sigma0": np.array([1, 2])},
    "a start and integers": {"x0": [2, 2], "sigma0": np.float32(1.0), "integers": True},
    "a covariance": {"covariance": np.array([[2, 1], [1, 2]]), "sigma0": np.int64(1)},
    "overlap": {"overlap": np.float32(0.5)},
    "overlap with restarts": {"overlap": 1, "restarts": 1, "restart_from": "best"},
    "a population": {"population_size": np.int16(10)},
    "the workers' population": {"population_size": "workers"},
    "a generator": {"rng": "MT19937"},
    "parameters": {
        "x0": {
            "a": fmnes.Real(np.float32(0.5), np.int64(5), log=np.True_),  # type: ignore[arg-type]
            "b": fmnes.Integer(np.int64(1), 5, start=np.int32(2)),  # type: ignore[arg-type]
        },
        "sigma0": None,
    },
    "open parameters": {
        "x0": {
            "a": fmnes.Real(start=np.int64(1), sigma=np.float32(0.5)),
            "b": fmnes.Real(0, start=1.0, sigma=2.0),
        },
        "sigma0": None,
    },
    "vectorized": {"vectorized": True, "rng": 4},
}
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"{m}, restarts {r}": {**EARLY, **METHODS[m], **RESTARTS[r]} for m in METHODS for r in RESTARTS},
    **OTHERS,
}


def started(settings: dict[str, Any], run: Path | None, **more: Any) -> fmnes.Result:
    chosen = {"x0": [0.5, 0.5], "sigma0": 0.5, "rng": 3, "max_evaluations": 400, **settings}
    if chosen["rng"] == "MT19937":
        chosen["rng"] = np.random.Generator(np.random.MT19937(1))
    return minimize(many if chosen.get("vectorized") else lightest, run_dir=run, **chosen, **more)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_can_be_saved_and_taken_up_again(name: str, tmp_path: Path, written: list[str]) -> None:
    settings, run = SETTINGS[name], tmp_path / "run"
    fun = many if settings.get("vectorized") else lightest
    with watching() as wanted:
        whole = started(settings, None)
    seen = 0

    def now_and_then(view: Any) -> bool:
        """Stops after 1, 4, 9, 16, ... generations."""
        nonlocal seen
        seen += 1
        return bool(np.sqrt(seen).is_integer())

    with watching() as ends:
        found = started(settings, run, callback=now_and_then)
        while found.stop_reason is fmnes.StopReason.CALLBACK:
            found = resume(run, fun, callback=now_and_then)
    assert differences(portrait(found, *ends[-1:]), portrait(whole, *wanted)) == []
    assert written == []
    with RunDirectory.open(run, read_only=True) as opened:
        assert opened.result is not None and opened.result["nfev"] == whole.nfev


def test_a_warm_start_is_plain_too(tmp_path: Path, written: list[str]) -> None:
    first = started({}, None)
    started({}, tmp_path / "a")
    for number, earlier in enumerate((first, tmp_path / "a")):
        run = tmp_path / f"b{number}"
        minimize(lightest, warm_start=earlier, rng=1, max_evaluations=100, run_dir=run)
        assert resume(run, lightest, max_evaluations=np.int64(200)).nfev == 200  # type: ignore[arg-type]
    assert written == []


def test_the_table_holds_small_searches_and_second_looks_that_gain_something(
    tmp_path: Path, written: list[str]
) -> None:
    """Or it would not see what it is there for. A search: its kind, λ, evaluations, and whether it gained."""
    searches: list[Any] = []
    for name in ("cma-es, restarts bipop", "fm-nes, restarts none"):
        started(SETTINGS[name], tmp_path / name)
        metadata, _ = read_snapshot(tmp_path / name / "snapshot.npz")
        searches += [*metadata["run"]["searches"], [metadata["run"]["plan"][0], 0, 0, None]]
    assert "small" in [kind for kind, *_ in searches]
    assert ("look", True) in [(kind, gained) for kind, _, _, gained, *_ in searches]
