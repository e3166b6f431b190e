"""What a queue of files costs: python -m benchmarks.file_queue, from the repository's root.

Prints the driver's CPU time for one task, by itself and with many that wait, and what a worker needs for one.
The worker of the first numbers is a forked process that answers at once, without an objective.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from fmnes import FileQueue
from fmnes.evaluation.evaluator import Task, evaluate_all
from fmnes.evaluation.queue import files
from fmnes.evaluation.queue.files import dump_answer, load_task, max_task, new_worker, read_job
from fmnes.evaluation.queue.worker import Claims
from fmnes.outcome import EvaluationId, Outcome
from tests import faults


def answer_all(directory: Path) -> None:
    """A worker that is as quick as one can be; until it is killed."""
    job = None
    while job is None:
        job = read_job(directory)
    claims = Claims(directory, new_worker(), 2.0, lambda name: None)
    while True:
        name = claims.claim()
        if name is None:
            time.sleep(0.001)
            continue
        _, x = load_task(files.read(claims.path(name), max_task(job.d)), name.key, job.d)
        data = dump_answer(job.id, name.key, x, Outcome("value", 1.0))
        files.write(directory / files.ANSWERS, str(name), data)
        claims.drop(claims.let_go() or name)


def driver(n: int, d: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        queue = FileQueue(Path(folder) / "queue")
        evaluator = queue.make_evaluator(faults.echo, d, timeout=None, retries=0, kept_in=None, space=None)
        with closing(evaluator) as evaluate:
            worker = os.fork()
            if worker == 0:
                answer_all(queue.directory)
            try:
                tasks = [
                    [Task(np.full(d, 0.1), EvaluationId(0, g, slot)) for slot in range(n)]
                    for g in range(rounds + 1)
                ]
                list(evaluate_all(evaluate, tasks[0]))
                cpu, wall = time.process_time(), time.monotonic()
                for batch in tasks[1:]:
                    assert len(list(evaluate_all(evaluate, batch))) == n
                cpu, wall = time.process_time() - cpu, time.monotonic() - wall
            finally:
                os.kill(worker, 9)
                os.waitpid(worker, 0)
    made = n * rounds
    print(
        f"driver, d = {d}, {n} tasks at a time: {1e3 * cpu / made:.3f} ms of its CPU time for a task "
        f"({1e3 * wall / made:.3f} ms with a worker that answers at once)"
    )


def worker(n: int = 300) -> None:
    with tempfile.TemporaryDirectory() as folder:
        queue = FileQueue(Path(folder) / "queue")
        words = ["worker", str(queue.directory), "--function", "tests.faults:echo", "--quiet"]
        evaluator = queue.make_evaluator(faults.echo, 20, timeout=None, retries=0, kept_in=None, space=None)
        with (
            closing(evaluator) as evaluate,
            subprocess.Popen([sys.executable, "-m", "fmnes", *words]) as process,
        ):
            try:
                list(evaluate_all(evaluate, [Task(np.zeros(20), EvaluationId(0, 0, 0))]))
                began = time.monotonic()
                assert (
                    len(
                        list(
                            evaluate_all(
                                evaluate, [Task(np.zeros(20), EvaluationId(0, 1, slot)) for slot in range(n)]
                            )
                        )
                    )
                    == n
                )
                each = 1e3 * (time.monotonic() - began) / n
                print(f"a real worker: {each:.2f} ms for a task, evaluated in a process of its own")
            finally:
                process.terminate()


if __name__ == "__main__":
    driver(20, 20, 50)
    driver(1000, 20, 2)
    driver(10_000, 20, 1)
    driver(20, 100_000, 2)
    worker()
