"""A saved optimizer goes on bit for bit; a damaged, foreign or edited file is refused, whatever is in it."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import pickle
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import (
    CMAES,
    FMNES,
    LOST,
    XNES,
    ArgumentError,
    Optimizer,
    Resampling,
    SnapshotError,
    UsageError,
)
from fmnes.strategies import Strategy
from tests import variants

SHAPE = np.array([[2.0, 0.0, 0.0], [1.5, 0.5, 0.0], [-0.7, 0.2, 1.0]])
METHODS = variants.METHODS | {
    f"{name}, B0": variants.VARIANTS[name].with_shape(SHAPE)
    for name in ("fm-nes", "rank-one always (A)", "dx-nes-ic", "xnes")
}
GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def values(X: np.ndarray) -> np.ndarray:
    return np.where(X[:, 0] < 0.6, np.nan, (X**2 * [1, 30, 900]).sum(axis=1))


def contents(opt: Optimizer) -> tuple[Any, dict[str, bytes]]:
    metadata, arrays = opt.dump()
    return metadata, {name: np.asarray(array).tobytes() for name, array in arrays.items()}


def start(method: Any = "fm-nes", **settings: Any) -> Optimizer:
    return Optimizer([1.0, 2.0, 3.0], 0.5, **{"rng": 1, "population_size": 8, "method": method, **settings})


def reload(opt: Optimizer, path: Path) -> Optimizer:
    opt.save(path)
    return Optimizer.load(path)


def assert_same_future(a: Optimizer, b: Optimizer, tells: int = 12) -> None:
    assert contents(a) == contents(b)
    for _ in range(tells):
        X, Y = a.ask(), b.ask()
        np.testing.assert_array_equal(X, Y)
        assert a.asked == b.asked
        f = values(X)
        a.tell(f)
        b.tell(f)
        assert a.stop == b.stop
    assert contents(a) == contents(b)
    assert a.mean.tobytes() == b.mean.tobytes() and a.covariance.tobytes() == b.covariance.tobytes()
    one, two = a.result(), b.result()
    assert (one.fun, one.nfev, one.nit, one.n_infeasible, one.seed) == (
        two.fun,
        two.nfev,
        two.nit,
        two.n_infeasible,
        two.seed,
    )


# -- going on ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_it_goes_on_from_every_kind_of_moment(method: Any, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    opt = start(method)
    assert_same_future(opt, reload(start(method), path))  # before anything was asked
    opt.ask()
    assert_same_future(opt, reload(opt, path), tells=5)  # asked, nothing told
    X = opt.ask()
    f: list[Any] = list(values(X))
    f[1::2] = [LOST] * len(f[1::2])
    opt.tell(f)
    assert opt._current is not None, "in the middle of a generation"
    assert_same_future(opt, reload(opt, path))
    opt.tell(values(opt.ask()))
    assert_same_future(opt, reload(opt, path))


@pytest.mark.parametrize("method", ["xnes /R", "cma-es 2016 /R"])
def test_it_goes_on_in_the_middle_of_resampling(method: str, tmp_path: Path) -> None:
    opt = start(METHODS[method])
    opt.ask()
    opt.tell([1.0, math.nan, 3.0, math.nan, 5.0, None, 7.0, 8.0])
    opt.ask()
    opt.tell([math.nan, 2.0, LOST])
    assert opt.generation == 0
    loaded = reload(opt, tmp_path / "state.npz")
    loaded.ask(), opt.ask()
    assert loaded.asked == opt.asked == [(0, 0, 5, 1, 0)]
    loaded.tell([math.nan]), opt.tell([math.nan])
    loaded = reload(loaded, tmp_path / "state.npz")
    loaded.ask(), opt.ask()
    assert loaded.asked == opt.asked == [(0, 0, 1, 2, 0), (0, 0, 5, 2, 0)]
    assert_same_future(opt, loaded)


@pytest.mark.parametrize("name", GENERATORS)
def test_every_generator_of_numpy_goes_on(name: str, tmp_path: Path) -> None:
    rng = np.random.Generator(getattr(np.random, name)(7))
    rng.integers(0, 10, dtype=np.uint32)  # leaves half of a 64-bit draw waiting
    opt = start(rng=rng)
    opt.tell(values(opt.ask()))
    opt.ask()
    loaded = reload(opt, tmp_path / "state.npz")
    assert type(loaded._distribution.rng.bit_generator).__name__ == name
    assert loaded.seed is None
    assert_same_future(opt, loaded)


def test_settings_limits_and_counters_come_back(tmp_path: Path) -> None:
    opt = Optimizer(
        [1.0, 2.0, 3.0],
        [0.1, 0.5, 2.5],
        method=FMNES(rank_one="always", reset=False, refresh=3, path_rate="printed", ridge_threshold=1.7),
        population_size=10,
        bounds=[(-5.0, None), (None, 5.0), (0.0, 9.0)],
        rng=12345678901234567890123,
        target=-3.0,
        max_evaluations=77,
        xtol=None,
        ftol=1e-7,
    )
    for _ in range(3):
        opt.tell(values(opt.ask()))
    loaded = reload(opt, tmp_path / "state.npz")
    assert loaded.strategy == opt.strategy and loaded.population_size == 10
    assert (loaded.target, loaded.max_evaluations, loaded.xtol, loaded.ftol) == (-3.0, 77, None, 1e-7)
    assert loaded.seed == opt.seed == 12345678901234567890123
    np.testing.assert_array_equal(loaded.bounds.lower, opt.bounds.lower)
    np.testing.assert_array_equal(loaded.bounds.upper, opt.bounds.upper)
    np.testing.assert_array_equal(loaded.best.x, opt.best.x)
    assert loaded.best[1:] == opt.best[1:]
    assert not loaded.best.x.flags.writeable
    a, b = loaded.view(), opt.view()
    assert (a.generation, a.evaluations, a.feasible_share, a.generation_best, a.phase) == (
        b.generation,
        b.evaluations,
        b.feasible_share,
        b.generation_best,
        b.phase,
    )
    assert_same_future(opt, loaded)


def test_a_run_that_was_saved_in_every_generation_stops_at_the_same_place(tmp_path: Path) -> None:
    plain, saved = start(ftol=1e-4), start(ftol=1e-4)
    while plain.stop_reason is None:
        assert plain.generation < 500
        plain.tell(values(plain.ask()))
        saved.tell(values(saved.ask()))
        if plain.generation % 20 == 0:
            saved = reload(saved, tmp_path / "state.npz")
        assert saved.stop == plain.stop
    assert contents(saved) == contents(plain)


def test_loading_does_not_depend_on_the_file_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    opt = start()
    opt.ask()
    loaded = reload(opt, path)
    path.unlink()
    assert_same_future(opt, loaded)


def test_bounds_far_from_zero(tmp_path: Path) -> None:
    opt = Optimizer([1.5e17] * 3, 1e16, rng=1, bounds=(1e17, 2e17))
    assert_same_future(opt, reload(opt, tmp_path / "state.npz"), tells=0)


def test_numpy_numbers_in_the_settings(tmp_path: Path) -> None:
    for method in (CMAES(parameters="2006"), XNES()):
        opt = start(method, population_size=np.int64(8), target=np.float32(-1), rng=np.int64(3))
        assert_same_future(opt, reload(opt, tmp_path / "state.npz"), tells=3)


@pytest.mark.parametrize(
    "method",
    [
        FMNES(refresh=np.int64(3)),
        CMAES(population_size=np.int64(8)),
        Resampling(XNES(), max_redraws=np.int64(50)),
        FMNES(ridge_threshold=np.float32(1.5)),
    ],
    ids=["refresh", "population_size", "max_redraws", "ridge_threshold"],
)
def test_numpy_numbers_in_the_methods_settings(method: Any, tmp_path: Path) -> None:
    opt = start(method)
    assert_same_future(opt, reload(opt, tmp_path / "state.npz"), tells=3)


def test_an_infinite_ridge_threshold_is_refused() -> None:
    with pytest.raises(ArgumentError, match="ridge_threshold"):
        FMNES(ridge_threshold=math.inf)


def test_a_run_that_went_on_after_its_steps_underflowed(tmp_path: Path) -> None:
    opt = Optimizer([1e-115], 1e-120, rng=1, method="dx-nes-ic")
    for _ in range(4000):
        opt.tell(np.abs(opt.ask()).sum(axis=1))
        if opt.sigma == 0:
            break
    reload(opt, tmp_path / "state.npz")


# -- writing ----------------------------------------------------------------------------------------------


def test_saving_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    path.write_bytes(b"old")
    opt = start()
    opt.save(path)
    opt.save(str(path))
    assert os.listdir(tmp_path) == ["state.npz"]
    assert contents(Optimizer.load(str(path))) == contents(opt)
    before = contents(opt)
    opt.save(path)
    assert contents(opt) == before, "saving changes nothing"


def in_subprocess(code: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(fmnes.__file__).parent.parent)}
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@pytest.mark.skipif(os.name != "posix", reason="needs a limit on file sizes")
def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    opt = start()
    opt.save(path)
    kept = path.read_bytes()
    done = in_subprocess(
        """
        import resource, signal, sys
        import numpy as np, fmnes
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        opt = fmnes.Optimizer(np.ones(50), 0.5, rng=1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            opt.save(sys.argv[1])
        except OSError as error:
            print("refused")
        """,
        path,
    )
    assert done.stdout == "refused\n", done.stderr
    assert path.read_bytes() == kept
    assert os.listdir(tmp_path) == ["state.npz"], "the half-written file is gone"
    assert contents(Optimizer.load(path)) == contents(opt)


def test_a_directory_that_is_not_there_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    opt = start()
    before = contents(opt)
    with pytest.raises(OSError):
        opt.save(tmp_path / "missing" / "state.npz")
    assert contents(opt) == before and os.listdir(tmp_path) == []


# -- damaged files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    opt = start("fm-nes")
    opt.tell(values(opt.ask()))
    f: list[Any] = list(values(opt.ask()))
    f[3] = LOST
    opt.tell(f)
    path = tmp_path_factory.mktemp("saved") / "state.npz"
    opt.save(path)
    return path.read_bytes()


def refused(raw: bytes, path: Path) -> bool:
    """True if it is refused as it should be; False if it loads to the very same optimizer."""
    path.write_bytes(raw)
    try:
        loaded = Optimizer.load(path)
    except SnapshotError as error:
        assert str(path) in str(error)
        return True
    loaded.tell(values(loaded.ask()))
    return False


def test_a_file_that_was_cut_short_is_refused(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    for length in {0, 1, 2, 3, 4, 21, 22, len(saved) - 1, *range(5, len(saved), len(saved) // 70)}:
        assert refused(saved[:length], path), f"cut to {length} bytes"


def test_flipped_bits_never_load_as_another_optimizer(saved: bytes, tmp_path: Path) -> None:
    """Where a flip is not noticed it must have changed nothing, such as a time stamp in the zip directory."""
    path = tmp_path / "state.npz"
    path.write_bytes(saved)
    wanted = contents(Optimizer.load(path))
    rng = np.random.default_rng(1)
    noticed = 0
    for position in rng.integers(0, len(saved), 150):
        raw = bytearray(saved)
        raw[position] ^= 1 << int(rng.integers(8))
        if refused(bytes(raw), path):
            noticed += 1
        else:
            assert contents(Optimizer.load(path)) == wanted, f"byte {position}"
    assert noticed > 100


def test_random_damage_is_refused_or_harmless(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    path.write_bytes(saved)
    wanted = contents(Optimizer.load(path))
    rng = np.random.default_rng(2)
    for _ in range(80):
        raw = bytearray(saved)
        a, b = sorted(int(i) for i in rng.integers(0, len(saved), 2))
        kind = rng.integers(5)
        if kind == 0:
            raw[a : a + 20] = rng.bytes(20)
        elif kind == 1:
            del raw[a:b]
        elif kind == 2:
            raw[a:a] = rng.bytes(7)
        elif kind == 3:
            raw[a:b] = bytes(b - a)
        else:
            raw = bytearray(rng.bytes(len(saved)))
        if not refused(bytes(raw), path):
            assert contents(Optimizer.load(path)) == wanted


@pytest.mark.parametrize("raw", [b"", b"PK\x05\x06" + bytes(18), b"hello", b"\x93NUMPY\x01\x00", bytes(1000)])
def test_a_file_of_another_kind_is_refused(raw: bytes, tmp_path: Path) -> None:
    assert refused(raw, tmp_path / "state.npz")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="no such file"):
        Optimizer.load(tmp_path / "missing.npz")
    with pytest.raises(SnapshotError):
        Optimizer.load(tmp_path)


def test_foreign_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    np.savez(path, a=np.arange(3))
    with pytest.raises(SnapshotError, match="fmnes-snapshot"):
        Optimizer.load(path)
    np.savez_compressed(path, a=np.zeros(10**6))
    with pytest.raises(SnapshotError, match="compressed"):
        Optimizer.load(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(SnapshotError):
        Optimizer.load(path)


# -- edited files -----------------------------------------------------------------------------------------


def unpack(raw: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return stream.getvalue()


def npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def test_an_archive_packed_again_still_loads(saved: bytes, tmp_path: Path) -> None:
    """So that the refusals below are due to what was edited."""
    assert not refused(pack(unpack(saved)), tmp_path / "state.npz")


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


def test_pickles_are_refused_and_not_run(saved: bytes, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hidden = npy(np.array([Bomb(mark)], dtype=object), allow_pickle=True)
    members = unpack(saved)
    for name in ("state.mean.npy", "recent_bests.npy", "best.x.npy"):
        assert refused(pack({**members, name: hidden}), tmp_path / "state.npz")
    assert refused(pack({**members, "state.mean.npy": pickle.dumps(Bomb(mark))}), tmp_path / "state.npz")
    assert not mark.exists()


def test_compressed_members_are_refused(saved: bytes, tmp_path: Path) -> None:
    assert refused(pack(unpack(saved), zipfile.ZIP_DEFLATED), tmp_path / "state.npz")


def test_a_newer_version_is_refused_with_a_hint(saved: bytes, tmp_path: Path) -> None:
    members = unpack(saved)
    metadata = json.loads(members["metadata.json"])
    path = tmp_path / "state.npz"
    for version in (metadata["version"] + 1, 0, -1, "1", None, 1.0, True):
        path.write_bytes(
            pack({**members, "metadata.json": json.dumps({**metadata, "version": version}).encode()})
        )
        with pytest.raises(SnapshotError, match="version"):
            Optimizer.load(path)
    path.write_bytes(pack({**members, "metadata.json": json.dumps({**metadata, "version": 99}).encode()}))
    with pytest.raises(SnapshotError, match=r"newer.*upgrade"):
        Optimizer.load(path)


METADATA_EDITS: dict[str, dict[str, Any]] = {
    "another format": {"format": "other"},
    "another kind": {"kind": "run"},
    "unknown method": {"method": "gradient"},
    "method list": {"method": ["fm-nes"]},
    "method null": {"method": None},
    "another method": {"method": "cma-es"},
    "settings list": {"settings": []},
    "settings null": {"settings": None},
    "unknown setting": {"settings": {"speed": 3}},
    "bad setting": {"settings": {"rank_one": "sometimes"}},
    "setting of a wrong type": {"settings": {"ridge_threshold": "high"}},
    "generation negative": {"generation": -1},
    "generation float": {"generation": 2.0},
    "generation text": {"generation": "2"},
    "generation bool": {"generation": True},
    "generation null": {"generation": None},
    "evaluations negative": {"evaluations": -4},
    "n_infeasible negative": {"n_infeasible": -4},
    "n_infeasible list": {"n_infeasible": [1]},
    "best_evaluation negative": {"best_evaluation": -1},
    "numerical_faults text": {"numerical_faults": "none"},
    "evaluated negative": {"evaluated": -1},
    "evaluated missing": {"evaluated": None},
    "recent short": {"recent": [0, 0]},
    "recent long": {"recent": [0, 0, 0, 0]},
    "recent negative": {"recent": [0, -1, 0]},
    "recent text": {"recent": "000"},
    "population odd": {"population_size": 7},
    "population other": {"population_size": 12},
    "population text": {"population_size": "8"},
    "population huge": {"population_size": 10**30},
    "redraws for pairs": {"max_redraws": 10},
    "redraws text": {"max_redraws": "10"},
    "target text": {"target": "0"},
    "target list": {"target": [0]},
    "budget negative": {"max_evaluations": -1},
    "xtol negative": {"xtol": -1.0},
    "ftol text": {"ftol": "no"},
    "seed text": {"seed": "abc"},
    "seed list": {"seed": [1]},
    "rng null": {"rng": None},
    "rng unknown": {"rng": {"bit_generator": "Evil", "state": {}}},
    "rng a name of numpy": {"rng": {"bit_generator": "default_rng", "state": {}}},
    "rng empty": {"rng": {"bit_generator": "PCG64"}},
    "rng wrong types": {"rng": {"bit_generator": "PCG64", "state": {"state": "x", "inc": 1}}},
    "rng negative": {
        "rng": {"bit_generator": "PCG64", "state": {"state": -1, "inc": 1}, "has_uint32": 0, "uinteger": 0}
    },
    "rng too large": {
        "rng": {
            "bit_generator": "PCG64",
            "state": {"state": 2**200, "inc": 1},
            "has_uint32": 0,
            "uinteger": 0,
        }
    },
}


@pytest.mark.parametrize("change", METADATA_EDITS.values(), ids=METADATA_EDITS)
def test_edited_metadata_is_refused(saved: bytes, change: dict[str, Any], tmp_path: Path) -> None:
    members = unpack(saved)
    metadata = {**json.loads(members["metadata.json"]), **change}
    assert refused(pack({**members, "metadata.json": json.dumps(metadata).encode()}), tmp_path / "state.npz")


@pytest.mark.parametrize("missing", ["settings", "rng", "generation", "recent", "seed", "population_size"])
def test_missing_metadata_is_refused(saved: bytes, missing: str, tmp_path: Path) -> None:
    members = unpack(saved)
    metadata = json.loads(members["metadata.json"])
    del metadata[missing]
    assert refused(pack({**members, "metadata.json": json.dumps(metadata).encode()}), tmp_path / "state.npz")


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"format": "fmnes-snapshot"}', b"[" * 100_000, b"1e999"],
)
def test_metadata_that_is_no_metadata_is_refused(saved: bytes, text: bytes, tmp_path: Path) -> None:
    assert refused(pack({**unpack(saved), "metadata.json": text}), tmp_path / "state.npz")


MEAN = np.array([1.0, 2.0, 3.0])
ARRAY_EDITS: dict[str, dict[str, Any]] = {
    "mean NaN": {"state.mean": np.array([1.0, np.nan, 3.0])},
    "mean inf": {"state.mean": np.array([1.0, np.inf, 3.0])},
    "mean shape": {"state.mean": np.ones(4)},
    "mean matrix": {"state.mean": np.ones((3, 1))},
    "mean complex": {"state.mean": MEAN + 1j},
    "mean text": {"state.mean": np.array(["1", "2", "3"])},
    "sigma zero": {"state.sigma": np.array(0.0)},
    "sigma negative": {"state.sigma": np.array(-1.0)},
    "sigma NaN": {"state.sigma": np.array(np.nan)},
    "sigma vector": {"state.sigma": np.ones(3)},
    "A NaN": {"state.A": np.full((3, 3), np.nan)},
    "A shape": {"state.A": np.eye(4)},
    "gamma inf": {"state.gamma": np.array(np.inf)},
    "best NaN": {"best.x": np.full(3, np.nan)},
    "best shape": {"best.x": np.ones(2)},
    "best value NaN": {"best.fun": np.array(np.nan)},
    "z NaN": {"current.z": np.full((4, 3), np.nan)},
    "z shape": {"current.z": np.ones((5, 3))},
    "x shape": {"current.x": np.ones((8, 2))},
    "f shape": {"current.f": np.ones(7)},
    "f integers": {"current.f": np.ones(8, dtype=np.int64)},
    "open numbers": {"current.open": np.ones(8)},
    "open shape": {"current.open": np.ones(9, dtype=bool)},
    "redraws floats": {"current.redraws": np.zeros(8)},
    "share text": {"feasible_share": np.array("half")},
    "share vector": {"feasible_share": np.ones(2)},
    "swapped bounds": {"lower": np.ones(3), "upper": -np.ones(3)},
    "bounds shape": {"lower": np.ones(2), "upper": np.full(2, 5.0)},
}


def edited(saved: bytes, arrays: dict[str, Any]) -> bytes:
    members = unpack(saved)
    metadata = json.loads(members["metadata.json"])
    if "arrays" in metadata:
        metadata["arrays"] = list({**dict.fromkeys(metadata["arrays"]), **arrays})
        members["metadata.json"] = json.dumps(metadata).encode()
    return pack({**members, **{f"{name}.npy": npy(array) for name, array in arrays.items()}})


@pytest.mark.parametrize("arrays", ARRAY_EDITS.values(), ids=ARRAY_EDITS)
def test_edited_arrays_are_refused(saved: bytes, arrays: dict[str, Any], tmp_path: Path) -> None:
    assert refused(edited(saved, arrays), tmp_path / "state.npz")


@pytest.mark.parametrize(
    "arrays",
    [{"state.unconstrained": np.array(1.0)}, {"state.generation": np.array(1.5)}],
    ids=["unconstrained", "generation"],
)
def test_state_arrays_of_another_type_are_refused(saved: bytes, arrays: Any, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    path.write_bytes(edited(saved, arrays))
    with pytest.raises(SnapshotError):
        Optimizer.load(path)


@pytest.mark.parametrize("bests", [np.ones((2, 2)), np.ones(3, dtype=bool), np.array([np.nan, 1.0])])
def test_recent_values_of_another_shape_are_refused(saved: bytes, bests: Any, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    path.write_bytes(edited(saved, {"recent_bests": bests}))
    with pytest.raises(SnapshotError):
        Optimizer.load(path)


@pytest.mark.parametrize("name", ["state.mean", "state.sigma", "state.p_c", "recent_bests", "current.f"])
def test_a_missing_array_is_refused(saved: bytes, name: str, tmp_path: Path) -> None:
    members = unpack(saved)
    del members[f"{name}.npy"]
    metadata = json.loads(members["metadata.json"])
    if "arrays" in metadata:
        metadata["arrays"] = [array for array in metadata["arrays"] if array != name]
        members["metadata.json"] = json.dumps(metadata).encode()
    assert refused(pack(members), tmp_path / "state.npz")


def header(shape: str, descr: str = "'<f8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "raw",
    [
        header("(1000000000000, 1000000000000)"),
        header("(-1,)"),
        header("(3,)"),
        header("(3,)") + bytes(25),
        header("(3,)", "'O'") + bytes(24),
        header("(3,)", "[('a', '<f8')]") + bytes(24),
        header("(3,)", "'|V8'") + bytes(24),
        header("(3.5,)") + bytes(24),
        b"\x93NUMPY\x02\x00" + bytes(100),
        b"",
    ],
)
def test_arrays_that_lie_about_themselves_are_refused(saved: bytes, raw: bytes, tmp_path: Path) -> None:
    assert refused(pack({**unpack(saved), "state.mean.npy": raw}), tmp_path / "state.npz")


POSITIONS = {
    "MT19937": lambda rng: rng["state"].update(pos=10**9),
    "MT19937 below": lambda rng: rng["state"].update(pos=-(10**9)),
    "Philox": lambda rng: rng.update(buffer_pos=-(10**8)),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_a_random_state_that_points_outside_its_buffer_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    opt = start(rng=np.random.Generator(getattr(np.random, name.split()[0])(1)))
    opt.save(path)
    members = unpack(path.read_bytes())
    metadata = json.loads(members["metadata.json"])
    POSITIONS[name](metadata["rng"])
    path.write_bytes(pack({**members, "metadata.json": json.dumps(metadata).encode()}))
    done = in_subprocess(
        """
        import sys, fmnes
        try:
            fmnes.Optimizer.load(sys.argv[1])
        except fmnes.SnapshotError:
            print("refused")
        """,
        path,
    )
    assert done.stdout == "refused\n"


# -- what cannot be saved ----------------------------------------------------------------------------------


class OwnStrategy(CMAES):
    """By its name it could be taken for CMA-ES, and its updates would be lost."""

    def update(self, state: Any, z: Any, order: Any, *more: Any) -> Any:
        return super().update(state, z, order[::-1], *more)


@dataclasses.dataclass(frozen=True)
class Registered(CMAES):
    """One that maximises, so that a run continued by another strategy is another run."""

    name = "registered"

    def update(self, state: Any, z: Any, order: Any, *more: Any) -> Any:
        return super().update(state, z, order[::-1], *more)


def test_a_run_with_a_registered_strategy_is_resumed(tmp_path: Path) -> None:
    def slope(x: np.ndarray) -> float:
        return float(np.sum(x * x))

    methods = fmnes.strategies.METHODS
    settings: dict[str, Any] = {"method": "registered", "rng": 1, "surrogate": False}
    with pytest.raises(fmnes.ArgumentError, match="method: found 'registered'"):
        fmnes.minimize(slope, [1.0, 2.0], 0.5, max_evaluations=90, **settings)
    try:
        fmnes.strategies.register(Registered)
        whole = fmnes.minimize(slope, [1.0, 2.0], 0.5, max_evaluations=90, **settings)
        fmnes.minimize(slope, [1.0, 2.0], 0.5, max_evaluations=40, run_dir=tmp_path / "run", **settings)
        del methods["registered"]
        with pytest.raises(fmnes.FmnesError, match="registered"):
            fmnes.resume(tmp_path / "run", slope, max_evaluations=90)
        fmnes.strategies.register(Registered)
        resumed = fmnes.resume(tmp_path / "run", slope, max_evaluations=90)
    finally:
        methods.pop("registered", None)
    assert (resumed.nfev, resumed.fun) == (90, whole.fun)
    np.testing.assert_array_equal(resumed.x_mean, whole.x_mean)
    assert np.linalg.norm(whole.x_mean) > np.linalg.norm([1.0, 2.0])


class ForeignStrategy(Strategy):
    """Not derived from a strategy of the library."""

    name = "mine"
    init, sample, update, shape, covariance = (
        lambda self, *arguments, _name=name: getattr(CMAES(), _name)(*arguments)
        for name in ("init", "sample", "update", "shape", "covariance")
    )


@pytest.mark.parametrize("own", [OwnStrategy(), Resampling(OwnStrategy()), ForeignStrategy()])
def test_a_strategy_of_the_users_own_works_but_is_not_saved(own: Any, tmp_path: Path) -> None:
    """A file could not bring it back, so none is written, and the optimizer stays usable."""
    assert not fmnes.strategies.is_known(own)
    opt = start(own)
    opt.tell(values(opt.ask()))
    with pytest.raises(UsageError, match=r"method: found .*not registered.*fmnes.strategies.register"):
        opt.save(tmp_path / "state.npz")
    with pytest.raises(UsageError, match="method: found"):
        opt.dump()
    assert os.listdir(tmp_path) == []
    opt.tell(values(opt.ask()))
    assert all(fmnes.strategies.is_known(method) for method in METHODS.values())
