"""The paths on the command line: problem files and run directories, and what was meant by a wrong one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from fmnes.cli.next_steps import as_argument
from fmnes.errors import ArgumentError, RunError, nearest
from fmnes.storage.directory import CONFIG, is_run

#: A folder of more entries is not searched for what may have been meant.
_MANY = 1000


def check_run(run: Path) -> None:
    """Raises RunError for what cannot be a run directory, and says which one may have been meant."""
    if not os.path.lexists(run):
        raise RunError(f"{run}: found nothing there, wanted a run directory{_similar(run, is_run)}")
    if not run.is_dir():
        raise RunError(f"{run}: found a file, wanted a run directory{_meant(run.with_suffix('.run'))}")
    if not os.path.lexists(run / CONFIG):
        inside = [path for path in _entries(run) if path.is_dir() and is_run(path)]
        hint = _meant(inside[0]) if inside else "; `fmnes minimize` makes one"
        raise RunError(f"{run}: found no {CONFIG} in it, wanted a run directory{hint}")


def check_problem(path: Path) -> None:
    """Raises ArgumentError where there is no file, and says which one may have been meant."""
    if not os.path.lexists(path):
        similar = _similar(path, lambda other: other.suffix == ".toml")
        hint = similar or "; to write one:  fmnes init"
        raise ArgumentError(f"{path}: found nothing there, wanted a problem file{hint}")
    if path.is_dir():
        files = _problems(path)
        hint = f"; did you mean '{files[0]}'?" if files else ""
        raise ArgumentError(f"{path}: found a folder, wanted a problem file{hint}")


def no_problem(word: str) -> ArgumentError:
    """For a word that is no problem file, where nothing says that it is a program."""
    path = Path(word)
    hint = ""
    if path.is_dir() and is_run(path):
        hint = f"; this is a run, to go on with it:  fmnes resume {as_argument(path)}"
    elif path.is_dir():
        files = _problems(path)
        hint = f"; did you mean:  fmnes minimize {as_argument(files[0])}" if files else ""
    return ArgumentError(
        f"{word}: found neither a problem file, whose name ends in .toml, nor --param for a program; wanted "
        f"one of them{hint}"
    )


def _problems(folder: Path) -> list[Path]:
    return sorted(entry for entry in _entries(folder) if entry.suffix == ".toml")


def _meant(path: Path) -> str:
    return f"; did you mean {str(path)!r}?" if path.is_dir() and is_run(path) else ""


def _similar(path: Path, fits: Callable[[Path], bool]) -> str:
    names = [entry.name for entry in _entries(path.parent) if fits(entry)]
    return nearest(path.name, names)


def _entries(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []
    return [folder / name for name in names] if len(names) <= _MANY else []
