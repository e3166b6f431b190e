"""The folder of a study: runs.csv, a line a run, and configuration.json."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from fmnes.benchmark.coco.problems import Case
from fmnes.benchmark.coco.runs import Job, Run
from fmnes.trials.lines import Lines, open_folder, read_lines

HEADER = "suite,function,instance,dimension,method,budget,evaluations,failed,best,seconds,hits"
CONFIGURATION = {"format": "fmnes-coco", "version": 1}
PACKAGES = ("coco-experiment", "cma", "cmaes", "PyNomadBBO")


class Store:
    def __init__(self, folder: Path) -> None:
        open_folder(folder, CONFIGURATION, **{name: version(name) for name in PACKAGES})
        self._lines = Lines(folder / "runs.csv", HEADER)
        self.runs = {run.job: run for run in read_lines(folder / "runs.csv", HEADER, _run)}

    def add(self, run: Run) -> None:
        self.runs[run.job] = run
        self._lines.add(_line(run))

    def close(self) -> None:
        self._lines.close()


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _line(run: Run) -> str:
    counts = f"{run.evaluations},{run.failed},{run.best:.3g},{run.seconds:.3g}"
    hits = " ".join(map(str, run.hits))
    return f"{','.join(map(str, run.job.case))},{run.job.method},{run.job.budget},{counts},{hits}"


def _run(fields: list[str]) -> Run:
    suite, function, instance, dimension, method, budget, evaluations, failed, best, seconds, hits = fields
    case = Case(suite, int(function), int(instance), int(dimension))
    counts = (int(evaluations), int(failed), float(best), float(seconds))
    return Run(Job(case, method, int(budget)), *counts, tuple(map(int, hits.split())))
