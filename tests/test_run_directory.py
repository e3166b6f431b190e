"""Run directories: one process at a time, killed at any moment, and always something good to go on from."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError, RunError, UsageError, _files
from fmnes.outcome import Outcome
from fmnes.storage.directory import RunDirectory
from fmnes.storage.lock import RunLock, holder

CONFIG = {"method": "fm-nes", "x0": [0.1, 1 / 3, -0.0, 5e-324], "target": None, "names": {"σ": "step"}}
X = np.zeros(3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "first"


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def child(script: str, *arguments: object, **options):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


# -- creating and opening ---------------------------------------------------------------------------------


def test_create_and_open(path):
    with RunDirectory.create(path, CONFIG) as run:
        assert run.config == CONFIG
        assert path.stat().st_mode & 0o777 == 0o700
        run.log.record((0, 0, 0, 0, 0), Outcome("value", 1.0), X, 1.0, 0.1)
        assert run.read_snapshot() is None
        assert run.result is None
    assert names(path) == ["config.json", "evaluations.sqlite", "lock"]
    with RunDirectory.open(path) as run:
        assert run.config == CONFIG
        assert np.signbit(run.config["x0"][2])
        assert len(run.log.find(0, 0)) == 1
        run.update_config({**run.config, "max_evaluations": 100})
    run.close()
    with RunDirectory.open(path) as run:
        assert run.config == {**CONFIG, "max_evaluations": 100}


def test_config_is_what_will_be_read_back(path):
    with RunDirectory.create(path, {"bounds": (1, 2), 3: "x"}) as run:
        assert run.config == {"bounds": [1, 2], "3": "x"}


@pytest.mark.parametrize("config", [{"x": np.inf}, {"x": np.zeros(2)}, [1], {"x": {1, 2}}])
def test_config_must_be_plain(path, config):
    with pytest.raises(ArgumentError, match="config: found"):
        RunDirectory.create(path, config)
    assert not path.exists()


def test_an_empty_directory_will_do(tmp_path):
    RunDirectory.create(tmp_path, {}).close()


def test_a_used_directory_is_refused(path):
    with RunDirectory.create(path, CONFIG) as run:
        run.write_snapshot({}, {})
    before = {name: (path / name).read_bytes() for name in names(path)}
    with pytest.raises(RunError, match=r"found a run .* fmnes\.resume goes on with it"):
        RunDirectory.create(path, CONFIG)
    assert {name: (path / name).read_bytes() for name in names(path)} == before


def test_a_foreign_directory_is_refused(tmp_path):
    for name in ("a.txt", "b.txt", ".c.tmp", "d"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(
        RunError, match=r"found \.c\.tmp, a\.txt, b\.txt, \.\.\. in it, wanted a new or empty"
    ):
        RunDirectory.create(tmp_path, {})
    assert names(tmp_path) == [".c.tmp", "a.txt", "b.txt", "d"]
    with pytest.raises(RunError, match=r"found no config\.json"):
        RunDirectory.open(tmp_path)
    assert names(tmp_path) == [".c.tmp", "a.txt", "b.txt", "d"]


def test_a_file_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(RunError, match="found a file"):
        RunDirectory.create(file, {})
    with pytest.raises(RunError, match="cannot be made"):
        RunDirectory.create(file / "run", {})
    for wrong in (file, tmp_path / "nothing"):
        with pytest.raises(RunError, match="wanted a run directory"):
            RunDirectory.open(wrong)
    assert file.read_text() == "mine"


def test_the_remains_of_a_killed_creation_are_cleared(path):
    RunDirectory.create(path, {"old": 1}).close()
    (path / "config.json").rename(path / ".config.json.k2j3_x8y.tmp")
    (path / ".evaluations.sqlite.abcdefgh.tmp").write_bytes(b"half")
    RunDirectory.create(path, {"new": 1}).close()
    with RunDirectory.open(path) as run:
        assert run.config == {"new": 1}
    assert names(path) == ["config.json", "evaluations.sqlite", "lock"]


def test_remains_with_a_snapshot_are_not_ours_to_clear(path):
    with RunDirectory.create(path, {}) as run:
        run.write_snapshot({}, {})
    (path / "config.json").unlink()
    with pytest.raises(RunError, match=r"found snapshot\.npz in it"):
        RunDirectory.create(path, {})


def test_a_missing_log_is_not_replaced(path):
    RunDirectory.create(path, {}).close()
    (path / "evaluations.sqlite").unlink()
    with pytest.raises(RunError, match=r"found no evaluations\.sqlite"):
        RunDirectory.open(path)
    assert names(path) == ["config.json", "lock"]


# -- one process at a time --------------------------------------------------------------------------------

HOLD = """
import sys, time
from fmnes.storage.directory import RunDirectory
run = RunDirectory.open(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def test_the_second_is_refused_and_kill_9_gives_the_lock_back(path):
    RunDirectory.create(path, {}).close()
    with child(HOLD, path) as other:
        assert other.stdout.readline() == "held\n"
        words = f"in use by process {other.pid} on {socket.gethostname()}"
        with pytest.raises(RunError, match=words):
            RunDirectory.open(path)
        with RunDirectory.open(path, read_only=True) as run:
            assert run.in_use_by == f"process {other.pid} on {socket.gethostname()}"
        other.kill()
    with RunDirectory.open(path, read_only=True) as run:
        assert run.in_use_by is None
    RunDirectory.open(path).close()


def test_the_second_in_one_process_is_refused_too(path):
    with RunDirectory.create(path, {}) as run:
        run.write_snapshot({}, {})
        with pytest.raises(RunError, match=f"in use by process {os.getpid()} "):
            RunDirectory.open(path)
        with pytest.raises(RunError, match="found a run"):
            RunDirectory.create(path, {})
    RunDirectory.open(path).close()


def test_a_failed_opening_gives_the_lock_back(path):
    RunDirectory.create(path, {}).close()
    config = (path / "config.json").read_bytes()
    (path / "config.json").write_bytes(b"{")
    with pytest.raises(RunError, match=r"config\.json: found a damaged"):
        RunDirectory.open(path)
    (path / "config.json").write_bytes(config)
    RunDirectory.open(path).close()


def test_the_lock_ends_with_the_process_that_took_it_not_with_its_children(tmp_path):
    script = """
import os, sys, time
from fmnes.storage.lock import RunLock
lock = RunLock(sys.argv[1])
pid = os.fork()
if pid == 0:
    time.sleep(60)
    os._exit(0)
time.sleep(0.1)
print(pid, flush=True)
time.sleep(60)
"""
    with child(script, tmp_path / "lock") as other:
        grandchild = int(other.stdout.readline())
        try:
            with pytest.raises(RunError, match=f"process {other.pid} on"):
                RunLock(tmp_path / "lock")
            other.kill()
            other.wait()
            RunLock(tmp_path / "lock").release()
            os.kill(grandchild, 0)  # it is still there
        finally:
            os.kill(grandchild, signal.SIGKILL)


def test_a_lock_that_is_forgotten_or_unreadable(tmp_path):
    path = tmp_path / "lock"
    assert holder(path) is None
    lock = RunLock(path)
    path.write_bytes(b"\xff\x00" * 500)
    assert holder(path) == "another process"
    with pytest.raises(RunError, match="in use by another process"):
        RunLock(path, patience=0)
    del lock
    RunLock(path).release()
    with pytest.raises(RunError, match="lock file cannot be opened"):
        RunLock(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="lock file cannot be opened"):
        RunLock(path)
    assert not (tmp_path / "elsewhere").exists()


def test_read_only_writes_nothing(path):
    with RunDirectory.create(path, {}) as run:
        run.write_snapshot({"k": 1}, {})
        (path / ".snapshot.npz.leftover.tmp").write_bytes(b"in the making")
        before = names(path)
        with RunDirectory.open(path, read_only=True) as reader:
            assert reader.read_snapshot()[0]["k"] == 1
            for write in (
                lambda: reader.write_snapshot({}, {}),
                lambda: reader.finish({}),
                lambda: reader.update_config({}),
            ):
                with pytest.raises(UsageError, match="read-only"):
                    write()
        assert names(path) == before
    with pytest.raises(UsageError, match="closed"):
        run.finish({})


# -- snapshots --------------------------------------------------------------------------------------------


def test_snapshots_keep_the_one_before(path):
    with RunDirectory.create(path, {}) as run:
        for k in range(4):
            run.write_snapshot({"k": k}, {"a": np.full(3, k)})
            metadata, arrays = run.read_snapshot()
            assert metadata["k"] == k
            assert arrays["a"].tolist() == [k] * 3
        (path / "snapshot.npz").write_bytes(b"damaged")
        with pytest.warns(
            RuntimeWarning, match=r"snapshot\.npz: found a damaged .*; going on from the one before"
        ):
            assert run.read_snapshot()[0]["k"] == 2
        run.write_snapshot({"k": 9}, {})
        assert run.read_snapshot()[0]["k"] == 9
        (path / "snapshot.npz").unlink()
        (path / "snapshot.previous.npz").write_bytes(b"damaged too")
        with pytest.warns(RuntimeWarning, match=r"no such file; and of the one before: .*damaged"):
            assert run.read_snapshot()[0]["k"] == 0  # the first one
        (path / "snapshot.first.npz").unlink()
        with pytest.raises(RunError, match=r"no such file; and of the one before: .*damaged"):
            run.read_snapshot()


@pytest.mark.parametrize("links", [True, False])
def test_at_every_step_of_a_write_there_is_a_good_one(path, monkeypatch, links):
    """Stop it at each change of the directory in turn, as a kill would; with and without hard links."""

    class Killed(BaseException):
        pass

    def count_down(change):
        def counted(*arguments):
            nonlocal steps
            steps -= 1
            if steps < 0:
                raise Killed
            return change(*arguments)

        return counted

    def no_links(*arguments):
        raise OSError("not supported")

    for allowed in range(10):
        with RunDirectory.create(path.with_name(str(allowed)), {}) as run:
            run.write_snapshot({"k": 0}, {})
            run.write_snapshot({"k": 1}, {})
            steps = allowed
            with monkeypatch.context() as patch, contextlib.suppress(Killed):
                patch.setattr(_files.os, "link", count_down(os.link) if links else no_links)
                patch.setattr(_files.os, "replace", count_down(os.replace))
                patch.setattr(_files.os, "unlink", lambda name: None)  # a kill cleans nothing up
                run.write_snapshot({"k": 2}, {})
        with RunDirectory.open(run.path) as run:
            missing = not (run.path / "snapshot.npz").exists()
            assert missing <= (not links)
            with pytest.warns(RuntimeWarning, match="no such file") if missing else contextlib.nullcontext():
                found = run.read_snapshot()[0]["k"]
            assert found == (2 if steps >= 0 else 1)
            assert not list(run.path.glob(".*.tmp"))
            run.write_snapshot({"k": 3}, {})
            assert run.read_snapshot()[0]["k"] == 3
            assert not list(run.path.glob(".*.tmp"))
    assert steps >= 0


def test_a_write_that_fails_is_a_run_error(path):
    script = """
import resource, sys
import numpy as np
from fmnes.errors import RunError
from fmnes.storage.directory import RunDirectory
with RunDirectory.open(sys.argv[1]) as run:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    long = {"text": "x" * 30_000}
    for write in (lambda: run.write_snapshot({}, {"a": np.zeros(10_000)}), lambda: run.finish(long),
                  lambda: run.update_config(long)):
        try:
            write()
        except RunError as error:
            print(error)
    assert run.config == {"a": 1}
"""
    with RunDirectory.create(path, {"a": 1}) as run:
        run.write_snapshot({"k": 1}, {})
        run.write_snapshot({"k": 2}, {})
    ours = [name for name in names(path) if name not in ("lock", "evaluations.sqlite")]
    before = {name: (path / name).read_bytes() for name in ours}
    with child(script, path) as other:
        lines = other.stdout.read().splitlines()
    assert [line.split("/")[-1] for line in lines] == [
        f"{name}: could not be written ([Errno 27] File too large)"
        for name in ("snapshot.npz", "result.json", "config.json")
    ]
    assert {name: (path / name).read_bytes() for name in ours} == before
    assert names(path) == sorted([*ours, "lock", "evaluations.sqlite"])


# -- kill -9 ----------------------------------------------------------------------------------------------

KILLER = """
import os, random, signal, sys, time
import numpy as np
from fmnes.storage.directory import RunDirectory

def write_snapshots(path, round):
    run = RunDirectory.open(path)
    found = run.read_snapshot()
    k = found[0]["k"] if found else 0
    first = k + 1 if round % 4 == 0 else k  # sometimes let it come to its first one
    while True:
        if k == first:
            os.write(begun, b".")
        k += 1
        run.write_snapshot({"k": k}, {"a": np.full(20_000, k), "b": np.full(k % 100, k)})
        os.write(1, b"%d\\n" % k)

def create(path, round):
    if round % 4:
        os.write(begun, b".")
    run = RunDirectory.create(f"{path}/{round}", {"round": round})
    os.write(1, b"1\\n")
    if round % 4 == 0:  # sometimes let it finish
        os.write(begun, b".")
    time.sleep(60)

rng = random.Random(5)
begin, begun = os.pipe()
work, path, longest = globals()[sys.argv[1]], sys.argv[2], float(sys.argv[3])
for round in range(40):
    child = os.fork()
    if child == 0:
        work(path, round)
    os.read(begin, 1)
    time.sleep(rng.uniform(0.0, longest))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.write(1, b"killed\\n")
    sys.stdin.readline()
"""


def kills(work: str, path: Path, longest: float):
    """40 times: the last number that a process killed at work on `path` has printed, 0 if none."""
    with child(KILLER, work, path, longest) as killer:
        for _ in range(40):
            acknowledged = 0
            while (line := killer.stdout.readline()) != "killed\n":
                acknowledged = int(line)
            yield acknowledged
            print(file=killer.stdin, flush=True)
    assert killer.returncode == 0


def test_kill_9_while_writing_snapshots(path):
    RunDirectory.create(path, {}).close()
    newest = 0
    for acknowledged in kills("write_snapshots", path, 0.04):
        newest = max(newest, acknowledged)
        with RunDirectory.open(path) as run:
            snapshot = run.read_snapshot()
            assert not list(path.glob(".*.tmp"))
        if snapshot is None:
            assert newest == 0
            continue
        metadata, arrays = snapshot
        k = metadata["k"]
        assert newest <= k <= newest + 1
        assert (arrays["a"] == k).all()
        assert arrays["b"].tolist() == [k] * (k % 100)
        newest = k
    assert newest > 5


def test_kill_9_while_creating(tmp_path):
    """It is there and complete, or it is not there and can be made."""
    complete = 0
    for round, acknowledged in enumerate(kills("create", tmp_path, 0.06)):
        path = tmp_path / str(round)
        if acknowledged or (path / "config.json").exists():
            complete += 1
            with RunDirectory.open(path) as run:
                assert run.config == {"round": round}
        else:
            RunDirectory.create(path, {}).close()
    assert complete > 0


# -- the JSON files ---------------------------------------------------------------------------------------


def test_result(path):
    result = {"fun": 1 / 3, "x": [1.0, -0.0]}
    with RunDirectory.create(path, {}) as run:
        with pytest.raises(ArgumentError, match="result: found"):
            run.finish({"fun": np.inf})
        assert run.result is None
        run.finish(result)
        assert run.result == result
    with RunDirectory.open(path) as run:
        assert run.result == result
        run.finish(None)
        run.finish(None)
        assert run.result is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "found version 2, wanted 1: a newer fmnes wrote it; upgrade"),
        ({"version": 0}, "found version 0, wanted 1: an fmnes that was never released wrote it"),
        ({"version": "1"}, "found version '1'"),
        ({"format": "other"}, "another format"),
        ({"data": {"a": 2}}, "checksum"),
        ({"data": [1]}, "checksum"),
        ({"checksum": None}, "checksum"),
    ],
)
def test_newer_foreign_and_edited_configs(path, change, words):
    RunDirectory.create(path, {"a": 1}).close()
    config = path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    for read_only in (False, True):
        with pytest.raises(RunError, match=rf"config\.json: found .*{words}|config\.json: {words}"):
            RunDirectory.open(path, read_only=read_only)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 10**5, b"1" * 5000, b'{"format": NaN}'])
