"""Run by `mpiexec -n 3 python -m mpi4py.futures`: the driver of a run; the other ranks evaluate."""

from __future__ import annotations

import json
import os
import sys
from functools import partial

import numpy as np

import fmnes
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.executor import count_workers
from fmnes.integrations import mpi
from fmnes.outcome import EvaluationId
from tests.batches import ExecutorEvaluator
from tests.clusters.objectives import ends_its_driver, fails_variously, kills_its_worker_once, traced
from tests.clusters.test_engines import RUN


def main(what: str, folder: str) -> None:
    told: dict[str, object] = {}
    with mpi.executor() as executor:
        if what == "failures":
            evaluator = ExecutorEvaluator(fails_variously, executor, timeout=5.0)
            batch = [Task(np.array([i, 0.5, 0.3]), EvaluationId(0, 0, i)) for i in range(6)]
            told = {str(i): [o.status, o.reason, o.detail] for i, o in evaluator(batch)}
            ((_, crash),) = ExecutorEvaluator(fails_variously, executor)(batch[1:2])
            told["without a timeout"] = crash.reason
            told["workers"] = count_workers(executor)
            told["driver"] = os.getpid()
        else:
            fun = {
                "run": partial(traced, folder=folder),
                "dead rank": partial(kills_its_worker_once, folder=folder),
                "signal": partial(ends_its_driver, folder=folder, driver=os.getpid(), number=15),
            }[what]
            result = fmnes.minimize(fun, **RUN, executor=executor, run_dir=f"{folder}/run")
            told = {"stop": result.stop_reason.name, "fun": result.fun}
    with open(f"{folder}/told.json", "w") as file:
        json.dump(told, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
