"""The evaluation log: what was acknowledged is there, bit for bit, or the log is refused."""

from __future__ import annotations

import math
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fmnes import RunError
from fmnes._files import file_system_type, is_network, on_network
from fmnes.outcome import EvaluationId, Outcome, infeasible, lost
from fmnes.storage import log as log_module
from fmnes.storage import log_reader
from fmnes.storage.log import EvaluationLog
from fmnes.storage.log_reader import x_hash
from tests.rows import through

X = np.linspace(-1, 1, 20)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.sqlite"


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def fill(log: EvaluationLog) -> None:
    """Three generations of four slots; slot 1 fails, slot 2 is lost once."""
    for generation in range(3):
        for slot in range(4):
            key, x = (0, generation, slot, 0, 0), X + slot
            if slot == 1:
                outcome = infeasible(f"mesh failed {generation % 2}", fault="ValueError", detail="the tail")
            elif slot == 2:
                log.record(key, lost("node gone"), x, 1000.0 + generation, 0.5)
                key, outcome = (0, generation, slot, 0, 1), Outcome("value", 7.0)
            else:
                outcome = Outcome("value", float(10 * slot - generation))
            log.record(key, outcome, x, 1000.0 + generation, 0.5)


# -- what goes in comes out -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [1 / 3, -0.0, 0.0, 5e-324, -2.2e-308, 1.8e308, math.inf, -math.inf, math.nan, -math.nan]
)
def test_values_come_back_bit_for_bit(path, value):
    log = EvaluationLog(path)
    log.record((0, 0, 0, 0, 0), Outcome("value", value), X, 1.0, 0.1)
    log.close()
    log = EvaluationLog(path)
    [(attempt, outcome, found)] = log.find(0, 0)[0, 0, 0, 0, 0]
    log.close()
    assert (attempt, outcome.status, bits(outcome.value)) == (0, "value", bits(value))
    assert found == x_hash(X)


def test_find_gives_the_attempts_of_one_generation_in_order(path):
    log = EvaluationLog(path)
    outcomes = [lost("a"), lost("b"), infeasible("c", fault="F", detail="d")]
    for attempt in (2, 0, 1):
        log.record((1, 5, 3, 2, attempt), outcomes[attempt], X, 1.0, 0.1)
    log.record((1, 5, 0, 0, 0), Outcome("value", 2.0), X, 1.0, 0.1)
    log.record((1, 6, 0, 0, 0), Outcome("value", 3.0), X, 1.0, 0.1)
    log.record((0, 5, 0, 0, 0), Outcome("value", 4.0), X, 1.0, 0.1)
    h = x_hash(X)
    assert log.find(1, 5) == {
        (1, 5, 0, 0, 0): [(0, Outcome("value", 2.0), h)],
        (1, 5, 3, 2, 0): [(attempt, outcomes[attempt], h) for attempt in range(3)],
    }
    assert log.find(2, 0) == {}
    log.close()


def test_odd_texts_and_numpy_integers(path):
    log = EvaluationLog(path)
    outcome = infeasible("σ \x00 \n 'quote' \udcff", detail="\U0001f4a5" * 10)
    log.record(tuple(np.arange(5)), outcome, X.astype(np.float32), np.float64(1), np.float32(0.5))
    [(_, found, _)] = log.find(np.int64(0), np.int64(1))[0, 1, 2, 3, 0]
    assert found.reason == "σ \x00 \n 'quote' \\udcff"  # what has no UTF-8 is kept in words
    assert found.detail == outcome.detail
    log.close()


def test_long_points_are_hashed_and_not_stored(path):
    log = EvaluationLog(path)
    points = [np.full(n, 0.5) for n in (10_000, 10_001)]
    for slot, x in enumerate(points):
        log.record((0, 0, slot, 0, 0), infeasible("no"), x, 1.0, 0.1)
    first, second = log.infeasible()
    assert first.x.tobytes() == points[0].tobytes()
    assert second.x is None
    assert [first.x_hash, second.x_hash] == [x_hash(x) for x in points]
    log.close()


