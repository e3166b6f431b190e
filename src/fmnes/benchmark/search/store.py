"""The folder of the stand: configuration.json, and a CSV file for each question (evaluations, success)."""

from __future__ import annotations

from functools import partial
from importlib import metadata
from pathlib import Path

import fmnes
from fmnes.benchmark.search.trial import WHAT, Key, Trial
from fmnes.trials.lines import Lines, open_folder, read_lines

HEADER = "problem,d,method,seed,first,evaluations,gap,said,stop"
CONFIGURATION = {"format": "fmnes-search", "version": 1}


class Store:
    """All trials of the folder; those of `what` can be added to."""

    def __init__(self, folder: Path, what: str) -> None:
        open_folder(folder, CONFIGURATION, **_versions())
        self._lines = Lines(folder / f"{what}.csv", HEADER)
        self.trials = {trial.key: trial for trial in read_trials(folder)}

    def add(self, trial: Trial) -> None:
        self.trials[trial.key] = trial
        self._lines.add(line(trial))

    def close(self) -> None:
        self._lines.close()


def read_trials(folder: Path) -> list[Trial]:
    return [
        trial for what in WHAT for trial in read_lines(folder / f"{what}.csv", HEADER, partial(_trial, what))
    ]


def _trial(what: str, fields: list[str]) -> Trial:
    problem, d, method, seed, first, evaluations, gap, said, stop = fields
    key = Key(what, problem, int(d), method, int(seed))
    return Trial(key, int(first), int(evaluations), float(gap), said == "1", stop)


def line(t: Trial) -> str:
    # Three digits: the gap is judged by its magnitude, and the file is short enough to keep.
    key = ",".join(map(str, t.key[1:]))
    return f"{key},{t.first},{t.evaluations},{t.gap:.3g},{int(t.said)},{t.stop}"


def _versions() -> dict[str, str]:
    found = {"fmnes": fmnes.__version__}
    for package in ("cma", "PyNomadBBO"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
