"""How much of a run's time its snapshots take, and how large they are, where the objective is quick.

    python -m benchmarks.snapshots [--seconds 20] [--out docs/benchmarks/snapshots.md]

The last row has a thousand different reasons of failure, which the snapshots must carry along.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import fmnes
from fmnes.run.state import RunState, Snapshots
from fmnes_bench.trials import table

ROWS = (("fm-nes", 10, False), ("fm-nes", 100, False), ("fm-nes", 1000, False), ("cr-fm-nes", 200, True))
HEAD = (
    "method",
    "d",
    "reasons",
    "evaluations",
    "seconds",
    "snapshots",
    "share of time",
    "largest (MB)",
    "log (MB)",
)


class Timed(Snapshots):
    """Measures what it writes."""

    written = 0
    seconds = 0.0
    largest = 0

    def take(self, state: RunState) -> None:
        began = time.monotonic()
        due = began >= self._due
        super().take(state)
        if due:
            Timed.written += 1
            Timed.seconds += time.monotonic() - began
            Timed.largest = max(Timed.largest, (self._directory.path / "snapshot.npz").stat().st_size)


def measure(method: str, d: int, failing: bool, seconds: float) -> tuple[Any, ...]:
    calls = 0

    def fun(x: Any) -> float:
        nonlocal calls
        calls += 1
        if failing and calls % 3:
            raise fmnes.Infeasible(f"element {calls % 1009} inverted")
        return float(np.vdot(x, x))

    Timed.written, Timed.seconds, Timed.largest = 0, 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        began = time.monotonic()
        result = fmnes.minimize(
            fun, [1.0] * d, 0.5, method=method, rng=1, max_seconds=seconds, xtol=None, ftol=None, run_dir=run
        )
        took = time.monotonic() - began
        log = (run / "evaluations.sqlite").stat().st_size
    return (
        method,
        d,
        "1,009" if failing else "none",
        result.nfev,
        f"{took:.1f}",
        Timed.written,
        f"{Timed.seconds / took:.1%}",
        f"{Timed.largest / 1e6:.2f}",
        f"{log / 1e6:.1f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import fmnes.run.session as session

    session.Snapshots = Timed  # type: ignore[misc]
    rows = [measure(*row, options.seconds) for row in ROWS]
    lines = table(HEAD, rows)
    command = f"python -m benchmarks.snapshots --seconds {options.seconds:g}"
    head = f"# The cost of snapshots\n\n`{command}`, OPENBLAS_NUM_THREADS=1, on a local disk.\n\n"
    text = head + "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