def test_hash_tells_any_two_points_apart():
    assert x_hash(np.array([0.0])) != x_hash(np.array([-0.0]))
    assert x_hash(X) == x_hash(np.asfortranarray(X)) == x_hash(X[::-1][::-1])
    assert -(2**63) <= x_hash(X) < 2**63


def test_many_in_one_transaction_all_or_none(path):
    log = EvaluationLog(path)
    rows = [((0, 0, slot, 0, 0), Outcome("value", float(slot)), X, 1.0, 0.1) for slot in range(5)]
    log.record_many(rows)
    assert len(log.find(0, 0)) == 5
    log.record_many([])
    again = [((0, 1, slot, 0, 0), *row) for slot, (_, *row) in enumerate(rows)]
    with pytest.raises(RunError, match="UNIQUE"):
        log.record_many([*again, rows[0]])
    assert log.find(0, 1) == {}
    with pytest.raises(RunError, match="UNIQUE"):
        log.record(*rows[0])
    log.record_many(again)
    assert len(log.find(0, 1)) == 5
    log.close()


def test_ctrl_c_leaves_no_transaction_open(path):
    log = EvaluationLog(path)
    with pytest.raises(KeyboardInterrupt), log._writing():
        log._db.execute("BEGIN IMMEDIATE")
        raise KeyboardInterrupt
    log.record((0, 0, 0, 0, 0), Outcome("value", 1.0), X, 1.0, 0.1)
    assert not log._db.in_transaction
    log.close()


def test_summary_and_failures(path):
    log = EvaluationLog(path)
    empty = log.summary()
    assert (empty.evaluations, empty.started, empty.best, list(log.infeasible())) == (0, None, None, [])
    fill(log)
    log.close()
    log = EvaluationLog(path, read_only=True)
    summary = log.summary()
    assert summary.evaluations == 15
    assert summary.statuses == {"value": 9, "infeasible": 3, "lost": 3}
    assert summary.reasons == {
        "infeasible": {"mesh failed 0": 2, "mesh failed 1": 1},
        "lost": {"node gone": 3},
    }
    assert (summary.started, summary.ended) == (1000.0, 1002.5)
    assert summary.best.key == EvaluationId(0, 2, 0) == (0, 2, 0, 0, 0)
    assert summary.best.outcome.value == -2.0
    np.testing.assert_array_equal(summary.best.x, X)
    failed = list(log.infeasible())
    assert [(row.outcome.reason, row.outcome.detail) for row in failed] == [
        (f"mesh failed {i}", "the tail") for i in (0, 1, 0)
    ]
    np.testing.assert_array_equal([row.x for row in failed], [X + 1] * 3)
    assert [row.key.generation for row in log.infeasible(before=(0, 2))] == [0, 1]
    log.close()


# -- outputs beside the values ----------------------------------------------------------------------------

MASS = {"mass": 3.1, "n": 2, "word": "σ", "inf": math.inf, "none": None, "ok": True}


def outputs_of(log: EvaluationLog, size: int = 10_000) -> list:
    return [found for batch in log.batches(size) for found in batch.outputs]


def shape(path: Path) -> tuple[int, list[str]]:
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return version, names


def test_a_log_without_outputs_stays_as_it_was(path):
    log = EvaluationLog(path)
    fill(log)
    assert outputs_of(log) == [None] * 15 and log.tally().kinds() == {}
    log.close()
    assert shape(path) == (1, ["evaluations"])


