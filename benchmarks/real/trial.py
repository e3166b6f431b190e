"""One run: a method on a problem. Its key is all that is needed to repeat it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import numpy as np

from fmnes_bench.peers import Finished

from .methods import search
from .tasks import TASKS, Counted

Row = dict[str, Any]


def run(problem: str, method: str, seed: int, budget: int | None = None) -> Row:
    task = TASKS[problem]()
    task = task if budget is None else task._replace(budget=budget)
    counted = Counted(task)
    began = processor_seconds()
    with suppress(Finished):
        search(method, task, counted, seed)
    return {
        "problem": problem,
        "method": method,
        "seed": seed,
        "budget": task.budget,
        "best": None if np.isinf(counted.best) else counted.best,
        "evaluations": counted.evaluations,
        "failed": counted.failed,
        "seconds": round(processor_seconds() - began, 2),
    }


def processor_seconds() -> float:
    """Of this process and the programs it has started: on a busy machine as on a quiet one."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
