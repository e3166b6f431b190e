"""What a run survives and what that costs: python -m benchmarks.torture [KILLS], from the repository's root.

Drivers with two workers and an objective of 5 ms are killed with kill -9 at random moments, two of them in a
row for each run; what is left is resumed to the end and compared with a run that nobody has killed. Then the
time that the log and the workers take for one evaluation.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fmnes
from tests import torture
from tests.torture import Driver, Kill, differences, left_after

NAME = "benchmark"
#: Kills of one run, one after the other.
IN_A_ROW = 2


def survive(kills: int, rng: random.Random, folder: Path) -> None:
    scenario = torture.SCENARIOS[NAME]
    wanted = scenario.reference()
    took = measure(folder / "measured", wanted)
    began = time.monotonic()
    totals = dict.fromkeys(
        (
            "kills",
            "before the first evaluation",
            "runs",
            "evaluations in the log when killed",
            "of these lost from the log",
            "of these evaluated again",
            "evaluations run twice",
            "most of them after one kill",
            "kills after which more than 2 did",
            "final states that differ in any byte",
            "processes left behind",
        ),
        0,
    )
    while totals["kills"] < kills:
        place = folder / f"run-{totals['runs']}"
        place.mkdir()
        found, left = [], 0
        for _ in range(min(IN_A_ROW, kills - totals["kills"])):
            with Driver(NAME, place) as driver:
                time.sleep(rng.uniform(0.0, took))
                if driver.process.poll() is None:
                    driver.kill()
                    left += len(left_after(driver.tag, 3.0))
                    found.append(Kill.of(driver))
        os.environ[torture.CALLS] = str(driver.calls)
        with torture.watching() as seen:
            result = torture.start_or_go_on(NAME, driver.run)
        del os.environ[torture.CALLS]
        calls = torture.read_calls(driver.calls)
        twice = [len(kill.run_twice(calls)) for kill in found]
        totals["kills"] += len(found)
        totals["before the first evaluation"] += sum(not kill.calls for kill in found)
        totals["runs"] += 1
        totals["evaluations in the log when killed"] += sum(len(kill.logged) for kill in found)
        totals["of these lost from the log"] += torture.lost_from_log(found, torture.read_log(driver.run))
        totals["of these evaluated again"] += sum(len(kill.repeated(calls)) for kill in found)
        totals["evaluations run twice"] += sum(twice)
        totals["most of them after one kill"] = max([totals["most of them after one kill"], *twice])
        totals["kills after which more than 2 did"] += sum(count > scenario.workers for count in twice)
        different = differences(torture.portrait(result, *seen), wanted)
        if different:
            print("differs:", *different)
        totals["final states that differ in any byte"] += bool(different)
        totals["processes left behind"] += left + len(left_after(driver.tag, 1.0))
        shutil.rmtree(place)
    print(f"kill -9 of a driver, 2 workers, 5 ms an evaluation, {wanted['nfev']} evaluations a run:")
    for what, count in totals.items():
        print(f"  {what:40}{count:8}")
    print(f"  {'seconds':40}{time.monotonic() - began:8.0f}")


def measure(folder: Path, wanted: dict[str, Any]) -> float:
    """The seconds that a driver takes when nobody kills it; and it must be right, too."""
    folder.mkdir()
    began = time.monotonic()
    with Driver(NAME, folder) as driver:
        assert differences(driver.finish(), wanted) == []
    return time.monotonic() - began


def square(x: Any) -> float:
    return float(np.dot(x, x))


def seconds(evaluations: int, clock: Callable[[], float] = time.perf_counter, **settings: Any) -> float:
    began = clock()
    result = fmnes.minimize(
        square, [1.0] * 20, 1.0, rng=1, xtol=None, ftol=None, max_evaluations=evaluations, **settings
    )
    assert result.nfev == evaluations
    return clock() - began


def overheads(folder: Path, evaluations: int = 5_000, repeats: int = 5) -> None:
    """In turns, so that a busy moment of the machine meets them all."""
    log, busy, workers = [], [], []
    for i in range(repeats):
        plain = seconds(evaluations)
        log.append(seconds(evaluations, run_dir=folder / f"log-{i}") - plain)
        clock = time.process_time
        busy.append(seconds(evaluations, clock, run_dir=folder / f"busy-{i}") - seconds(evaluations, clock))
        started = seconds(50, workers=2)  # starting them is not part of it
        workers.append(seconds(evaluations, workers=2) - started - plain)
    print(f"\noverhead of one evaluation, d = 20, median and least of {repeats}:")
    rows = {"the log (wanted: 0.1)": log, "the log, processor time": busy, "2 workers (wanted: 0.5)": workers}
    for name, times in rows.items():
        median, least = (1e3 * value / evaluations for value in (statistics.median(times), min(times)))
        print(f"  {name:40}{median:8.3f} ms  (least {least:.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", nargs="?", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, NumPy {np.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.kills:
            survive(arguments.kills, random.Random(arguments.seed), Path(folder))
        overheads(Path(folder))


if __name__ == "__main__":
    main()
