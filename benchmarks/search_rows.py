"""Are the kept rows of the search benchmark reproducible? Runs a random sample of them again and compares.

    python -m benchmarks.search_rows [--folder docs/benchmarks/search] [--sample 40] [--methods cma-es]

Exit status 1 if a row differs. Evaluations are compared exactly: the runs are pinned to one BLAS kernel and
one thread (`fmnes_bench.trials.PINNED`). Runs are chaotic: where a library rounds differently, some rows need
a few percent more or fewer evaluations. The versions of both sides are printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fmnes_bench.search.runs import WHAT, Key, Trial, read_trials, run_trial
from fmnes_bench.trials import PINNED, run_all


def sample(trials: Sequence[Trial], size: int, seed: int) -> list[Trial]:
    """Distinct trials, chosen at random; all of them if there are no more."""
    if size >= len(trials):
        return list(trials)
    chosen = np.random.default_rng(seed).choice(len(trials), size, replace=False)
    return [trials[i] for i in sorted(chosen)]


def differs(kept: Trial, made: Trial) -> bool:
    """The gap is kept with three digits, so evaluations and the stop reason are compared."""
    return (kept.first, kept.evaluations, kept.said, kept.stop) != (
        made.first,
        made.evaluations,
        made.said,
        made.stop,
    )


def blas() -> str:
    found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"NumPy {np.__version__}, {found['name']} {found['version']}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("docs/benchmarks/search"))
    parser.add_argument("--what", choices=WHAT, default="evaluations")
    parser.add_argument("--methods", nargs="+", help="all by default")
    parser.add_argument("--dimensions", nargs="+", type=int, help="all by default")
    parser.add_argument("--sample", type=int, default=40, help="rows")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--kernel", default=PINNED["OPENBLAS_CORETYPE"], help="of OpenBLAS, for the new runs")
    parser.add_argument("--workers", type=int)
    given = parser.parse_args(arguments)
    kept = [
        trial
        for trial in read_trials(given.folder)
        if trial.key.what == given.what
        and (not given.methods or trial.key.method in given.methods)
        and (not given.dimensions or trial.key.d in given.dimensions)
    ]
    chosen = sample(kept, given.sample, given.seed)
    wanted = [trial.key for trial in chosen]

    def work(key: Key) -> float:
        return key.d**1.5

    PINNED["OPENBLAS_CORETYPE"] = given.kernel
    again = run_all(run_trial, wanted, {}, work=work, workers=given.workers)
    wrong: Counter[str] = Counter()
    for old, new in zip(chosen, again, strict=True):
        if differs(old, new):
            wrong[old.key.method] += 1
            print(*old.key[1:], f"kept {old.evaluations} {old.stop}", f"now {new.evaluations} {new.stop}")
    print(f"{sum(wrong.values())} of {len(chosen)} rows differ {dict(wrong)}; here {blas()}")
    noted = json.loads((given.folder / "configuration.json").read_text(encoding="utf-8"))
    print("kept with", {name: noted[name] for name in noted if name not in ("format", "version")})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
