"""What the default tolerances cost and give: evaluations, precision, and wrong successes.

    nice python -m benchmarks.tolerances [--runs 2] [--most 5] [--random 67] [--out FILE]

The problems are those of `benchmarks.success`, up to `--most` dimensions, those of `fmnes bench search`
(study, regions, rotated) at d = 2 and 5, README's first example without a budget, and `--random` runs of each
of the two problems of `benchmarks.success` that once had the most wrong successes: spheres of which most
evaluations fail at random. xtol and ftol are equal. A row is a line of JSON in FILE, written as its run ends;
rows that are there are not run again. The page is FILE with the ending .md.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fmnes
from fmnes_bench.search import suite

from . import success

TOLERANCES = (1e-12, 1e-9, 1e-8, 1e-6)
BUDGET = 20_000
#: Spheres with random failures, (d, share), their tolerances, and the first seed.
RANDOM = ((1, "0.95"), (2, "0.99"))
RANDOM_TOLERANCES = (1e-12, 1e-9, 1e-8)
RANDOM_SEED = 200


def run_success(group: str, d: int, variant: str, seed: int, tolerance: float) -> dict[str, Any]:
    problem = success.GROUPS[group][0](d, variant, np.random.default_rng(seed))
    options = {"rng": seed, "max_evaluations": BUDGET, "xtol": tolerance, "ftol": tolerance}
    result = fmnes.minimize(problem.fun, **options, **problem.arguments)
    correct = result.x is not None and bool(problem.correct(np.asarray(result.x), result.fun))
    return {"success": result.success, "correct": correct, "evaluations": result.nfev}


def run_search(name: str, d: int, seed: int, tolerance: float) -> dict[str, Any]:
    problem = suite.get(name, d, seed)
    bounds = None if problem.bounds is None else fmnes.Bounds(*problem.bounds)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])

    def fun(x: np.ndarray) -> float:
        return float((problem.fun(x[None]) if problem.told is None else problem.told(x[None], rng))[0])

    options = {"rng": seed, "max_evaluations": BUDGET, "xtol": tolerance, "ftol": tolerance}
    result = fmnes.minimize(fun, problem.x0, problem.sigma0, bounds=bounds, **options)
    start = problem.gap_at(problem.x0)
    size = start if np.isfinite(start) and start > 0 else 1.0
    regret = problem.gap_at(np.asarray(result.x)) / size if result.x is not None else np.inf
    return {
        "success": result.success,
        "correct": regret <= 1e-3,
        "evaluations": result.nfev,
        "regret": max(float(regret), 0.0),
    }


def run_readme(seed: int, tolerance: float) -> dict[str, Any]:
    def simulate(p: dict[str, float]) -> float:
        if p["width"] * p["height"] < 0.5:
            raise fmnes.Infeasible("mesh failed")
        return p["width"] * p["height"] * p["layers"] + (p["width"] / p["height"] - 3) ** 2

    space = {
        "width": fmnes.Real(0.1, 10, log=True),
        "height": fmnes.Real(0.1, 5),
        "layers": fmnes.Integer(1, 12),
    }
    result = fmnes.minimize(simulate, space, rng=seed, xtol=tolerance, ftol=tolerance)
    regret = result.fun / 0.5 - 1
    return {
        "success": result.success,
        "correct": regret <= 1e-3,
        "evaluations": result.nfev,
        "regret": float(regret),
    }


def run_random(d: int, share: str, seed: int, tolerance: float) -> dict[str, Any]:
    return run_success("random failures", d, share, 1000 * seed + 10 * d + int(100 * float(share)), tolerance)


def wanted(runs: int, most: int, random: int) -> list[tuple[Any, ...]]:
    """(set, *arguments) of each run, the tolerances of one problem together."""
    keys: list[tuple[Any, ...]] = [("readme", seed) for seed in range(1, 6)]
    searched = [name for group in ("study", "regions", "rotated") for name in suite.GROUPS[group]]
    keys += [("search", name, d, 100 + i) for i in range(runs) for d in (2, 5) for name in searched]
    keys += [("success", *key) for key in success.wanted(runs, most, success.FIRST_SEED_FEW)]
    found = [(*key, tolerance) for key in keys for tolerance in TOLERANCES]
    seeds = range(RANDOM_SEED, RANDOM_SEED + random)
    found += [("random", *cell, seed, t) for seed in seeds for cell in RANDOM for t in RANDOM_TOLERANCES]
    return found


RUN = {"readme": run_readme, "search": run_search, "success": run_success, "random": run_random}
TITLES = {
    "readme": "README's first example",
    "search": "search benchmark: study, regions, rotated; d = 2, 5",
    "success": "success table",
    "random": "spheres, 95 % (d = 1) or 99 % (d = 2) fail at random",
}


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The table of all rows."""
    return f"""# Default tolerances

Made by `python -m benchmarks.tolerances`: the default method with `xtol` and `ftol` set to the same value, at
most {BUDGET:,} evaluations, {len(rows):,} runs. *Evaluations* is the geometric mean. *To 1e-3* and *to 1e-8*:
runs that reach this regret. *Correct* is what [the page on success](success.md) calls so, or a regret of at
most 1e-3. *Wrong*: `success` is claimed for an answer that is not correct.

The default is 1e-8: it claims no wrong success either, reaches a regret of 1e-8 as often as 1e-12, and needs
fewer evaluations than 1e-9, except where most evaluations fail at random. 1e-6 loses digits. For all digits
of a value pass `xtol=1e-12, ftol=1e-12`, for a rough answer `xtol=1e-6, ftol=1e-6`. The runs are on other
seeds than those of [the page on success](success.md), which has the default.

{table(rows)}
"""


def table(rows: Sequence[dict[str, Any]]) -> str:
    head = [
        "problems",
        "tolerance",
        "runs",
        "evaluations",
        "to 1e-3",
        "to 1e-8",
        "correct",
        "success",
        "wrong",
    ]
    lines = [head, ["---"] * len(head)]
    for kind, title in TITLES.items():
        for tolerance in TOLERANCES:
            own = [row for row in rows if row["key"][0] == kind and row["key"][-1] == tolerance]
            if not own:
                continue
            mean = np.exp(np.mean([np.log(row["evaluations"]) for row in own]))
            shares = ["", ""]
            if "regret" in own[0]:
                shares = [str(sum(row["regret"] <= gap for row in own)) for gap in (1e-3, 1e-8)]
            counts = [
                sum(row["correct"] for row in own),
                sum(row["success"] for row in own),
                sum(row["success"] and not row["correct"] for row in own),
            ]
            lines.append(
                [title, f"{tolerance:.0e}", str(len(own)), f"{mean:,.0f}", *shares, *map(str, counts)]
            )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2, help="of each problem")
    parser.add_argument(
        "--most", type=int, default=5, help="dimensions of the problems of benchmarks.success"
    )
    parser.add_argument("--random", type=int, default=67, help="runs of each problem with random failures")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/tolerances.jsonl"))
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {tuple(row["key"]) for row in rows}
    with given.out.open("a", encoding="utf-8") as file:
        for key in wanted(given.runs, given.most, given.random):
            if key not in done:
                row = {"key": key, **RUN[key[0]](*key[1:])}
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
    given.out.with_suffix(".md").write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