def test_outputs_come_back(path):
    log = EvaluationLog(path)
    fill(log)
    log.record((1, 0, 0, 0, 0), Outcome("value", 1.0, outputs=MASS), X, 1.0, 0.1)
    log.record((1, 0, 1, 0, 0), replace(infeasible("no"), outputs={"mass": math.nan}), X, 1.0, 0.1)
    log.record((1, 0, 2, 0, 0), Outcome("value", 1.0), X, 1.0, 0.1)
    many = [
        ((2, 0, i, 0, 0), Outcome("value", 2.0, outputs={"n": i} if i % 2 else None), X, 1.0, 0.1)
        for i in range(4)
    ]
    log.record_many(many)
    log.close()
    assert shape(path) == (2, ["evaluations", "more"])
    for read_only in (True, False):
        log = EvaluationLog(path, read_only=read_only)
        for size in (1, 3, 15, 16, 10_000):
            found = outputs_of(log, size)
            assert found[:16] == [*[None] * 15, MASS] and math.isnan(found[16]["mass"])
            assert found[17:] == [None, None, {"n": 1}, None, {"n": 3}]
        assert log.tally().kinds() == {
            "mass": "number", "n": "number", "word": "text", "inf": "number", "none": "number", "ok": "mixed",
        }  # fmt: skip
        assert log.summary().best.outcome.value == -2.0
        [(_, outcome, _)] = log.find(1, 0)[1, 0, 0, 0, 0]
        assert outcome == Outcome("value", 1.0)  # a replay does not need them
        log.close()


def test_a_row_and_its_outputs_are_there_together_or_not_at_all(path):
    log = EvaluationLog(path)
    fill(log)
    taken = Outcome("value", 1.0, outputs=MASS)
    with pytest.raises(RunError, match="UNIQUE"):
        log.record((0, 0, 0, 0, 0), taken, X, 1.0, 0.1)
    with pytest.raises(RunError, match="UNIQUE"):
        log.record_many([((5, 0, 0, 0, 0), taken, X, 1.0, 0.1), ((0, 0, 0, 0, 0), taken, X, 1.0, 0.1)])
    assert (log.count(), outputs_of(log)) == (15, [None] * 15)
    log.record((5, 0, 0, 0, 0), taken, X, 1.0, 0.1)
    assert outputs_of(log) == [*[None] * 15, MASS]
    log.close()


def test_a_reader_sees_the_first_outputs_that_come(path):
    log = EvaluationLog(path)
    fill(log)
    reader = EvaluationLog(path, read_only=True)
    batches = reader.batches(10)
    next(batches)
    log.record((5, 0, 0, 0, 0), Outcome("value", -9.0, outputs=MASS), X, 1.0, 0.1)
    assert [found for batch in batches for found in batch.outputs] == [*[None] * 5, MASS]
    assert (reader.summary().best.outcome.value, reader.tally().kinds()["n"]) == (-9.0, "number")
    reader.close()
    log.close()


@pytest.mark.parametrize(
    "change",
    [
        "data = '{}'",
        "data = data || ' '",
        "data = x'00'",
        "data = CAST(x'ff' AS TEXT)",
        "checksum = checksum + 1",
        "checksum = 'none'",
        "slot = slot + 1",
    ],
)
def test_changed_outputs_are_refused(path, change):
    log = EvaluationLog(path)
    log.record((0, 0, 0, 0, 0), Outcome("value", 1.0, outputs=MASS), X, 1.0, 0.1)
    log.close()
    edit(path, f"UPDATE more SET {change}")
    log = EvaluationLog(path, read_only=True)
    for ask in (outputs_of, EvaluationLog.tally):
        if ask is EvaluationLog.tally or not change.startswith("slot"):
            with pytest.raises(RunError, match=r"damaged outputs|cannot be used"):
                ask(log)
    assert log.find(0, 0)
    log.close()


def test_outputs_of_a_later_version_are_read_as_far_as_they_are_known(path):
    """There is room for more beside the value, such as a violation, without a new format."""
    log = EvaluationLog(path)
    key = (0, 0, 0, 0, 0)
    log.record(key, Outcome("value", 1.0, outputs={"mass": 1}), X, 1.0, 0.1)
    data = '{"outputs":{"mass":1},"violation":0.5}'
    log._db.execute("UPDATE more SET data = ?, checksum = ?", (data, log_reader._more_checksum(key, data)))
    assert outputs_of(log) == [{"mass": 1}]
    log.close()


