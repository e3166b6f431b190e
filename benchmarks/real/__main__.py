"""Every method on the real problems, with the same budget: rows of problem, method and seed, and a table.

    python -m benchmarks.real lens [PROBLEM ...] [--methods afm-nes cma] [--seeds 10] [--out FILE]

A row is a line of JSON in FILE, written as its run ends; rows that are there are not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from fmnes_bench.peers import PEERS, is_installed
from fmnes_bench.trials import run_all

from .methods import ASKED_FOR, METHODS
from .rows import read_rows, table
from .tasks import TASKS
from .trial import Row, run


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("problems", nargs="+", choices=TASKS, metavar="PROBLEM", help=", ".join(TASKS))
    known = {**METHODS, **ASKED_FOR}
    parser.add_argument("--methods", nargs="+", choices=known, metavar="METHOD", help=", ".join(known))
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first-seed", type=int, default=0, help="to design on others than those judged by")
    parser.add_argument("--budget", type=int, help="evaluations; by default the problem's own")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/real.jsonl"))
    parser.add_argument("--workers", type=int)
    given = parser.parse_args(arguments)

    installed = [method for method in METHODS if method not in PEERS or is_installed(method)]
    methods = given.methods or installed
    for method in methods:
        if method in METHODS and method not in installed:
            raise SystemExit(f'{method} is not installed: pip install "fmnes[bench,scipy,optuna]"')

    def key(row: Row) -> tuple[str, str, int, int]:
        return row["problem"], row["method"], row["seed"], row["budget"]

    wanted = [
        (problem, method, seed, given.budget or TASKS[problem]().budget)
        for problem in given.problems
        for method in methods
        for seed in range(given.first_seed, given.first_seed + given.seeds)
    ]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("a", encoding="utf-8") as file:

        def keep(row: Row) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        done = {key(row): row for row in read_rows(given.out)}
        rows = run_all(run, wanted, done, work=lambda key: key[3], keep=keep, workers=given.workers)
    for problem in given.problems:
        print(f"\n{problem}\n\n{table(rows, problem)}")


if __name__ == "__main__":
    main()
