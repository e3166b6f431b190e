"""How far a run scales: python -m benchmarks.scale [--full] [--out FOLDER], from the repository's root.

Real searches on real functions, with workers that are simulated: each evaluation takes a time drawn from a
long-tailed distribution, nodes are lost, and the one driver takes for each task what it was measured to take
here, with a run directory (`--driver`: only that). Times are in mean evaluations.

Without `--full` a taste of it in half a minute, which keeps nothing. With it finished trials are kept in
`--out`: the same command goes on where it was stopped; `--parts`, `--problems` and `--seeds` make less of it.
The tables are those of docs/benchmarks/scale.md.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fmnes
from fmnes import Optimizer
from fmnes.outcome import EvaluationId
from fmnes.search.overlap import OverlapScheduler
from fmnes_bench.search import suite
from fmnes_bench.trials import Lines, read_lines, run_all

Array = NDArray[np.float64]
#: f − minimum at which a trial has reached its target.
GAP = 1e-6
#: In the slow region, half of the space with the optimum on its edge, evaluations take so many times as long.
SLOW = 5.0
#: So many mean evaluations a lost node is away.
AWAY = 10.0


class Case(NamedTuple):
    """One trial: all that it depends on."""

    problem: str
    d: int
    workers: int
    population: int
    overlap: float
    scheme: str
    """ "first": a generation ends with its first λ answers; "own": with those of its own λ points."""
    spread: float
    """σ of the evaluations' log-normal times."""
    region: str
    """ "even": times do not depend on the point; "slow": they do."""
    lost: float
    """The share of evaluations that end with the loss of their node."""
    driver: float
    """What the driver takes for a task, in mean evaluations."""
    seed: int


class Trial(NamedTuple):
    case: Case
    reached: bool
    time: float
    """In mean evaluations."""
    evaluations: int
    generations: int
    utilisation: float
    """The share of the workers' time that went into evaluations that were not lost."""


class Own(OverlapScheduler):
    """The other way: a generation waits for its own points; later ones are the first of the next."""

    _members: tuple[int, set[Any]] = (-1, set())

    def _close_if_complete(self) -> bool:
        block = self._block or self._draw()
        generation = self._opt.generation
        if self._members[0] != generation:
            known = [*self.out, *self._answered]
            older = sorted(name for name in known if name.generation < generation)[: block.size]
            slots = range(block.size - len(older))
            fresh = (EvaluationId(self._opt.restart, generation, slot) for slot in slots)
            self._members = generation, {*older, *fresh}
        own = self._members[1]
        if len(self._answered) < block.size or not own <= self._answered.keys():
            return False
        rest = {name: self._answered.pop(name) for name in [*self._answered] if name not in own}
        closed = super()._close_if_complete()
        self._answered = {name: (given._replace(z=None), *more) for name, (given, *more) in rest.items()}
        return closed


# -- one trial --------------------------------------------------------------------------------------------