def test_configs_that_are_no_json(path, content):
    RunDirectory.create(path, {}).close()
    (path / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=r"config\.json: "):
        RunDirectory.open(path)


def test_a_thousand_mutations_of_the_result():
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as path, RunDirectory.create(path, CONFIG) as run:
        run.finish(CONFIG)
        file = run.path / "result.json"
        good, refused = file.read_bytes(), 0
        for seed in range(1000):
            rng = random.Random(seed)
            data = bytearray(good)
            if seed % 4 == 0:
                del data[rng.randrange(len(data)) :]
            else:
                for _ in range(rng.choice([1, 1, 1, 5])):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            file.write_bytes(data)
            try:
                assert run.result == CONFIG, seed
            except RunError:
                refused += 1
        assert refused > 600


# -- what is not ours -------------------------------------------------------------------------------------


def all_bytes(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in names(path)}


FOREIGN = {
    "a configuration": {"config.json": b'{"mesh": "fine", "my": "settings"}'},
    "results": {"evaluations.sqlite": b"three weeks of my own results"},
    "a lock": {"lock": b"my lock"},
    "a lock and results": {"lock": b"17 node3\n", "evaluations.sqlite": b"three weeks of my own results"},
    "all three": {"config.json": b"{}", "evaluations.sqlite": b"", "lock": b""},
    "an empty lock and results": {"lock": b"", "evaluations.sqlite": b""},
    "a side file": {"evaluations.sqlite-wal": b"mine"},
    "names as ours": {".config.json.abcdefgh.tmp": b"mine"},
    "a result": {"result.json": b"{}"},
    "snapshots": {"config.json": b"{}", "snapshot.npz": b"mine"},
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
def test_a_directory_that_merely_looks_like_ours_loses_nothing(tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match="wanted a new or empty"):
        fmnes.minimize(lambda x: float(x @ x), [1.0], 1.0, rng=1, max_evaluations=4, run_dir=tmp_path)
    with pytest.raises(RunError, match="wanted a"):
        fmnes.resume(tmp_path, len)
    assert all_bytes(tmp_path) == files


def test_the_database_of_another_program_is_left_alone(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "evaluations.sqlite")) as db:
        db.execute("CREATE TABLE mine (x)")
        db.execute("INSERT INTO mine VALUES (1)")
        db.commit()
    (tmp_path / "lock").write_text("17 node3\n")
    before = all_bytes(tmp_path)
    with pytest.raises(RunError, match=r"found evaluations\.sqlite in it"):
        RunDirectory.create(tmp_path, {})
    assert all_bytes(tmp_path) == before


