"""driver.py TAG FAULT: keeps two programs running that do FAULT, until somebody kills it."""

import sys
from pathlib import Path

import numpy as np

from fmnes import Command
from fmnes.evaluation.evaluator import Task, TaskList
from fmnes.evaluation.programs.runner import CommandEvaluator
from fmnes.outcome import EvaluationId

tag, fault = sys.argv[1:]
script = Path(__file__).with_name("fault.sh")
command = Command(["/bin/sh", str(script), fault, "{x0}"], environment={"FMNES_TEST_TAG": tag}, keep="none")
tasks = [Task(np.array([2.0]), EvaluationId(0, 0, i)) for i in range(100_000)]
for _ in CommandEvaluator(command, workers=2)(TaskList(tasks)):
    pass
