"""The table of evaluations: its columns, in memory and as files, and `fmnes export`."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import Evaluations, Real
from fmnes.evaluations import write, write_csv, write_json
from fmnes.outcome import Outcome, infeasible
from fmnes.space import Space
from fmnes.storage.directory import RunDirectory
from fmnes.storage.log_reader import Batch, Tally
from tests.rows import through
from tests.test_reading import SETTINGS

SPACE = Space({"width": Real(0.1, 10, log=True), "a,b": Real(0, 1)})
NASTY = 'first "line"\nsecond\r\nthird\r, 4\x00 =1+1 σ'


def batch(*outputs: dict[str, Any] | None, begin: int = 0, reason: str = "") -> Batch:
    n = len(outputs)
    failed = [reason] * n
    return Batch(
        keys=np.array([(0, begin + i, 0, 0, 0) for i in range(n)], dtype=np.int64).reshape(n, 5),
        statuses=["infeasible" if reason else "value"] * n,
        values=np.full(n, math.inf) if reason else np.arange(n) / 3,
        reasons=failed,
        faults=[""] * n,
        details=failed,
        started=np.full(n, 1e9),
        seconds=np.full(n, 0.1),
        x=np.tile([math.log(2.0), 1 / 3], (n, 1)),
        outputs=list(outputs),
    )


# -- columns ------------------------------------------------------------------------------------------------


@through(
    ("values", "dtype", "column"),
    [
        ([1, 2, 3], np.int64, [1, 2, 3]),
        ([1, 2.5, 3], np.float64, [1.0, 2.5, 3.0]),
        ([1, ..., 3], np.float64, [1.0, math.nan, 3.0]),
        ([1, None, 3], np.float64, [1.0, math.nan, 3.0]),
        ([None, None, ...], np.float64, [math.nan] * 3),
        ([True, False, True], np.bool_, [True, False, True]),
        ([True, ..., True], np.object_, [True, None, True]),
        ([True, 2, 3], np.object_, [True, 2, 3]),
        (["a", "b", "a"], np.object_, ["a", "b", "a"]),
        (["a", ..., None], np.object_, ["a", None, None]),
        (["a", 1, 2.5], np.object_, ["a", 1, 2.5]),
    ],
)
def test_a_column_of_outputs_has_the_type_of_its_values(values: Any, dtype: Any, column: Any) -> None:
    outputs = [{"other": 0} if value is ... else {"mass": value} for value in values]
    for batches in ([batch(*outputs)], [batch(outputs[0]), batch(*outputs[1:])]):
        found = Evaluations.of(batches, SPACE).outputs["mass"]
        assert found.dtype == dtype and str(found.tolist()) == str(column)


def test_rows_and_columns_agree() -> None:
    table = Evaluations.of([batch({"mass": 1}), batch(None, begin=1, reason="no")], SPACE)
    assert len(table) == 2
    assert table.columns == (
        "restart", "generation", "slot", "redraw", "attempt", "status", "value", "width", "a,b", "mass",
        "reason", "fault", "detail", "seconds", "started",
    )  # fmt: skip
    first, second = table
    assert (first["status"], first["value"], first["mass"], first["width"]) == ("value", 0.0, 1.0, 2.0)
    assert (second["status"], second["reason"]) == ("infeasible", "no") and math.isnan(second["value"])
    assert {type(value) for value in first.values()} <= {int, float, str}
    for name in table.columns:
        assert str(table[name].tolist()) == str([first[name], second[name]])
    assert repr(table).startswith("Evaluations(2: 1 with a value, 1 failed; columns restart, ")


def test_more_rows_than_are_read_at_a_time() -> None:
    table = Evaluations.of([batch(*({"mass": i} for i in range(2500)))], SPACE)
    assert [row["mass"] for row in table] == list(range(2500))


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(fmnes.ArgumentError, match=r"'widht', wanted one of restart, .*did you mean 'width'"):
        Evaluations.of([], SPACE)["widht"]


def test_an_empty_table_has_its_columns() -> None:
    table = Evaluations.of([], SPACE)
    assert (len(table), list(table), repr(table)[:14]) == (0, [], "Evaluations(0;")
    assert {"width", "a,b"} < set(table.columns) and table.to_pandas().shape == (0, 14)


# -- keep_evaluations ---------------------------------------------------------------------------------------


def sphere(x: Any) -> Any:
    return np.where(x[..., 0] < 0, np.nan, np.sum(x * x, axis=-1))


@pytest.mark.parametrize("method", ["afm-nes", fmnes.Resampling(fmnes.XNES())])
@pytest.mark.parametrize("kept", [False, True])
def test_vectorized_evaluations_are_those_of_one_by_one(tmp_path: Path, kept: bool, method: Any) -> None:
    settings = {"rng": 1, "max_evaluations": 100, "keep_evaluations": True, "method": method}
    settings["surrogate"] = False
    one = fmnes.minimize(sphere, [1.0, 1.0], 0.5, **settings)
    run = {"run_dir": tmp_path / "run"} if kept else {}
    many = fmnes.minimize(sphere, [1.0, 1.0], 0.5, vectorized=True, **settings, **run)
    plain = fmnes.minimize(
        sphere, [1.0, 1.0], 0.5, vectorized=True, rng=1, max_evaluations=100, method=method
    )
    assert np.array_equal(many.x, plain.x) and many.n_infeasible == plain.n_infeasible
    assert plain.evaluations is None
    assert len(many.evaluations) == many.nfev == 100
    for name in one.evaluations.columns:
        if name not in ("seconds", "started"):
            assert str(many.evaluations[name].tolist()) == str(one.evaluations[name].tolist()), name
    assert np.isfinite(many.evaluations.seconds).all()
    assert np.nanmin(many.evaluations.value) == many.fun
    assert np.sum(many.evaluations.status == "infeasible") == many.n_infeasible


def test_lost_evaluations_are_kept_too() -> None:
    calls = 0

    def unlucky(x: Any) -> float:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise fmnes.Lost("node gone")
        return float(x @ x)

    result = fmnes.minimize(unlucky, [1.0, 1.0], 0.5, rng=1, max_evaluations=20, keep_evaluations=True)
    table = result.evaluations
    assert (len(table), result.nfev, calls) == (21, 20, 21)
    [lost] = np.flatnonzero(table["status"] == "lost")
    assert (table["reason"][lost], table["attempt"][lost : lost + 2].tolist()) == ("node gone", [0, 1])
    assert table["x0"][lost] == table["x0"][lost + 1]


def test_workers_give_the_order_of_the_slots() -> None:
    settings = {"rng": 1, "max_evaluations": 40, "keep_evaluations": True, "surrogate": False}
    one, two = (fmnes.minimize(uneven, [1.0, 1.0], 0.5, **settings, workers=n) for n in (1, 2))
    assert np.array_equal(one.evaluations["x0"], two.evaluations["x0"])


def uneven(x: Any) -> float:
    import time

    time.sleep(0.01 * (x[0] > 1))
    return float(x @ x)


def test_the_names_of_a_command_are_the_names_of_the_columns(tmp_path: Path) -> None:
    command = fmnes.Command(["echo", "{width}"], names=["width"])
    run = {"rng": 1, "max_evaluations": 5, "keep_evaluations": True}
    for more in ({}, {"run_dir": tmp_path / "run"}):
        table = fmnes.minimize(command, [1.0], 0.5, **run, **more).evaluations
        assert table["value"].tolist() == table["width"].tolist()


@pytest.mark.parametrize("found", ["yes", 2, None])
def test_keep_evaluations_is_a_flag(found: Any) -> None:
    with pytest.raises(fmnes.ArgumentError, match="keep_evaluations: found"):
        fmnes.minimize(sphere, [1.0], 0.5, keep_evaluations=found)


# -- files --------------------------------------------------------------------------------------------------


def parts() -> list[Batch]:
    return [
        batch({"mass": 1.5, "word": NASTY, "n": 1, "ok": True, "mixed": "a"}, None),
        batch({"mass": math.inf, "mixed": 2.5}, {"n": 2}, begin=2, reason=NASTY),
    ]


def whole() -> Evaluations:
    return Evaluations.of(parts(), SPACE)


def tables() -> list[Evaluations]:
    """The same in parts, as a run is exported."""
    kinds = Tally.of(one for part in parts() for one in part.outputs).kinds()
    return [Evaluations.of(some, SPACE, kinds) for some in ([], *([part] for part in parts()))]


def test_csv_comes_back(tmp_path: Path) -> None:
    whole().to_csv(tmp_path / "all.csv")
    with open(tmp_path / "all.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["a,b"] for row in rows] == [repr(1 / 3)] * 4
    assert [row["value"] for row in rows] == ["0.0", repr(1 / 3), "", ""]
    assert [row["mass"] for row in rows] == ["1.5", "", "inf", ""]
    assert [row["word"] for row in rows] == [NASTY, "", "", ""]
    assert [row["reason"] for row in rows] == ["", "", NASTY, NASTY]
    assert [row["ok"] for row in rows] == ["True", "", "", ""]
    file = io.BytesIO()
    write_csv(tables(), file)
    assert file.getvalue() == (tmp_path / "all.csv").read_bytes()


def test_json_comes_back(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    whole().to_json(tmp_path / "all.json")
    text = (tmp_path / "all.json").read_text(encoding="utf-8")
    rows = json.loads(text, parse_constant=refuse)
    assert [row["value"] for row in rows] == [0.0, 1 / 3, None, None]
    assert [row["mass"] for row in rows] == [1.5, None, "inf", None]
    assert [row["ok"] for row in rows] == [True, None, None, None]
    assert [row["mixed"] for row in rows] == ["a", None, 2.5, None]
    assert rows[3]["reason"] == NASTY and list(rows[0]) == list(whole().columns)
    assert len(text.splitlines()) == 6
    file = io.BytesIO()
    write_json(tables(), file)
    assert file.getvalue().decode() == text
    Evaluations.of([], SPACE).to_json(tmp_path / "empty.json")
    assert json.loads((tmp_path / "empty.json").read_text()) == []


def test_parquet_comes_back(tmp_path: Path) -> None:
    import pandas

    table = whole()
    table.to_parquet(tmp_path / "all.parquet")
    found = pandas.read_parquet(tmp_path / "all.parquet")
    assert tuple(found.columns) == table.columns
    for name in ("width", "a,b", "value", "mass", "seconds", "generation"):
        assert found[name].to_numpy().tobytes() == table[name].tobytes(), name
    assert (
        found["mixed"].tolist()[0::2] == ["a", "2.5"] and found["reason"].tolist() == table["reason"].tolist()
    )
    write(tables(), "parquet", tmp_path / "parts.parquet")
    pandas.testing.assert_frame_equal(found, pandas.read_parquet(tmp_path / "parts.parquet"))


def test_pandas_has_the_columns() -> None:
    frame = whole().to_pandas()
    assert tuple(frame.columns) == whole().columns and len(frame) == 4
    assert frame["generation"].dtype == np.int64 and frame["mass"].dtype == np.float64
    assert frame.groupby("status")["width"].mean().to_dict() == {"infeasible": 2.0, "value": 2.0}


@pytest.mark.parametrize(("missing", "act"), [("pandas", "to_pandas"), ("pyarrow", "to_parquet")])
def test_a_missing_extra_is_said_with_its_install_line(
    missing: str, act: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(fmnes.MissingExtra, match=r'pip install "fmnes\[data\]"'):
        getattr(whole(), act)(*[tmp_path / "file"] * (act != "to_pandas"))
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text("old")

    def broken() -> Any:
        yield whole()
        raise fmnes.RunError("the disk has gone")

    from fmnes.evaluations import write

    with pytest.raises(fmnes.RunError, match="the disk has gone"):
        write(broken(), "csv", path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    whole().to_csv(path)
    assert len(path.read_bytes()) > 200 and list(tmp_path.iterdir()) == [path]
    with pytest.raises(fmnes.RunError, match="could not be written"):
        whole().to_csv(tmp_path / "nowhere" / "all.csv")
    whole().to_csv(os.devnull)
    assert not Path(os.devnull).is_file()


# -- the command line ---------------------------------------------------------------------------------------


def export(*words: Any, code: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    script = f"{code}\nfrom fmnes.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, "export", *map(str, words)],
        capture_output=True,
        timeout=300,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    config = {
        "settings": SETTINGS,
        "objective": {"kind": "function", "name": "f"},
        "parameters": SPACE.as_json(),
        "search": {},
        "versions": {},
    }
    x = np.array([math.log(2.0), 1 / 3])
    with RunDirectory.create(path, config) as directory:
        for i in range(300):
            outcome = Outcome("value", i / 3, outputs={"mass": i}) if i % 7 else infeasible(NASTY)
            directory.log.record((0, i, 0, 0, 0), outcome, x, 1e9, 0.0)
    return path


def test_export_writes_to_the_standard_output(run: Path, tmp_path: Path) -> None:
    table = fmnes.read_run(run).evaluations
    for format in ("csv", "json"):
        getattr(table, f"to_{format}")(tmp_path / "expected")
        done = export(run, "--format", format, LC_ALL="C", PYTHONIOENCODING="ascii")  # UTF-8 all the same
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == (tmp_path / "expected").read_bytes()
    assert export(run).stdout.startswith(b"restart,generation,")


def test_export_writes_a_file_of_the_kind_its_name_says(run: Path, tmp_path: Path) -> None:
    import pandas

    frame = fmnes.read_run(run).evaluations.to_pandas()
    for name, read in (
        ("a.csv", pandas.read_csv),
        ("a.JSON", pandas.read_json),
        ("a.parquet", pandas.read_parquet),
    ):
        done = export(run, "--output", tmp_path / name)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        found = read(tmp_path / name)
        assert list(found.columns) == list(frame.columns)
        np.testing.assert_allclose(found["value"], frame["value"], rtol=1e-14)  # pandas rounds what it reads
    assert export(run, "--output", tmp_path / "odd.csv", "--format", "json").returncode == 0
    assert len(json.loads((tmp_path / "odd.csv").read_text())) == 300


def test_export_in_parts_is_the_whole(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fmnes.read_run(run)
    parts = list(found.tables())
    assert (len(parts), len(parts[0]), len(parts[1])) == (2, 0, 300)
    monkeypatch.setattr("fmnes.storage.log_reader.BATCH", 100)
    small = io.BytesIO()
    write_csv(found.tables(), small)
    found.evaluations.to_csv(tmp_path / "all.csv")
    assert small.getvalue() == (tmp_path / "all.csv").read_bytes()
    assert [len(part) for part in found.tables()] == [0, 100, 100, 100]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--format", "parquet"], "", "output: found none, wanted a file for Parquet"),
        (["--format", "xlsx"], "", "xlsx"),
        (["--output", "/nowhere/a.csv"], "", "/nowhere/a.csv: could not be written"),
        (
            ["--output", "a.parquet"],
            "import sys; sys.modules['pyarrow'] = None",
            'pip install "fmnes[data]"',
        ),
    ],
)
def test_export_says_what_is_wrong(run: Path, words: list[str], code: str, said: str) -> None:
    done = export(run, *words, code=code)
    assert done.returncode == 2 and done.stdout == b"" and said in done.stderr.decode()
    assert not Path("a.parquet").exists()


def test_export_of_what_is_no_run(tmp_path: Path) -> None:
    done = export(tmp_path)
    assert done.returncode == 2 and b"wanted a run directory" in done.stderr


def test_a_reader_that_has_had_enough(run: Path) -> None:
    done = subprocess.run(
        f"'{sys.executable}' -m fmnes export '{run}' | head -n 1",
        shell=True,
        capture_output=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.startswith(b"restart,")