def test_a_run_that_lost_its_snapshots_keeps_its_evaluations(tmp_path):
    run = tmp_path / "run"
    fmnes.minimize(lambda x: float(x @ x), [1.0], 1.0, rng=1, max_evaluations=40, run_dir=run)
    for path in (*run.glob("snapshot.*"), run / "result.json"):  # how many there are depends on the time
        path.unlink()
    before = all_bytes(run)
    with pytest.raises(RunError, match=r"a run of 40 evaluations without its snapshot\.npz"):
        fmnes.minimize(lambda x: float(x @ x), [1.0], 1.0, rng=2, max_evaluations=4, run_dir=run)
    fun = lambda x: float(x @ x)  # noqa: E731
    fun.__qualname__ = json.loads(before["config.json"])["data"]["objective"]["name"]
    with pytest.raises(RunError, match=r"40 evaluations but no snapshot\.npz, wanted it back"):
        fmnes.resume(run, fun)
    with contextlib.closing(sqlite3.connect(run / "evaluations.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM evaluations").fetchone() == (40,)
    assert names(run) == sorted(before)


# -- a run that ended as it began -------------------------------------------------------------------------


def square(x):
    return float(x @ x)


def test_a_run_interrupted_before_its_first_snapshot_may_begin_again(tmp_path, monkeypatch):
    run = tmp_path / "run"

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "write_snapshot", interrupted)
        first = fmnes.minimize(square, [1.0, 1.0], 0.5, rng=1, max_evaluations=20, run_dir=run)
    assert (first.stop_reason, first.nfev) == (fmnes.StopReason.INTERRUPTED, 0)
    with pytest.raises(RunError, match=r"begin the run again: minimize takes this directory"):
        fmnes.resume(run, square)
    again = fmnes.minimize(square, [1.0, 1.0], 0.5, rng=1, max_evaluations=20, run_dir=run)
    assert again.nfev == 20
    assert fmnes.resume(run, square).nfev == 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_disk_too_small_for_the_first_snapshot_and_then_larger(tmp_path):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", tmp_path]).returncode == 0
    if not mounted:
        pytest.skip("mounting is not allowed here")
    try:
        run = tmp_path / "run"
        first = fmnes.minimize(square, [1.0] * 300, 0.5, rng=1, max_evaluations=50, run_dir=run)
        assert (first.stop_reason, first.nfev) == (fmnes.StopReason.STORAGE, 0)
        subprocess.run(["mount", "-o", "remount,size=100m", tmp_path], check=True)
        with pytest.raises(RunError, match="begin the run again"):
            fmnes.resume(run, square)
        assert fmnes.minimize(square, [1.0] * 300, 0.5, rng=1, max_evaluations=50, run_dir=run).nfev == 50
    finally:
        subprocess.run(["umount", tmp_path], check=True)