def run(*key: Any) -> Trial:
    """In virtual time: a heap of the evaluations under way, and a driver that does one thing at a time."""
    case = Case(*key)
    problem = suite.get(case.problem, case.d)
    opt = Optimizer(problem.x0, problem.sigma0, population_size=case.population, rng=case.seed)
    flow = (Own if case.scheme == "own" else OverlapScheduler)(opt, case.overlap)
    rng = np.random.default_rng([case.seed, 14])
    direction = rng.standard_normal(case.d)
    known: dict[int, tuple[Array, Array, NDArray[np.bool_]]] = {}
    under_way: list[tuple[float, int, Any, float, float, bool]] = []
    clock = busy = 0.0
    count = 0
    free = case.workers
    back: list[float] = []  # when nodes that are away come back

    def of_generation(generation: int) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Values, times and losses of all the points that it may hand out."""
        if generation not in known:
            assert flow._block is not None
            x = flow._block.x
            times = np.exp(case.spread * rng.standard_normal(len(x)) - case.spread**2 / 2)
            if case.region == "slow":
                there = (x - problem.optimum) @ direction < 0
                times *= np.where(there, SLOW, 1.0) * 2 / (1 + SLOW)
            known[generation] = problem.fun(x), times, rng.random(len(x)) < case.lost
            known.pop(generation - 100, None)
        return known[generation]

    def ended(reached: bool) -> Trial:
        share = busy / (case.workers * clock)
        return Trial(case, reached, clock, opt.evaluations, opt.generation, share)

    while True:
        while back and back[0] <= clock:
            heapq.heappop(back)
            free += 1
        while free and (found := flow.take()) is not None:
            name, _ = found
            values, times, losses = of_generation(name.generation)
            clock += case.driver / 2
            count += 1
            lost = bool(losses[name.slot])
            losses[name.slot] = False  # its next try is not
            seconds = float(times[name.slot]) * (rng.random() if lost else 1.0)
            heapq.heappush(under_way, (clock + seconds, count, name, float(values[name.slot]), seconds, lost))
            free -= 1
        if not under_way:
            clock = heapq.heappop(back)
            free += 1
            continue
        end, _, name, value, seconds, lost = heapq.heappop(under_way)
        clock = max(clock, end) + case.driver / 2
        if lost:
            heapq.heappush(back, end + AWAY)
            flow.give_back(name)
            continue
        free += 1
        busy += seconds
        complete = flow.tell(name, value)
        if value <= problem.minimum + GAP:
            return ended(True)
        if complete and (opt.evaluations > limit(case) or not 1e-12 < opt.sigma < 1e12):
            return ended(False)


def limit(case: Case) -> int:
    """Evaluations after which a trial is given up."""
    return 1000 * max(case.population, 10 * case.d)


def work(case: Case) -> float:
    """About the evaluations that a trial takes, for the order of the trials."""
    fails = 3 if case.problem.startswith("a") else 1
    return fails * max(case.population, 20) * (50 if case.problem == "sphere" else 6 * case.d + 60)


# -- the driver ---------------------------------------------------------------------------------------------


def measure_driver(d: int, population: int, overlap: float, evaluations: int = 3000) -> float:
    """Seconds of the driver's processor for one evaluation: drawing, sending, logging, updating.

    With real workers and a run directory; the workers' own time is not in it, nor is waiting.
    """
    with tempfile.TemporaryDirectory() as folder:
        began: list[tuple[float, int]] = []

        def note(view: fmnes.View) -> None:
            began.append((time.process_time(), view.evaluations))

        fmnes.minimize(
            sphere,
            np.full(d, 3.0),
            2.0,
            population_size=population,
            overlap=overlap,
            workers=2,
            max_evaluations=evaluations + 2 * population,
            xtol=None,
            ftol=None,
            second_look=False,
            rng=1,
            run_dir=Path(folder) / "run",
            callback=note,
        )
        (first, before), (last, after) = began[0], began[-1]  # the first generation starts the workers
        return (last - first) / (after - before)


def sphere(x: Array) -> float:
    return float(x @ x)


def measured_driver() -> dict[str, float]:
    """Of each (d, λ, overlap) milliseconds a task, the least of three."""
    found = {}
    for d, population, overlap in ((10, 200, 0.0), (10, 200, 0.5), (40, 1000, 0.0), (40, 1000, 0.5)):
        seconds = min(measure_driver(d, population, overlap) for _ in range(3))
        found[f"d = {d}, λ = {population}, overlap = {overlap:g}"] = round(1000 * seconds, 3)
    return found


# -- which trials -------------------------------------------------------------------------------------------


def cases(
    problems: str,
    workers: int,
    options: str,
    *,
    spread: float = 0.5,
    region: str = "even",
    lost: float = 0.0,
    driver: float = 0.0,
    seeds: int = 4,
) -> list[Case]:
    """options: "λ/workers:overlap", with "own" behind it for that scheme."""
    made = []
    for problem in problems.split():
        name, _, d = problem.partition("-")
        for option in options.split():
            ratio, overlap, *scheme = option.split(":")
            population = max(int(float(ratio) * workers), 10)
            population += population % 2
            how = (population, float(overlap), scheme[0] if scheme else "first")
            for seed in range(seeds):
                made.append(Case(name, int(d), workers, *how, spread, region, lost, driver, seed))
    return made


MAIN = "sphere-10 rosenbrock-10 aellh-10 ellipsoid-40"
SMALL = "sphere-10 rosenbrock-10 aellh-10"
PARTS = ("waiting", "schemes", "tails", "region", "lost", "workers", "population", "driver", "hard")


def taste(task: float) -> list[Case]:
    """task: seconds that the driver takes for one."""
    found = cases("sphere-10 aellh-10", 100, "1:0 1:0.5 1:1 1:1:own", seeds=2)
    found += cases("sphere-10", 100, "1:0 1:0.5", seeds=2, spread=1.0)
    found += cases("sphere-10", 100, "1:0 1:0.5", seeds=2, region="slow")
    found += cases("sphere-10", 100, "1:0 1:0.5", seeds=2, lost=0.01)
    for seconds in (0.1, 1.0):
        found += cases("sphere-10", 1000, "1:0.5", seeds=1, driver=task / seconds)
    return found


def study(part: str, task: float, seeds: int) -> list[Case]:
    """The trials of one part of it."""
    found = []
    if part == "waiting":
        found = cases(
            MAIN, 1000, "0.5:0 0.5:0.5 0.5:1 1:0 1:0.25 1:0.5 1:1 2:0 2:0.25 2:0.5 2:1", seeds=seeds
        )
    elif part == "schemes":
        found = cases(MAIN, 1000, "1:0 1:0.5 1:1 2:0 2:0.5 2:1", seeds=seeds)
        found += cases(MAIN, 1000, "1:0.5:own 1:1:own 2:0.5:own 2:1:own", seeds=seeds)
    elif part == "tails":
        found = cases(MAIN, 1000, "1:0 1:0.5 1:1 2:0 2:0.5", spread=1.0, seeds=seeds)
    elif part == "region":
        found = cases(SMALL, 1000, "1:0 1:0.25 1:0.5 1:1", region="slow", seeds=seeds)
    elif part == "lost":
        found = cases(SMALL, 1000, "1:0 1:0.5 1:1", lost=0.01, seeds=seeds)
    elif part == "workers":
        for workers in (1, 4, 16, 64, 256, 1000):
            found += cases("rosenbrock-10 aellh-10 ellipsoid-40", workers, "1:0 1:0.5", seeds=min(seeds, 3))
        found += cases("rosenbrock-10 ellipsoid-40", 4000, "1:0 1:0.5", seeds=min(seeds, 2))
        found += cases("rosenbrock-10", 10_000, "1:0 1:0.5", seeds=min(seeds, 2))
    elif part == "population":
        ratios = "0.05:1 0.1:1 0.2:1 0.5:1 1:0.5 2:0.5"
        found = cases("rosenbrock-10 aellh-10 ellipsoid-40", 1000, ratios, seeds=min(seeds, 3))
        found += cases("rosenbrock-10 ellipsoid-40", 1000, "4:0.25", seeds=min(seeds, 3))
    elif part == "driver":
        for workers in (100, 1000, 10_000):
            for seconds in (0.1, 1.0, 10.0):
                found += cases("sphere-10", workers, "1:0.5", driver=task / seconds, seeds=min(seeds, 2))
    elif part == "hard":
        found = cases("activeh-40", 1000, "1:0 1:0.5 1:1 2:0 2:0.5", seeds=min(seeds, 3))
    return found


# -- keeping them -------------------------------------------------------------------------------------------

HEADER = ",".join([*Case._fields, *Trial._fields[1:]])


def as_line(trial: Trial) -> str:
    numbers = f"{trial.reached:d},{trial.time:.6g},{trial.evaluations},{trial.generations}"
    return ",".join([*map(repr_of, trial.case), numbers, f"{trial.utilisation:.4f}"])


def repr_of(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def of_fields(fields: list[str]) -> Trial:
    n = len(Case._fields)
    kinds = (str, int, int, int, float, str, float, str, float, float, int)
    case = Case(*(kind(field) for kind, field in zip(kinds, fields[:n], strict=True)))
    reached, taken, evaluations, generations, utilisation = fields[n:]
    numbers = (float(taken), int(evaluations), int(generations), float(utilisation))
    return Trial(case, reached == "1", *numbers)


def driver_of(folder: Path) -> dict[str, float]:
    """As measured when the folder was begun: its trials depend on it."""
    path = folder / "driver.json"
    if not path.exists():
        path.write_text(json.dumps(measured_driver(), indent=2) + "\n", encoding="utf-8")
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--driver", action="store_true", help="measure the driver, and nothing else")
    parser.add_argument("--report", action="store_true", help="the tables of what is kept in --out")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--parts", default=",".join(PARTS), help="of --full: some of %(default)s")
    parser.add_argument("--problems", default="", help="of --full: only some, such as sphere,aellh")
    parser.add_argument("--seeds", type=int, default=5, help="of --full, at most so many of a case")
    parser.add_argument("--out", type=Path, help="a folder; by default nothing is kept")
    options = parser.parse_args()
    if options.driver:
        for name, milliseconds in measured_driver().items():
            print(f"{name}: {milliseconds:.3f} ms of the driver a task, with a run directory")
        return
    from benchmarks.scale_report import report

    if options.report:
        trials = read_lines(options.out / "trials.csv", HEADER, of_fields)
        print(report(trials, driver_of(options.out)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out if options.out and options.full else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        driver = driver_of(folder)
        task = round(max(driver.values()) / 1000, 5)
        wanted = taste(task)
        if options.full:
            parts = options.parts.split(",")
            wanted = [case for part in parts for case in study(part, task, options.seeds)]
            chosen = options.problems.split(",")
            wanted = [case for case in wanted if not options.problems or case.problem in chosen]
        wanted = list(dict.fromkeys(case._replace(driver=float(repr_of(case.driver))) for case in wanted))
        path = folder / "trials.csv"
        done = {trial.case: trial for trial in read_lines(path, HEADER, of_fields)}
        lines = Lines(path, HEADER)

        def tell(finished: float, total: float) -> None:
            print(f"\r{finished / total:5.0%} of {len(wanted)} trials", end="", file=sys.stderr)

        trials = run_all(
            run,
            wanted,
            done,
            work=lambda key: work(Case(*key)),
            keep=lambda trial: lines.add(as_line(trial)),
            workers=options.processes,
            progress=tell,
        )
        print(file=sys.stderr)
    print(report(trials, driver))


if __name__ == "__main__":
    main()
