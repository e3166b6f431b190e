"""Moving a run directory aside: nothing is lost, and what is in use or not ours is left where it is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fmnes import RunError, minimize
from fmnes.storage import lock as locks
from fmnes.storage.directory import LOCK, RunDirectory, archive_run, next_free
from fmnes.storage.lock import RunLock


def make_run(path: Path, evaluations: int = 12) -> dict[str, bytes]:
    minimize(lambda x: float(x @ x), [1.0, 1.0], 0.5, rng=1, max_evaluations=evaluations, run_dir=path)
    return contents(path)


def contents(path: Path) -> dict[str, bytes]:
    """All but the lock, which says who held it last."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != LOCK}


def test_a_run_gets_the_next_free_number_and_stays_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "problem.run"
    for number in (1, 2, 3):
        before = make_run(run, 10 + number)
        assert next_free(run) == tmp_path / f"problem.run.{number}"
        assert archive_run(run) == tmp_path / f"problem.run.{number}"
        assert not run.exists() and contents(tmp_path / f"problem.run.{number}") == before
    with RunDirectory.open(tmp_path / "problem.run.2", read_only=True) as directory:
        assert directory.log.count() == 12


def test_no_name_that_is_there_is_taken(tmp_path: Path) -> None:
    run = tmp_path / "r"
    make_run(run)
    (tmp_path / "r.1").write_text("mine")
    (tmp_path / "r.2").mkdir()
    (tmp_path / "r.3").symlink_to("nowhere")
    assert archive_run(run) == tmp_path / "r.4"
    assert (tmp_path / "r.1").read_text() == "mine" and os.path.islink(tmp_path / "r.3")


def test_a_link_to_a_run_is_moved_and_the_run_stays(tmp_path: Path) -> None:
    before = make_run(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    assert archive_run(tmp_path / "link") == tmp_path / "link.1"
    assert contents(tmp_path / "real") == contents(tmp_path / "link.1") == before


def test_a_run_in_use_stays(tmp_path: Path) -> None:
    run = tmp_path / "r"
    make_run(run)
    code = (
        f"from fmnes.storage.lock import RunLock; import time; lock = RunLock({str(run / LOCK)!r}); "
        "print(1, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        with pytest.raises(RunError, match=f"in use by process {process.pid} on"):
            archive_run(run)
        process.kill()
    assert run.is_dir() and not (tmp_path / "r.1").exists()


@pytest.mark.parametrize("what", ["nothing", "file", "empty", "foreign config", "other files"])
def test_what_is_not_a_run_of_ours_stays(tmp_path: Path, what: str) -> None:
    path = tmp_path / "r"
    if what == "file":
        path.write_text("mine")
    elif what != "nothing":
        path.mkdir()
    if what == "foreign config":
        (path / "config.json").write_text('{"mine": 1}')
    if what == "other files":
        (path / "thesis.tex").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunError, match="found no run of ours"):
        archive_run(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_without_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "r")
    monkeypatch.chdir(tmp_path / "r")
    with pytest.raises(RunError, match="no name of its own"):
        archive_run("..")
    assert archive_run(".") == tmp_path / "r.1"


def test_what_the_file_system_refuses_is_said_in_words(tmp_path: Path) -> None:
    run = tmp_path / ("r" * 255)  # with a number its name would be too long
    make_run(run)
    with pytest.raises(RunError, match="cannot be moved aside"):
        archive_run(run)
    assert run.is_dir()


def test_of_two_who_move_one_begins_and_the_other_leaves_the_new_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "r"
    make_run(run)
    new = make_run(tmp_path / "new", 20)
    lock = RunLock(run / LOCK)
    errors: list[RunError] = []
    waits, try_lock = threading.Event(), locks._try_lock

    def watched(descriptor: int, shared: bool = False) -> None:
        try:
            try_lock(descriptor, shared)
        except OSError:
            waits.set()
            raise

    monkeypatch.setattr(locks, "_try_lock", watched)
    monkeypatch.setattr(RunLock.__init__, "__defaults__", (240.0,))  # its patience

    def second() -> None:
        try:
            archive_run(run)
        except RunError as error:
            errors.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    assert waits.wait(240)
    os.rename(run, tmp_path / "r.1")
    os.rename(tmp_path / "new", run)
    lock.release()
    thread.join()
    assert "another run there" in str(errors[0])
    assert contents(run) == new and not (tmp_path / "r.2").exists()