# -- files that are no files ------------------------------------------------------------------------------

SPECIAL = {
    "a pipe": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a directory": os.mkdir,
}


@pytest.mark.parametrize("name", ["config.json", "snapshot.npz", "result.json", "evaluations.sqlite", "lock"])
@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
def test_what_is_no_plain_file_is_neither_waited_for_nor_read(tmp_path, make, name):
    run = tmp_path / "run"
    fmnes.minimize(square, [1.0], 1.0, rng=1, max_evaluations=8, run_dir=run)
    (run / name).unlink(missing_ok=True)
    make(run / name)
    script = """
import resource, signal, sys, fmnes, fmnes.storage.directory
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
signal.alarm(20)
def square(x): return float(x @ x)
for act in (lambda: fmnes.resume(sys.argv[1], square, max_evaluations=20),
            lambda: fmnes.storage.directory.RunDirectory.open(sys.argv[1], read_only=True).close()):
    try:
        act()
        print("fine")
    except fmnes.RunError as error:
        print("RunError", error)
"""
    done = subprocess.run([sys.executable, "-c", script, run], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    resumed, shown = done.stdout.splitlines()
    assert resumed.startswith("RunError")
    assert shown.startswith("RunError") or name == "lock"


def test_a_snapshot_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(fmnes.SnapshotError, match="not a plain file"):
        fmnes.Optimizer.load(tmp_path / "pipe")


# -- a forked child ---------------------------------------------------------------------------------------


FORKS = """
import os, sys
import numpy as np
from fmnes.outcome import Outcome
from fmnes.storage.directory import RunDirectory
with RunDirectory.create(sys.argv[1], {}) as run:
    run.log.record((0, 0, 0, 0, 0), Outcome("value", 1.0), np.zeros(3), 1.0, 0.1)
    pid = os.fork()
    if pid == 0:
        run.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.path.exists(sys.argv[1] + "/evaluations.sqlite-wal"), "the child has closed the database"
    run.log.record((0, 0, 1, 0, 0), Outcome("value", 2.0), np.zeros(3), 1.0, 0.1)
"""


def test_a_forked_child_does_not_touch_the_log(path):
    subprocess.run([sys.executable, "-c", FORKS, path], check=True, timeout=300)
    with RunDirectory.open(path) as run:
        assert run.log.count() == 2