# -- the summary, which reads no row but the best -----------------------------------------------------------


def test_the_best_is_the_first_of_the_lowest(path):
    log = EvaluationLog(path)
    for slot, value in enumerate([math.nan, 3.0, 0.0, -0.0, 0.0, math.inf]):
        log.record((0, 0, slot, 0, 0), Outcome("value", value), X, 1.0, 0.1)
    log.record((0, 0, 9, 0, 0), replace(infeasible("no"), value=-5.0), X, 1.0, 0.1)
    assert log.summary().best.key.slot == 2
    log.close()


def test_only_nan_is_no_best(path):
    log = EvaluationLog(path)
    log.record((0, 0, 0, 0, 0), Outcome("value", math.nan), X, 1.0, 0.1)
    assert log.summary().best is None
    log.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "change", ["f = x'00000000000059c0'", "worker = 'w9'", "slot = 77", "x = zeroblob(160)"]
)
def test_a_damaged_row_is_never_told_as_the_best(path, change, read_only):
    log = EvaluationLog(path)
    fill(log)
    log.close()
    edit(path, f"UPDATE evaluations SET {change} WHERE generation = 2 AND slot = 0")  # the best of all
    log = EvaluationLog(path, read_only=read_only)
    with pytest.raises(RunError, match="damaged"):
        log.summary()
    with pytest.raises(RunError, match="damaged"):
        list(log.batches())
    log.close()


# -- how it is kept ---------------------------------------------------------------------------------------


def pragma(log: EvaluationLog, name: str):
    return log._db.execute(f"PRAGMA {name}").fetchone()[0]


NORMAL, FULL = 1, 2


def test_a_local_disk_is_written_ahead(path):
    log = EvaluationLog(path)
    assert (pragma(log, "journal_mode"), pragma(log, "synchronous")) == ("wal", NORMAL)
    assert not log.safe_mode
    log.close()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_each_row_is_synced_while_evaluations_are_slow(path):
    log = EvaluationLog(path)
    levels = []
    began = 1.0
    for slot, seconds in enumerate([0.05, 0.3, 0.01, 0.01]):  # means 0.05, 0.175, 0.12, 0.0925
        log.record((0, 0, slot, 0, 0), Outcome("value", 1.0), X, began, seconds)
        levels.append(pragma(log, "synchronous"))
        began += seconds
    assert levels == [NORMAL, FULL, FULL, NORMAL]
    log.close()


