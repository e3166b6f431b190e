"""Results on disk: one line per trial, appended as it finishes, so that an interrupted run can go on."""

from __future__ import annotations

from pathlib import Path

from fmnes.reproduction.cells import DIMENSION, MAX_EVALUATIONS, TARGET, Cell
from fmnes.reproduction.trial import Trial
from fmnes.trials.lines import Lines, open_folder, read_lines

HEADER = "method,problem,population_size,trial,success,evaluations,best"
CONFIGURATION = {
    "format": "fmnes-reproduction",
    "version": 1,
    "dimension": DIMENSION,
    "target": TARGET,
    "max_evaluations": MAX_EVALUATIONS,
}


class Store:
    """The folder of a reproduction: configuration.json and trials.csv."""

    def __init__(self, folder: Path) -> None:
        open_folder(folder, CONFIGURATION)
        self._lines = Lines(folder / "trials.csv", HEADER)
        self.trials = {(t.cell, t.number): t for t in read_trials(folder / "trials.csv")}

    def add(self, trial: Trial) -> None:
        self.trials[trial.cell, trial.number] = trial
        self._lines.add(_line(trial))

    def close(self) -> None:
        self._lines.close()


def read_trials(path: Path) -> list[Trial]:
    return read_lines(path, HEADER, _trial)


def _trial(fields: list[str]) -> Trial:
    method, problem, size, trial, success, evaluations, best = fields
    cell = Cell(method, problem, int(size))
    return Trial(cell, int(trial), success == "1", int(evaluations), float.fromhex(best))


def _line(t: Trial) -> str:
    # Hexadecimal keeps every bit of the value.
    return f"{','.join(map(str, t.cell))},{t.number},{int(t.success)},{t.evaluations},{t.best.hex()}"
