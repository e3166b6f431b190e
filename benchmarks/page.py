"""What a report costs, and what a watcher costs the run it watches.

python -m benchmarks.page            the report of 10^5 evaluations; runs with and without a watcher, in turn
python -m benchmarks.page --toy      the same, small
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import fmnes

PARAMETERS = {f"p{i}": fmnes.Real(-1, 1) for i in range(8)}


def cheap(point: dict[str, float]) -> float:
    if point["p0"] + point["p1"] < 0.3:
        raise fmnes.Infeasible("sum too small" if point["p0"] > 0 else "p0 negative")
    return sum((value - 0.2) ** 2 for value in point.values())


def busy(point: dict[str, float]) -> float:
    """About a hundredth of a second of work."""
    total = 0.0
    for i in range(200_000):
        total += i * 1e-12
    return cheap(point) + 0 * total


def report(evaluations: int) -> tuple[float, float, float]:
    """Seconds in all, of the processor, and megabytes."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "big.run"
        fmnes.minimize(
            cheap,
            PARAMETERS,
            rng=1,
            max_evaluations=evaluations,
            run_dir=run,
            restarts=1000,
            second_look=False,
        )
        began, used = time.monotonic(), os.times()
        subprocess.run([sys.executable, "-m", "fmnes", "report", str(run)], check=True, capture_output=True)
        seconds, now = time.monotonic() - began, os.times()
        spent = now.children_user + now.children_system - used.children_user - used.children_system
        return seconds, spent, (run / "report.html").stat().st_size / 1e6


def run_once(evaluations: int, workers: int, watched: bool) -> tuple[float, float]:
    """Seconds of a run on all cores, and those of the processor that its watcher took meanwhile.

    The watcher is asked each second, as a browser does.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "one.run"
        over = threading.Event()
        watcher = None
        if watched:
            watcher = subprocess.Popen(
                [sys.executable, "-m", "fmnes", "watch", str(run)], stdout=subprocess.PIPE, text=True
            )
            assert watcher.stdout is not None
            address = watcher.stdout.readline().split()[-1]
            threading.Thread(target=look, args=(address, over), daemon=True).start()
        try:
            before = processor_seconds(watcher)
            began = time.monotonic()
            fmnes.minimize(
                busy,
                PARAMETERS,
                rng=1,
                max_evaluations=evaluations,
                run_dir=run,
                workers=workers,
                restarts=1000,
            )
            return time.monotonic() - began, processor_seconds(watcher) - before
        finally:
            over.set()
            if watcher is not None:
                watcher.kill()
                watcher.communicate()


def processor_seconds(process: subprocess.Popen[str] | None) -> float:
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def look(address: str, over: threading.Event) -> None:
    revision = 0
    while not over.wait(1.0):
        try:
            with urllib.request.urlopen(f"{address}news?{revision}", timeout=30) as answer:
                revision = json.load(answer)["revision"]
        except OSError:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true")
    toy = parser.parse_args().toy
    evaluations = 2_000 if toy else 100_000
    seconds, spent, size = report(evaluations)
    print(
        f"report of {evaluations:,} evaluations: {seconds:.1f} s ({spent:.1f} s of processor), {size:.2f} MB"
    )
    workers = os.cpu_count() or 1
    rounds, per_run = (2, 200) if toy else (3, 20_000)
    pairs = [(run_once(per_run, workers, False), run_once(per_run, workers, True)) for _ in range(rounds)]
    ratios = [watched / alone for (alone, _), (watched, _) in pairs]
    shares = [used / (workers * watched) for _, (watched, used) in pairs]
    alone = statistics.median(first for (first, _), _ in pairs)
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    print(
        f"{rounds} pairs of runs with {workers} workers on {workers} cores, {alone:.1f} s each: watched "
        f"{statistics.mean(ratios) - 1:+.1%} ± {error:.1%} (standard error); the watcher took "
        f"{statistics.mean(shares):.2%} of the processors"
    )


if __name__ == "__main__":
    main()
