"""Objectives for real clusters, whose workers import them by name. They leave a trace in a folder."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import fmnes


def valley(x: Any) -> float:
    """Fails for part of the space."""
    if x[0] + x[1] > 2.5:
        raise fmnes.Infeasible("too far")
    return float(np.sum(np.arange(1, len(x) + 1) * x**2))


def traced(x: Any, folder: str) -> float:
    """Notes each point before it is evaluated."""
    note(folder, x.tobytes().hex())
    return valley(x)


def kills_its_worker_once(x: Any, folder: str, at: int = 12) -> float:
    """In its `at`-th evaluation, the cluster's own worker process is killed, as with its node."""
    note(folder, x.tobytes().hex())
    time.sleep(0.05)
    if len(notes(folder)) >= at and is_first(folder):
        time.sleep(1.0)  # what has just ended elsewhere is on its way
        os.kill(worker_of_the_cluster(), signal.SIGKILL)
        time.sleep(600)
    return valley(x)


def kills_the_head_once(x: Any, folder: str, at: int = 12) -> float:
    """In its `at`-th evaluation, the process that knows all of this Ray (its GCS) is killed."""
    note(folder, x.tobytes().hex())
    if len(notes(folder)) >= at and is_first(folder):
        os.kill(relative("gcs_server"), signal.SIGKILL)
        time.sleep(600)
    return valley(x)


def relative(name: str) -> int:
    """The process of this name whose parent is the nearest of our ancestors."""
    families: dict[int, int] = {}
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "stat").read_bytes().rpartition(b")")
        except OSError:
            continue
        families[int(path.name)] = int(words[2].split()[1])
        if words[0].endswith(b"(" + name.encode()):
            found.append(int(path.name))
    above = os.getpid()
    while not (children := [pid for pid in found if families[pid] == above]):
        above = families[above]
    return children[0]


def fails_variously(x: Any) -> float:
    """x[0]: 0 a value, 1 a crash, 2 a hang, 3 a SIGTERM from outside, 4 an exit, 5 an exception."""
    print("it is", int(x[0]))
    if x[0] == 1:
        ctypes.string_at(0)
    if x[0] == 2:
        time.sleep(600)
    if x[0] == 3:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)
    if x[0] == 4:
        os._exit(7)
    if x[0] == 5:
        raise ValueError("bad input")
    return valley(x)


def sleeps(x: Any, folder: str, seconds: float = 600.0) -> float:
    """Tells its process number, and is not done for a while."""
    note(folder, str(os.getpid()))
    time.sleep(seconds)
    return valley(x)


def ends_its_driver(x: Any, folder: str, driver: int, number: int, at: int = 12) -> float:
    """In its `at`-th evaluation, the driver (or another process) gets a signal, and this goes on."""
    note(folder, f"{os.getpid()}")
    if len(notes(folder)) >= at and is_first(folder):
        os.kill(driver, number)
        time.sleep(600)
    return valley(x)


def worker_of_the_cluster() -> int:
    """We are the child of our guard, which is the child of that process."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_bytes().rpartition(b")")[2].split()[1])


def note(folder: str, line: str) -> None:
    with Path(folder, "notes").open("a") as file:
        file.write(line + "\n")


def notes(folder: Any) -> list[str]:
    path = Path(folder, "notes")
    return path.read_text().split() if path.exists() else []


def is_first(folder: str) -> bool:
    try:
        with Path(folder, "first").open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def is_alive(pid: int) -> bool:
    """A zombie is not, nor one that a container's first process does not reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
