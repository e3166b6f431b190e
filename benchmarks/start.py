"""Processor time until something has started: an import, a first evaluation, a command; beside others.

    python -m benchmarks.start [--runs 15] [--out docs/benchmarks/start.md]

Seconds of user and system time of the process and all that it has started, the median of the runs, which take
turns; the byte code is there already. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

_RUN = """
import fmnes
def fun(x):
    return float(x @ x)
fmnes.minimize(fun, [1.0, 1.0], 0.5, rng=1, max_evaluations={workers}, workers={workers})
"""
#: What is started, and Python's arguments for it.
ROWS = {
    "`python`": ["-c", "pass"],
    "`import numpy`": ["-c", "import numpy"],
    "`import fmnes`": ["-c", "import fmnes"],
    "`from fmnes import minimize`": ["-c", "from fmnes import minimize"],
    "`from fmnes import *`": ["-c", "from fmnes import *"],
    "what an fmnes worker loads": ["-c", "import fmnes.evaluation.workers.messages"],
    "`minimize`, its first evaluation": ["-c", _RUN.format(workers=1)],
    "the same, `workers=2` (five processes)": ["-c", _RUN.format(workers=2)],
    "`fmnes --version`": ["-m", "fmnes", "--version"],
    "`fmnes --help`": ["-m", "fmnes", "--help"],
    "`fmnes minimize --help`": ["-m", "fmnes", "minimize", "--help"],
    "`fmnes show --help`": ["-m", "fmnes", "show", "--help"],
    "`import scipy.optimize`": ["-c", "import scipy.optimize"],
    "`import cma`": ["-c", "import cma"],
    "`import optuna`": ["-c", "import optuna"],
}


def start(arguments: list[str]) -> float | None:
    """Its seconds; None if it cannot be started here."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = _used()
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True)
    return None if done.returncode else _used() - before


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    installed = [what for what, arguments in ROWS.items() if start(arguments) is not None]
    seconds: dict[str, list[float]] = {what: [] for what in installed}
    for _ in range(options.runs):
        for what in installed:
            seconds[what].append(start(ROWS[what]) or 0.0)
    numpy = median(seconds["`import numpy`"])
    lines = ["| command | processor time (s) | times `import numpy` |", "|---|---|---|"]
    for what, found in seconds.items():
        lines.append(f"| {what} | {median(found):.3f} | {median(found) / numpy:.2f} |")
    head = f"""# The cost of starting

`python -m benchmarks.start --runs {options.runs}`: user and system time of the process and of all its child
processes, the median of interleaved runs, with OPENBLAS_NUM_THREADS=1 and existing byte code.
`import fmnes` loads names on first use, so compare `from fmnes import minimize` with the other packages.

"""
    text = head + "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