def test_the_pace_is_that_of_all_workers_together(path):
    """Twenty at a time that take a second each: a row comes every 50 ms."""
    log = EvaluationLog(path)
    for slot in range(40):
        log.record((0, 0, slot, 0, 0), Outcome("value", 1.0), X, 1.0 + slot // 20, 1.0)
    assert pragma(log, "synchronous") == NORMAL
    batch = [((0, 1, slot, 0, 0), Outcome("value", 1.0), X, 9.0, 1.0) for slot in range(20)]
    log.record_many(batch)
    assert pragma(log, "synchronous") == FULL  # nine seconds for sixty of them
    log.close()


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/me/scratch xfs rw 0 0
//nas/my\\040share /mnt/my\\040share cifs rw 0 0
me@host:/ /mnt/ssh fuse.sshfs rw 0 0
/dev/sdc1 /mnt/usb fuseblk rw 0 0
lustre /parallel lustre rw 0 0
/dev/sdd1 /over ext4 rw 0 0
server:/x /over nfs rw 0 0
broken line
"""


@through(
    ("path", "kind", "network"),
    [
        ("/var/run1", "ext4", False),
        ("/tmp/run1", "tmpfs", False),
        ("/home/me/run1", "nfs4", True),
        ("/home", "nfs4", True),
        ("/homework/run1", "ext4", False),
        ("/home/me/scratch/run1", "xfs", False),
        ("/mnt/my share/run1", "cifs", True),
        ("/mnt/ssh/run1", "fuse.sshfs", True),
        ("/mnt/usb/run1", "fuseblk", False),
        ("/parallel/run1", "lustre", True),
        ("/over/run1", "nfs", True),
    ],
)
def test_network_file_systems_are_known_by_their_mounts(path, kind, network):
    assert file_system_type(path, MOUNTS) == kind
    assert is_network(kind) is network


def test_no_mounts_is_no_network(tmp_path):
    assert file_system_type("/home/me", "") == ""
    assert not is_network("")
    assert not on_network(tmp_path / "not" / "there")


def test_safe_mode_on_a_network_file_system(path, monkeypatch):
    monkeypatch.setattr(log_module, "on_network", lambda path: True)
    log = EvaluationLog(path)
    assert log.safe_mode
    assert (pragma(log, "journal_mode"), pragma(log, "synchronous")) == ("delete", FULL)
    fill(log)
    reader = EvaluationLog(path, read_only=True)
    assert reader.safe_mode
    assert reader.summary().evaluations == 15
    log.record((9, 0, 0, 0, 0), Outcome("value", 1.0), X, 1.0, 0.1)
    reader.close()
    assert not path.with_name(path.name + "-wal").exists()
    log.close()


def test_readers_beside_the_writer(path):
    with pytest.raises(RunError, match="unable to open"):
        EvaluationLog(path, read_only=True)
    assert not path.exists()
    log = EvaluationLog(path)
    fill(log)
    reader = EvaluationLog(path, read_only=True)
    assert reader.summary().evaluations == 15
    log.record((9, 0, 0, 0, 0), Outcome("value", 1.0), X, 1.0, 0.1)
    assert reader.summary().evaluations == 16
    with pytest.raises(RunError, match="readonly"):
        reader.record((9, 0, 1, 0, 0), Outcome("value", 1.0), X, 1.0, 0.1)
    log.close()  # with a reader in the way
    reader.close()
    log = EvaluationLog(path)
    assert log.summary().evaluations == 16
    log.close()
    log.close()
    with pytest.raises(RunError, match="closed"):
        log.record((9, 0, 2, 0, 0), Outcome("value", 1.0), X, 1.0, 0.1)


def test_a_reader_after_a_write_that_was_killed_half_way(path, tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "on_network", lambda path: True)
    log = EvaluationLog(path)
    fill(log)
    log._db.execute("PRAGMA cache_size=1")  # so that an unfinished change goes to disk
    log._db.execute("BEGIN IMMEDIATE")
    log._db.execute("UPDATE evaluations SET detail = ?, reason = 'changed'", ("x" * 2000,))
    killed = tmp_path / "killed"
    killed.mkdir()
    for file in (path, path.with_name(path.name + "-journal")):
        shutil.copy(file, killed)
    log._db.execute("ROLLBACK")
    expected = log.summary()
    log.close()
    reader = EvaluationLog(killed / path.name, read_only=True)
    assert reader.summary()[:-1] == expected[:-1]
    with pytest.raises(RunError, match="readonly"):
        reader.record((9, 0, 1, 0, 0), Outcome("value", 1.0), X, 1.0, 0.1)
    reader.close()


# -- files that are not a log, or no longer ---------------------------------------------------------------


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("content", [b"", b"hello", bytes(5000), b"SQLite format 3\0" + bytes(84)])
def test_foreign_files(path, content):
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(RunError, match=r"log\.sqlite: "):
            EvaluationLog(path, read_only=read_only)
    assert path.read_bytes() == content
    shutil.rmtree(path.parent)
    path.mkdir(parents=True)
    with pytest.raises(RunError):
        EvaluationLog(path)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("PRAGMA application_id=1", "another program"),
        ("PRAGMA user_version=2", "other tables or columns"),
        ("PRAGMA user_version=3", "newer fmnes"),
        ("PRAGMA user_version=0", "version 0"),
        ("ALTER TABLE evaluations ADD COLUMN more TEXT", "other tables or columns"),
        ("ALTER TABLE evaluations DROP COLUMN x", "other tables or columns"),
        ("CREATE TABLE more (a)", "other tables or columns"),
        ("CREATE TRIGGER t AFTER INSERT ON evaluations BEGIN DELETE FROM evaluations; END", "other tables"),
        ("DROP TABLE evaluations", "other tables or columns"),
    ],
)
def test_other_databases(path, statement, words):
    log = EvaluationLog(path)
    fill(log)
    log.close()
    edit(path, statement)
    before = path.read_bytes()
    with pytest.raises(RunError, match=words):
        EvaluationLog(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        "slot = 99",
        "generation = 1.5",
        "status = 'lost'",
        "status = 'value'",
        "f = x'0000000000000000'",
        "f = f || x'00'",
        "f = 'text'",
        "reason = 'other'",
        "reason = x'ff'",
        "fault = ''",
        "detail = detail || ' '",
        "worker = 'w2'",
        "started = started + 1",
        "started = 'never'",
        "duration = 0.25",
        "x_hash = x_hash + 1",
        "checksum = checksum + 1",
        "checksum = 'none'",
        "reason = CAST(x'ff' AS TEXT)",
        "x = x'00'",
        "x = 'text'",
        "x = zeroblob(160)",
    ],
)
def test_a_changed_row_is_refused(path, change):
    """Each column, in a row of a failure: what is read of it is refused, never believed."""
    log = EvaluationLog(path)
    fill(log)
    log.close()
    edit(path, f"UPDATE evaluations SET {change} WHERE generation = 1 AND slot = 1")
    with pytest.raises(RunError, match=r"damaged|cannot be used") as caught:
        log = EvaluationLog(path)
        try:
            if not change.startswith("x ="):  # a replay does not need the point
                log.find(0, 1)
            list(log.infeasible())
        finally:
            log.close()
    assert str(path) in str(caught.value)
    log = EvaluationLog(path, read_only=True)
    with pytest.raises(RunError, match=r"damaged|cannot be used"):
        list(log.batches())
    log.close()


def mutate(raw: bytes, rng: random.Random) -> bytes:
    data, n = bytearray(raw), len(raw)
    kinds = ["truncate", "flip", "flip", "flip", "flips", "overwrite", "append", "zero", "copy", "random"]
    kind, at = rng.choice(kinds), rng.randrange(n)
    if kind == "truncate":
        del data[at:]
    elif kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else rng.randrange(2, 40)):
            data[rng.randrange(n)] ^= 1 << rng.randrange(8)
    elif kind == "overwrite":
        piece = rng.randbytes(min(n - at, rng.choice([1, 4, 100, 5000])))
        data[at : at + len(piece)] = piece
    elif kind == "append":
        data += rng.randbytes(rng.randrange(1, 9000))
    elif kind == "random":
        data[:] = rng.randbytes(rng.randrange(9000))
    else:  # a page that never came, or came to the wrong place
        here, there = (rng.randrange(n // 4096) * 4096 for _ in range(2))
        data[here : here + 4096] = bytes(4096) if kind == "zero" else data[there : there + 4096]
    return bytes(data)


def everything(path: Path, read_only: bool) -> dict[tuple[int, ...], tuple[Outcome, int]]:
    log = EvaluationLog(path, read_only=read_only)
    try:
        found = {
            (*point[:4], attempt): (outcome, hashed)
            for generation in range(20)
            for point, attempts in log.find(0, generation).items()
            for attempt, outcome, hashed in attempts
        }
        summary = log.summary()
        assert summary.evaluations == len(found)
        lowest = min(
            (outcome.value for outcome, _ in found.values() if outcome.status == "value"), default=None
        )
        assert (summary.best and summary.best.outcome.value) == lowest
        list(log.infeasible())
        for batch in log.batches(50):
            for i, key in enumerate(map(tuple, batch.keys.tolist())):
                outcome, hashed = found[key]
                assert (batch.statuses[i], batch.reasons[i]) == (outcome.status, outcome.reason)
                assert x_hash(batch.x[i]) == hashed
                found[key] = replace(outcome, outputs=batch.outputs[i]), hashed
        return found
    finally:
        log.close()


def test_hundreds_of_mutations():  # in memory where there is such a thing: a disk would take its time
    """Of a log at rest and of one that was killed: it reads back exactly as far as it goes, or is refused."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        path = Path(directory, "log")
        written: dict[tuple[int, ...], tuple[Outcome, int]] = {}
        log = EvaluationLog(path)
        for i in range(120):
            if i == 60:  # half of it in the file, half in the journal
                log.close()
                log = EvaluationLog(path)
            x = np.full(20, float(i))
            outcome = infeasible(f"reason {i}") if i % 4 == 3 else Outcome("value", math.sin(i))
            if i % 3 == 0:
                outcome = replace(outcome, outputs={"mass": float(i), "name": f"part {i}"})
            key = (0, i // 8, i % 8, 0, 0)
            log.record(key, outcome, x, float(i), 0.5)
            written[key] = (outcome, x_hash(x))
        killed = {name: Path(directory, name).read_bytes() for name in ("log", "log-wal")}
        log.close()
        at_rest = {"log": path.read_bytes()}

        order, refused, shortened = list(written), 0, 0
        for seed in range(500):
            rng = random.Random(seed)
            files = dict(rng.choice([killed, at_rest]))
            name = rng.choice(list(files))
            files[name] = mutate(files[name], rng)
            for leftover in Path(directory).iterdir():
                leftover.unlink()
            for name, content in files.items():
                Path(directory, name).write_bytes(content)
            try:
                found = everything(path, read_only=seed % 2 == 0)
            except RunError:
                refused += 1
                continue
            assert list(found) == order[: len(found)], seed
            assert all(found[key] == written[key] for key in found), seed
            shortened += len(found) < len(order)
        assert refused > 150
        assert shortened > 25


# -- kill -9 and a full disk ------------------------------------------------------------------------------

KILLER = """
import itertools, os, random, signal, sys, time
import numpy as np
from fmnes.outcome import Outcome
from fmnes.storage.log import EvaluationLog

def work(path, round):
    if round % 4 == 0:
        os.write(begun, b".")  # let it be killed while it opens the log
    log = EvaluationLog(path)
    log._db.execute(f"PRAGMA wal_autocheckpoint={(4000, 3)[round % 2]}")
    if round % 4:
        os.write(begun, b".")
    for i in range(10**6):
        key = (round, i // 50, i % 50, 0, 0)
        outputs = {"i": i} if round % 2 else None  # the first of them in the second round
        log.record(key, Outcome("value", float(i), outputs=outputs), np.full(20, float(i)), float(i), 0.01)
        os.write(1, b"%d\\n" % i)

rng = random.Random(4)
begin, begun = os.pipe()
for round in itertools.count():
    child = os.fork()
    if child == 0:
        work(sys.argv[1], round)
    os.read(begin, 1)
    time.sleep(rng.uniform(0.0, 0.04))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.write(1, b"killed\\n")
    if sys.stdin.readline() == "end\\n":
        break
"""


def test_kill_9_loses_nothing_that_was_acknowledged(path):
    """Forty times at least, and until a hundred rows were written in all: a busy machine is slow."""
    EvaluationLog(path).close()
    total, kill, ended = 0, 0, False
    with subprocess.Popen(
        [sys.executable, "-c", KILLER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as killer:
        while not ended:
            acknowledged = -1
            while (line := killer.stdout.readline()) != "killed\n":
                acknowledged = int(line)
            # Verified by one that only reads, which leaves the repair to the next victim, or by a writer.
            log = EvaluationLog(path, read_only=kill % 3 == 0)
            generations = range((acknowledged + 2) // 50 + 1)
            rows = [row for g in generations for [row] in log.find(kill, g).values()]
            log.close()
            assert len(rows) in (acknowledged + 1, acknowledged + 2), kill
            for i, (_, outcome, hashed) in enumerate(rows):
                assert (outcome.value, hashed) == (float(i), x_hash(np.full(20, float(i))))
            total, kill = total + len(rows), kill + 1
            ended = kill >= 40 and total > 100
            print("end" if ended else "", file=killer.stdin, flush=True)
    assert killer.returncode == 0
    log = EvaluationLog(path)
    assert log.summary().evaluations == total
    for batch in log.batches(1000):
        for key, value, outputs in zip(batch.keys.tolist(), batch.values, batch.outputs, strict=True):
            assert outputs == ({"i": value} if key[0] % 2 else None)
    log.close()


FULL_DISK = """
import resource, sys
import numpy as np
from fmnes.errors import RunError
from fmnes.outcome import Outcome
from fmnes.storage.log import EvaluationLog

log = EvaluationLog(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
x, written = np.zeros(100), 0
def put(i):
    log.record((0, 0, i, 0, 0), Outcome("value", float(i)), x, 0.0, 0.0)
def many(i):
    log.record_many([((0, 0, i, 0, k), Outcome("value", float(i)), x, 0.0, 0.0) for k in range(500)])
try:
    while True:
        put(written)
        written += 1
except RunError as error:
    print(error)
for again in (put, many):
    try:
        again(written)
        print("was written")
    except RunError:
        pass
if sys.argv[2] == "limit":  # room again: on it goes
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    put(written)
    written += 1
log.close()
log = EvaluationLog(sys.argv[1])
assert [found[0][1].value for found in log.find(0, 0).values()] == [float(i) for i in range(written)]
log.close()
print("whole" if written > 20 else written)
"""


def test_a_file_that_cannot_grow(path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path, "limit"], capture_output=True, text=True, timeout=300
    )
    message, last = done.stdout.splitlines()
    assert "could not be written (disk I/O error)" in message, done
    assert (last, done.stderr) == ("whole", "")


def test_a_full_disk(tmp_path, with_small_disk):
    done = subprocess.run(
        [*with_small_disk, sys.executable, "-c", FULL_DISK, tmp_path / "log", "disk"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    message, last = done.stdout.splitlines()
    assert "could not be written (database or disk is full)" in message, done
    assert (last, done.stderr) == ("whole", "")


@pytest.mark.parametrize("change", ["status = 'odd'", "f = x'00'", "started = 'today'"])
def test_a_glance_refuses_rows_of_another_shape(path, change):
    log = EvaluationLog(path)
    fill(log)
    log.close()
    edit(path, f"UPDATE evaluations SET {change} WHERE generation = 0 AND slot = 0")  # not the best one
    log = EvaluationLog(path, read_only=True)
    with pytest.raises(RunError, match="found a damaged row"):
        log.summary()
    log.close()


def test_the_first_of_a_reason_is_the_first_by_its_key(path):
    log = EvaluationLog(path)
    x = np.zeros(2)
    for key, reason in [((1, 0, 0, 0, 0), "mesh"), ((0, 12, 3, 0, 0), "mesh"), ((0, 3, 1, 0, 0), "mesh")]:
        log.record(key, infeasible(reason, detail=str(key)), x, 1.0, 0.1)
    log.record((0, -1, 0, 0, 0), infeasible("start"), x, 9.0, 0.1)
    log.record((0, 3, 2, 0, 0), lost("mesh"), x, 0.5, 0.1)
    found = [(count, row.outcome.status, row.outcome.reason, tuple(row.key)) for count, row in log.firsts()]
    assert found == [
        (3, "infeasible", "mesh", (0, 3, 1, 0, 0)),
        (1, "infeasible", "start", (0, -1, 0, 0, 0)),
        (1, "lost", "mesh", (0, 3, 2, 0, 0)),
    ]
    assert log.position((0, 12, 3, 0, 0)) == 3  # after the start and one other; the lost one does not count
    log.close()
