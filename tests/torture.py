"""Whole runs that get killed, and how to see that nothing came of it.

    python -m tests.torture SCENARIO RUN_DIR OUT [HOOK ...]

begins the run of a scenario, or goes on with the one in RUN_DIR, and leaves its `portrait` in OUT. A
`Driver` is such a process. Every call of an objective is one line in the file that FMNES_TEST_CALLS names:
the bytes of its point, so that a second call of the same point is seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fmnes
from fmnes import _files
from fmnes.run import loop
from fmnes.run import state as run_state
from fmnes.run.state import RunState
from fmnes.storage.log import EvaluationLog
from tests import faults

ROOT = Path(__file__).parents[1]
CALLS, TAG = "FMNES_TEST_CALLS", "FMNES_TEST_TAG"


# -- objectives -------------------------------------------------------------------------------------------


def note(x: Any) -> None:
    """One line for this call, written at once."""
    if CALLS in os.environ:
        line = struct.pack(f"<{len(x)}d", *x).hex() + "\n"
        descriptor = os.open(os.environ[CALLS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)


def bumpy(x: Any) -> float:
    """Several optima, and it fails for part of the space."""
    if x[0] < -0.5:
        raise fmnes.Infeasible("mesh failed" if x[1] < 0.5 else "did not converge")
    return float(np.sum(x * x) + 3.0 * np.sum(1.0 - np.cos(6.0 * x)))


def simulate(x: Any, seconds: float = 0.001) -> float:
    note(x)
    time.sleep(seconds)
    return bumpy(x)


def unreliable(x: Any, seconds: float = 0.001) -> float:
    """Like `simulate`, but the first try of some points is lost to the machine."""
    note(x)
    time.sleep(seconds)
    if CALLS in os.environ and hashlib.sha256(x.tobytes()).digest()[0] < 10:
        mark = Path(f"{os.environ[CALLS]}.{x.tobytes().hex()}")
        with contextlib.suppress(FileExistsError):
            mark.touch(exist_ok=False)
            raise fmnes.Lost("licence server down")
    return bumpy(x)


def constrained(x: Any) -> Any:
    """With an output that has a limit."""
    note(x)
    if CALLS in os.environ:
        time.sleep(0.002)
    return bumpy(x), {"sum": float(x[0] + x[1])}


def hangs_later(x: Any) -> float:
    note(x)
    if x[0] < 0.5:
        time.sleep(600)
    return float(np.sum(x * x))


#: Beside the file of calls: while SLEEP is there, a later evaluation makes ASLEEP and sleeps for ever.
SLEEP, ASLEEP = ".sleep", ".asleep"


def sleepy(x: Any) -> float:
    note(x)
    calls = os.environ.get(CALLS, "")
    if os.path.exists(calls + SLEEP) and count_calls(Path(calls)) > 9:
        Path(calls + ASLEEP).touch()
        time.sleep(600)
    time.sleep(0.01 if calls else 0.0)
    return bumpy(x)


class LeavesChain:
    """At the point `x` it starts one process after the other, each from the last, and exits."""

    def __init__(self, x: Any, length: int, done: Path) -> None:
        self._x, self._length, self._done = np.array(x), length, done

    def __call__(self, x: Any) -> Any:
        if np.array_equal(x, self._x):
            if os.fork() == 0:
                self._go_on()
            while not self._done.exists():
                time.sleep(0.01)
            os._exit(1)
        return float(np.sum(x * x))

    def _go_on(self) -> None:
        for _ in range(self._length):
            os.setsid()
            if os.fork():
                break
        else:
            self._done.touch()
        time.sleep(600)
        os._exit(0)


class GoesWrong:
    """The sum of squares, but each of some points goes wrong in the way that `faults.FAULTS` so calls."""

    def __init__(self, wrong: dict[tuple[float, ...], str]) -> None:
        self._wrong = wrong

    def __call__(self, x: Any) -> Any:
        fault = self._wrong.get(tuple(x))
        return faults.FAULTS[fault].act() if fault else float(np.sum(x * x))


#: A program: the sum of squares of its arguments after the first, which is what it runs at slots 2, 3, ... of
#: generation 1. It notes its call as `note` does.
PROGRAM = """
import json, math, os, signal, struct, subprocess, sys, time
task = json.load(sys.stdin)
x = [float(word) for word in sys.argv[2:]]
assert x == task["x"]
if "FMNES_TEST_CALLS" in os.environ:
    fd = os.open(os.environ["FMNES_TEST_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (struct.pack(f"<{len(x)}d", *x).hex() + chr(10)).encode())
value = math.fsum(v * v for v in x)
faults = dict(enumerate(json.loads(sys.argv[1]), 2))
if task["generation"] == 1 and task["slot"] in faults:
    exec(faults[task["slot"]])
print("iteration 1 of 1")
print(repr(value))
"""


#: Its values differ at the same point, and are those of the same evaluation each time.
NOISY_PROGRAM = PROGRAM.replace(
    "print(repr(", 'value += 3 * math.sin(1e4 * task["generation"] + 7.3 * task["slot"])\nprint(repr('
)


def command(*faults: str, d: int = 2, program: str = PROGRAM, **settings: Any) -> fmnes.Command:
    words = [text.replace("{", "{{").replace("}", "}}") for text in (program, json.dumps(faults))]
    points = [f"{{x{i}}}" for i in range(d)]
    settings = {"keep": "none", **settings}
    return fmnes.Command([sys.executable, "-I", "-S", "-c", *words, *points], **settings)


# -- scenarios --------------------------------------------------------------------------------------------


class Scenario(NamedTuple):
    fun: Any
    settings: dict[str, Any]
    workers: int = 1

    def run(self, run_dir: Path | None = None, **changes: Any) -> fmnes.Result:
        """From the beginning; without a directory that is the run all others are compared with."""
        # An evaluation is counted by its point: without a look for noise each point is evaluated once.
        plain = {"workers": self.workers, "surrogate": False, "noise": False}
        settings = {**plain, **self.settings, **changes}
        x0 = settings.pop("x0", [1.5, 1.0])
        return fmnes.minimize(self.fun, x0, 1.0, run_dir=run_dir, **settings)

    def reference(self) -> dict[str, Any]:
        """In this process, one after another, without a directory, an interruption or a nap."""
        slow = self.fun.func in (simulate, unreliable) if isinstance(self.fun, partial) else False
        # Models propose as many points at a time as there are workers.
        alone = slow and not self.settings.get("surrogate")
        with watching() as seen:
            result = self._replace(fun=bumpy if slow else self.fun).run(workers=1 if alone else self.workers)
        return portrait(result, *seen)


SCENARIOS = {
    "plain": Scenario(partial(simulate, seconds=0.002), {"rng": 1, "max_evaluations": 200}),
    "bounds": Scenario(
        partial(simulate, seconds=0.002),
        {"rng": 2, "max_evaluations": 160, "bounds": [(-2.0, 2.0), (-0.2, 3.0)], "method": "cma-es"},
    ),
    "restarts": Scenario(
        partial(simulate, seconds=0.0004), {"rng": 3, "restarts": 3, "max_evaluations": 1500}
    ),
    "resampling": Scenario(
        partial(simulate, seconds=0.002),
        {"rng": 4, "max_evaluations": 200, "method": fmnes.Resampling(fmnes.XNES()), "x0": [0.0, 1.0]},
    ),
    "workers": Scenario(partial(simulate, seconds=0.005), {"rng": 5, "max_evaluations": 200}, workers=2),
    "lost": Scenario(partial(unreliable, seconds=0.002), {"rng": 6, "max_evaluations": 120}, workers=2),
    "constraints": Scenario(
        constrained,
        {"rng": 2, "max_evaluations": 250, "constraints": {"sum": (1.0, None)}, "restarts": 2},
    ),
    "command": Scenario(command(), {"rng": 7, "max_evaluations": 30}, workers=2),
    "noise": Scenario(partial(simulate, seconds=0.002), {"rng": 1, "max_evaluations": 200, "noise": True}),
    "noise workers": Scenario(
        partial(simulate, seconds=0.005), {"rng": 5, "max_evaluations": 200, "noise": True}, workers=2
    ),
    "noisy command": Scenario(
        command(program=NOISY_PROGRAM), {"rng": 3, "max_evaluations": 90, "noise": True}, workers=2
    ),
    "surrogate": Scenario(
        partial(simulate, seconds=0.002),
        {"rng": 2, "max_evaluations": 160, "bounds": [(-2.0, 2.0)] * 2, "restarts": 5, "surrogate": True},
    ),
    "surrogate workers": Scenario(
        partial(unreliable, seconds=0.002),
        {"rng": 3, "max_evaluations": 120, "bounds": [(-2.0, 2.0)] * 2, "surrogate": True},
        workers=2,
    ),
    # So slow that a signal comes in the middle of an evaluation.
    "patient": Scenario(partial(simulate, seconds=0.02), {"rng": 9, "max_evaluations": 50}),
    "patient workers": Scenario(
        partial(simulate, seconds=0.03), {"rng": 10, "max_evaluations": 60}, workers=2
    ),
    "hang": Scenario(hangs_later, {"rng": 1, "max_evaluations": 200, "x0": [2.0, 2.0]}, workers=2),
    "stubborn": Scenario(
        command("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"),
        {"rng": 1, "max_evaluations": 40},
        workers=2,
    ),
    "sleepy": Scenario(sleepy, {"rng": 11, "max_evaluations": 60}),
    "sleepy workers": Scenario(sleepy, {"rng": 12, "max_evaluations": 60}, workers=2),
    "sleepy command": Scenario(
        command(
            f"calls = os.environ.get({CALLS!r}, '')\n"
            f"if os.path.exists(calls + {SLEEP!r}): open(calls + {ASLEEP!r}, 'w').close(); time.sleep(600)"
        ),
        {"rng": 13, "max_evaluations": 30},
        workers=2,
    ),
    "benchmark": Scenario(
        partial(simulate, seconds=0.005),
        {"rng": 8, "max_evaluations": 400, "population_size": 10, "x0": [1.5] * 5},
        workers=2,
    ),
}


def start_or_go_on(name: str, run_dir: Path) -> fmnes.Result:
    scenario = SCENARIOS[name]
    if (run_dir / "snapshot.npz").exists():
        return fmnes.resume(run_dir, scenario.fun)
    # Killed before its first snapshot it has evaluated nothing, and is begun anew.
    shutil.rmtree(run_dir, ignore_errors=True)
    return scenario.run(run_dir)


# -- comparing two runs -----------------------------------------------------------------------------------


@contextlib.contextmanager
def watching() -> Iterator[list[Any]]:
    """Catches the optimizers that the loops in this block end with."""
    seen: list[Any] = []
    original = loop.build_result

    def build_result(state: RunState, *arguments: Any) -> fmnes.Result:
        seen.append(state.opt)
        return original(state, *arguments)

    loop.build_result = build_result  # type: ignore[assignment]
    try:
        yield seen
    finally:
        loop.build_result = original


def bits(value: Any) -> Any:
    """Numbers as JSON data that keeps every bit."""
    if value is None:
        return None
    if isinstance(value, dict):  # a point of named parameters
        return {name: bits(number) for name, number in value.items()}
    array = np.asarray(value)
    return [str(array.dtype), list(array.shape), array.tobytes().hex()]


def portrait(result: fmnes.Result, opt: Any = None) -> dict[str, Any]:
    """The outcome of a run without timings, as JSON data, with the state of the optimizer if there is one.

    A finished run is read, not replayed: then there is none.
    """
    found = {
        "x": bits(result.x),
        "fun": bits(result.fun),
        "nfev": result.nfev,
        "nit": result.nit,
        "n_infeasible": result.n_infeasible,
        "success": result.success,
        "message": result.message,
        "stop_reason": result.stop_reason.name if result.stop_reason else None,
        "seed": result.seed,
        "x_mean": bits(result.x_mean),
        "failures": [[f.reason, f.count, f.detail, *map(bits, f.x)] for f in result.failures],
        "history": {name: bits(column) for name, column in result.history.items() if name != "seconds"},
    }
    if opt is None:
        return found
    metadata, arrays = opt.dump()
    return {
        **found,
        "mean": bits(opt.mean),
        "sigma": bits(opt.sigma),
        "covariance": bits(opt.covariance),
        "state": json.loads(json.dumps(metadata)) | {name: bits(array) for name, array in arrays.items()},
    }


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The names of what differs; the optimizers are compared if both portraits have one."""
    if ("state" in a) != ("state" in b):
        return [name for name in a.keys() & b.keys() if a[name] != b[name]]
    return [name for name in a if a[name] != b.get(name)] + [name for name in b if name not in a]


# -- processes --------------------------------------------------------------------------------------------


class Driver:
    """A process of its own that runs a scenario."""

    def __init__(self, scenario: str, folder: Path, *hooks: str) -> None:
        """All its files are in `folder`; a driver after it in the same folder goes on with its run."""
        self.scenario, self.folder = scenario, folder
        self.run, self.out, self.calls = folder / "run", folder / "out.json", folder / "calls"
        self.tag = f"fmnes-torture-{os.getpid()}-{folder.name}"
        self._output = open(folder / "output.txt", "a+")  # noqa: SIM115 (closed in __exit__)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture", scenario, str(self.run), str(self.out), *hooks],
            cwd=ROOT,
            env={**os.environ, CALLS: str(self.calls), TAG: self.tag, "TMPDIR": str(folder)},
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self._output.close()

    def wait_for(self, calls: int, seconds: float = 240.0) -> bool:
        """Until the objective was called so often in all; False if the run has ended before."""
        end = time.monotonic() + seconds
        while count_calls(self.calls) < calls:
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < end, "the driver does not come to its evaluations"
            time.sleep(0.001)
        return True

    def kill(self, number: int = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)

    def finish(self, seconds: float = 240.0) -> dict[str, Any]:
        """What it leaves when it comes to its end by itself."""
        code = self.process.wait(seconds)
        assert code == 0, (self.folder / "output.txt").read_text()
        portrait: dict[str, Any] = json.loads(self.out.read_text())
        return portrait


def count_calls(path: Path) -> int:
    return len(read_calls(path))


def read_calls(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except FileNotFoundError:
        return []


def read_log(run: Path, where: str = "status <> 'lost'") -> list[str]:
    """The points of all finished evaluations in the log, as `note` writes them. Looks at a copy only."""
    with tempfile.TemporaryDirectory() as folder:
        for path in run.glob("evaluations.sqlite*"):
            shutil.copy(path, folder)
        if not (Path(folder) / "evaluations.sqlite").exists():
            return []
        with contextlib.closing(sqlite3.connect(Path(folder) / "evaluations.sqlite")) as log:
            try:
                rows = log.execute(f"SELECT x FROM evaluations WHERE {where}").fetchall()
            except sqlite3.OperationalError:  # killed while it was made
                return []
            return [x.hex() for (x,) in rows]


class Kill(NamedTuple):
    """What was on disk when a driver had been killed."""

    calls: list[str]
    logged: list[str]
    lost: list[str]

    @classmethod
    def of(cls, driver: Driver) -> Kill:
        """After its last child has ended: until then one may still begin an evaluation."""
        assert left_after(driver.tag, 240.0) == []
        return cls(read_calls(driver.calls), read_log(driver.run), read_log(driver.run, "status = 'lost'"))

    def repeated(self, calls: list[str]) -> list[str]:
        """Points that were in the log and were evaluated again nevertheless."""
        return sorted(set(self.logged) & set(calls[len(self.calls) :]))

    def run_twice(self, calls: list[str]) -> list[str]:
        """Points whose evaluation had begun but was not in the log, and was made again."""
        later = set(calls[len(self.calls) :])
        return sorted((set(self.calls) - set(self.logged) - set(self.lost)) & later)


def lost_from_log(kills: list[Kill], final: list[str]) -> int:
    """Evaluations that were in the log after a kill and are not in it at the end, or are in it twice."""
    gone = set[str]().union(*(kill.logged for kill in kills)) - set(final)
    return len(gone) + sum(count - 1 for count in Counter(final).values())


def processes(tag: str) -> list[int]:
    """The living processes with this mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if tag.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def is_pending(pid: int, number: int) -> bool:
    """Was a signal sent to this process which it has not got yet?"""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def left_after(tag: str, seconds: float) -> list[int]:
    end = time.monotonic() + seconds
    while (found := processes(tag)) and time.monotonic() < end:
        time.sleep(0.01)
    return found


# -- what a driver can be made to suffer ------------------------------------------------------------------


def signal_at(moment: str) -> None:
    """A signal at a step of a snapshot: "write 1 SIGKILL", "rename 2 SIGTERM" or "sync 3 SIGKILL"."""
    run_state.SNAPSHOT_SECONDS = 0.0
    step, number, what = moment.split()
    name = "replace" if step == "rename" else "fsync"
    original: Callable[..., Any] = getattr(os, name)
    # The directory is synced for its creation, for the log and for the configuration, too.
    count = -3 if step == "sync" else 0

    def act(target: Any, *arguments: Any) -> Any:
        nonlocal count
        if step == "rename":
            count += str(arguments[0]).endswith("/snapshot.npz")
        else:
            path = os.readlink(f"/proc/self/fd/{target}")
            count += ".snapshot.npz." in path if step == "write" else not path.endswith(_files.TEMPORARY)
        if count == int(number):
            setattr(os, name, original)  # once
            os.kill(os.getpid(), signal.Signals[what])
        return original(target, *arguments)

    setattr(os, name, act)


def snapshots(seconds: str) -> None:
    """So many seconds between two snapshots; 0 is one for each generation."""
    run_state.SNAPSHOT_SECONDS = float(seconds)


def limit_files(size: str) -> None:
    """No file may grow beyond so many bytes: the nearest thing to a full disk that needs no rights."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def slow_disk(seconds: str) -> None:
    """Each row of the log takes so long."""
    record = EvaluationLog.record

    def slow(log: EvaluationLog, *arguments: Any) -> None:
        time.sleep(float(seconds))
        record(log, *arguments)

    EvaluationLog.record = slow  # type: ignore[method-assign]


HOOKS: dict[str, Callable[[str], None]] = {
    "signal_at": signal_at,
    "snapshots": snapshots,
    "limit_files": limit_files,
    "slow_disk": slow_disk,
}


def main() -> None:
    name, run_dir, out, *hooks = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts with "&"
    for hook in hooks:
        act, _, argument = hook.partition("=")
        HOOKS[act](argument)
    with watching() as seen:
        result = start_or_go_on(name, Path(run_dir))
    Path(f"{out}.new").write_text(json.dumps(portrait(result, *seen)))
    os.replace(f"{out}.new", out)


if __name__ == "__main__":
    # Workers import the objectives by name, and this module is `__main__` now.
    from tests import torture

    torture.main()
