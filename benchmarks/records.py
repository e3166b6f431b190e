"""What it costs to keep evaluations and to read them again: `show`, `read_run`, `export`.

    python -m benchmarks.records [--sizes 100000 1000000] [--tries 3] [--out docs/benchmarks/records.md]

Each step is a process of its own, from its start to its end, imports included; of several tries the quickest.
The largest run is only shown and opened: what reads all of it takes ten times as long for ten times as many.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fmnes.outcome import Outcome, infeasible
from fmnes.storage.directory import RunDirectory
from fmnes.storage.log import EvaluationLog
from fmnes_bench.trials import table

D = 10
OUTPUTS = {"mass": 3.1, "stress": 2.5e8, "iterations": 12}
CONFIG = {"settings": {}, "objective": {"kind": "function", "module": "bench", "name": "f"}}
READ = "import sys, fmnes; run = fmnes.read_run(sys.argv[1])"
STEPS = {
    "`fmnes show`": ["-m", "fmnes", "show", "RUN"],
    "`read_run`": ["-c", READ, "RUN"],
    "`.evaluations`": ["-c", f"{READ}; run.evaluations", "RUN"],
    "`.to_pandas()`": ["-c", f"{READ}; run.evaluations.to_pandas()", "RUN"],
    "export csv": ["-m", "fmnes", "export", "RUN", "--output", "RUN.csv"],
    "export parquet": ["-m", "fmnes", "export", "RUN", "--output", "RUN.parquet"],
}


def evaluations(n: int, outputs: dict[str, Any] | None) -> Iterator[Any]:
    """A tenth of them fail, for one of seven reasons."""
    x = np.random.default_rng(1).normal(size=(n, D))
    for i in range(n):
        outcome = Outcome("value", float(x[i] @ x[i]), outputs=outputs)
        if i % 10 == 0:
            outcome = infeasible(f"mesh failed {i % 7}", fault="ValueError", detail="x" * 200)
        yield (0, i // 10, i % 10, 0, 0), outcome, x[i], 1e9 + i * 0.01, 0.01


def write_cost(folder: Path, outputs: dict[str, Any] | None, n: int = 20_000) -> float:
    """Microseconds of CPU for one `record`, as a run does it."""
    best = np.inf
    for trial in range(3):
        log = EvaluationLog(folder / f"cost-{bool(outputs)}-{trial}")
        rows = list(evaluations(n, outputs))
        began = time.process_time()
        for row in rows:
            log.record(*row)
        best = min(best, time.process_time() - began)
        log.close()
    return 1e6 * best / n


def make(path: Path, n: int, outputs: dict[str, Any] | None) -> None:
    with RunDirectory.create(path, CONFIG) as directory:
        rows = evaluations(n, outputs)
        while some := list(islice(rows, 10_000)):
            directory.log.record_many(some)


def measure(step: list[str], run: Path, times: int) -> tuple[float, float, float]:
    """Seconds, seconds of CPU, and MB of memory, of the quickest of so many tries."""
    tries = []
    for _ in range(times):
        began = time.perf_counter()
        command = [sys.executable, *(word.replace("RUN", str(run)) for word in step)]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{command} failed")
        child.returncode = 0
        tries.append((time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3))
    return min(tries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = {bool(outputs): write_cost(folder, outputs) for outputs in (None, OUTPUTS)}
        for n in options.sizes:
            largest = n > 200_000
            for outputs in (None,) if largest else (None, OUTPUTS):
                run = folder / f"run-{n}-{bool(outputs)}"
                make(run, n, outputs)
                size = (run / "evaluations.sqlite").stat().st_size / 1e6
                for step, words in list(STEPS.items())[: 2 if largest else None]:
                    wall, cpu, memory = measure(words, run, options.tries)
                    kind = [f"{n:,}", "three" if outputs else "none", f"{size:.0f}"]
                    rows.append([*kind, step, f"{wall:.2f}", f"{cpu:.2f}", f"{memory:.0f}"])
                    print(rows[-1], file=sys.stderr)
    sizes = " ".join(map(str, options.sizes))
    head = ["evaluations", "outputs", "log (MB)", "step", "seconds", "of CPU", "memory (MB)"]
    plain, more = (f"{costs[outputs]:.0f} µs" for outputs in (False, True))
    command = f"python -m benchmarks.records --sizes {sizes} --tries {options.tries}"
    lines = [
        "# The cost of records",
        f"`{command}`, d = {D}, on a local disk.",
        f"Each step runs in its own process, including imports. Writing one evaluation to the log takes "
        f"{plain} of processor time, with three further outputs {more}.",
        "\n".join(table(head, rows)) + "\n",
    ]
    text = "\n\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
