"""The real problems, as every method meets them: named parameters, many points at once, and a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import fmnes
from examples.training import network
from fmnes.space import Space
from fmnes_bench import gene_network, lens
from fmnes_bench.peers import Finished


class Task(NamedTuple):
    parameters: Mapping[str, fmnes.Real | fmnes.Integer]
    fun: Callable[[dict[str, np.ndarray]], np.ndarray]  # {name: (n,)} -> (n,), inf or NaN for what failed
    budget: int


def _lens(problem: lens.LensProblem) -> Task:
    return Task(problem.parameters, problem.fun, 5000)


def _gene_network() -> Task:
    problem = gene_network.problem()
    return Task(problem.parameters, problem.fun, 5000)


def _airfoil(reach: float | None = None) -> Task:
    """Drag in counts, as `fmnes minimize examples/airfoil/problem.toml` finds it, one program at a time.

    reach: every number may be so far from its start; None: within the ranges of the problem file.
    """
    from examples.airfoil.run import check_installed, read

    check_installed(picture=False)
    problem = read()
    task = _program(problem, 500, 1e4)
    if reach is None:
        return task
    starts = {name: parameter.start for name, parameter in problem.space.parameters.items()}
    return task._replace(
        parameters={name: fmnes.Real(x - reach, x + reach, start=x) for name, x in starts.items()}
    )


def _op_amp() -> Task:
    """Power in mW, as `fmnes minimize examples/op_amp/problem.toml` finds it."""
    from examples.op_amp.run import HERE, check_installed
    from fmnes.cli.problem_file import read_problem

    check_installed(picture=False)
    return _program(read_problem(HERE), 1000, 1.0)


def _program(problem: Any, budget: int, unit: float) -> Task:
    """The program of a problem file. It needs the extra `cli` and a POSIX system."""
    from fmnes.evaluation.evaluator import Task as Evaluation
    from fmnes.evaluation.evaluator import evaluate_all
    from fmnes.evaluation.programs.runner import CommandEvaluator
    from fmnes.outcome import EvaluationId

    # A slow machine is not to decide what fails, and nothing is to stay.
    command = replace(problem.command, timeout=120, keep="none")

    def value(columns: dict[str, np.ndarray]) -> np.ndarray:
        points = np.column_stack([columns[name] for name in problem.space.parameters])
        values = np.full(len(points), np.inf)
        evaluator = CommandEvaluator(command, named=problem.space.named)
        try:
            tasks = [Evaluation(x, EvaluationId(0, 0, k)) for k, x in enumerate(points)]
            for k, outcome in evaluate_all(evaluator, tasks):
                if outcome.status == "lost":  # to the machine: such a run is no row
                    raise fmnes.Lost(outcome.reason)
                values[k] = unit * outcome.value if outcome.status == "value" else np.inf
        finally:
            evaluator.close()
        return values

    return Task(problem.space.parameters, value, budget)


def _training() -> Task:
    parameters = {
        name: fmnes.Integer(*ends) if isinstance(ends[0], int) else fmnes.Real(*ends, log=name in network.LOG)
        for name, ends in network.RANGES.items()
    }

    def fun(columns: dict[str, np.ndarray]) -> np.ndarray:
        points = zip(*columns.values(), strict=True)
        return np.array([network.loss(**dict(zip(columns, point, strict=True))) for point in points])

    return Task(parameters, fun, 300)


TASKS: dict[str, Callable[[], Task]] = {
    "lens": lambda: _lens(lens.triplet()),
    "lens-glasses": lambda: _lens(lens.triplet(glasses=True)),
    "double-gauss": lambda: _lens(lens.double_gauss()),
    "gene-network": _gene_network,
    "airfoil": _airfoil,
    "airfoil-wide": lambda: _airfoil(reach=0.4),
    "op-amp": _op_amp,
    "training": _training,
}


class Counted:
    """A task as numbers: points (n, d) in its box, on a log scale where that was asked for.

    integers: the indices of the integer parameters; their values are rounded to the nearest integer.
    """

    def __init__(self, task: Task) -> None:
        self.space = Space(task.parameters)
        start = self.space.start()
        self.x0, self.sigma0 = np.array(start["x0"], dtype=float), np.array(start["sigma0"], dtype=float)
        self.lower, self.upper = np.array(start["bounds"].lower), np.array(start["bounds"].upper)
        widths = start["integers"] or [0.0] * len(self.x0)
        self.integers = [i for i, width in enumerate(widths) if width]
        self.left = task.budget
        self.best, self.failed, self.evaluations = np.inf, 0, 0
        self._fun = task.fun

    def __call__(self, x: Any) -> np.ndarray:
        """Values (n,), +inf for what failed; raises Finished when the budget is too small for all."""
        points = np.clip(np.asarray(x, dtype=float), self.lower, self.upper)
        points[:, self.integers] = np.rint(points[:, self.integers])
        return self.named(self.space.columns(points[: self.left]), len(points))

    def named(self, columns: dict[str, np.ndarray], n: int | None = None) -> np.ndarray:
        """As a user's own function is called; n: how many were asked for."""
        count = len(next(iter(columns.values())))
        values = np.asarray(self._fun(columns), dtype=float) if count else np.empty(0)
        values = np.where(np.isfinite(values), values, np.inf)
        self.left -= count
        self.evaluations += count
        self.failed += int(np.isinf(values).sum())
        self.best = min(self.best, float(values.min(initial=np.inf)))
        if n is not None and count < n:
            raise Finished
        return values
