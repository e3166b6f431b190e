"""Results on disk: one line per trial, appended as it finishes, so that an interrupted run can go on."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

from fmnes.errors import ArgumentError
from fmnes.reproduction.cells import DIMENSION, MAX_EVALUATIONS, METHODS, TARGET, Cell
from fmnes.reproduction.trial import Trial

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
        self._path = folder / "trials.csv"
        folder.mkdir(parents=True, exist_ok=True)
        _check_configuration(folder / "configuration.json", empty=not any(folder.iterdir()))
        self.repaired = _repair(self._path)
        """Bytes of a half-written last line that were dropped."""
        self.trials = {(t.cell, t.number): t for t in _read(self._path)}
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)

    def add(self, trial: Trial) -> None:
        self.trials[trial.cell, trial.number] = trial
        self._file.write(_line(trial) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_trials(path: Path) -> list[Trial]:
    """The trials of a results file that is not written to."""
    return _read(path)


def write_trials(path: Path, trials: list[Trial]) -> None:
    """All of them, in a fixed order, whatever order they finished in."""
    order = {name: i for i, name in enumerate(METHODS)}
    lines = [_line(t) for t in sorted(trials, key=lambda t: (order[t.cell.method], t.cell[1:], t.number))]
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")


def environment() -> dict[str, Any]:
    """What else the numbers depend on, to the last bit."""
    return {"numpy": np.__version__, "machine": platform.machine()}


def _check_configuration(path: Path, empty: bool) -> None:
    if not path.exists():
        if not empty:
            raise ArgumentError(
                f"out: found {path.parent} with other files in it, wanted an empty or new folder"
            )
        path.write_text(json.dumps({**CONFIGURATION, **environment()}, indent=2) + "\n", encoding="utf-8")
        (path.parent / "trials.csv").write_text(HEADER + "\n", encoding="utf-8")
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        differing = [key for key, value in CONFIGURATION.items() if found.get(key) != value]
    except (ValueError, AttributeError):
        raise ArgumentError(f"out: found an unreadable {path}, wanted the folder of a reproduction") from None
    if differing:
        key = differing[0]
        raise ArgumentError(
            f"out: found {path.parent} with {key} = {found.get(key)!r}, wanted {CONFIGURATION[key]!r}; "
            "choose another folder"
        )


def _repair(path: Path) -> int:
    """Cut off a last line that was not written whole; how many bytes that were."""
    raw = path.read_bytes() if path.exists() else b""
    whole = raw[: raw.rfind(b"\n") + 1]
    if not whole.startswith(HEADER.encode()):
        whole = HEADER.encode() + b"\n"
    if whole != raw:
        path.write_bytes(whole)
    return max(len(raw) - len(whole), 0)


def _read(path: Path) -> list[Trial]:
    trials = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[1:], 2):
        try:
            method, problem, size, trial, success, evaluations, best = line.split(",")
            cell = Cell(method, problem, int(size))
            trials.append(Trial(cell, int(trial), success == "1", int(evaluations), float.fromhex(best)))
        except ValueError:
            raise ArgumentError(f"{path}, line {number}: found {line!r}, wanted {HEADER}") from None
    return trials


def _line(t: Trial) -> str:
    # Hexadecimal keeps every bit of the value.
    return f"{','.join(map(str, t.cell))},{t.number},{int(t.success)},{t.evaluations},{t.best.hex()}"
