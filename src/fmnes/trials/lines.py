"""Trials on disk: a CSV file, a line a trial, appended as it finishes, so that an interrupted run can go on.

Its folder has a configuration.json: what all trials in it must share, and notes on what else they depend on.
"""

from __future__ import annotations

import gzip
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fmnes.errors import ArgumentError

Trial = TypeVar("Trial")


def open_folder(folder: Path, configuration: dict[str, Any], **more: str) -> None:
    """Make the folder, or see that it is one of ours with this configuration. `more` is only noted."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "configuration.json"
    if not path.exists():
        if any(folder.iterdir()):
            raise ArgumentError(f"out: found {folder} with other files in it, wanted an empty or new folder")
        noted = {**configuration, "numpy": np.__version__, "machine": platform.machine(), **more}
        path.write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        differing = [key for key, value in configuration.items() if found.get(key) != value]
    except (ValueError, AttributeError):
        raise ArgumentError(f"out: found an unreadable {path}, wanted the folder of earlier runs") from None
    if differing:
        key = differing[0]
        raise ArgumentError(
            f"out: found {folder} with {key} = {found.get(key)!r}, wanted {configuration[key]!r}; "
            "choose another folder"
        )


class Lines:
    """The file, open for more lines."""

    def __init__(self, path: Path, header: str) -> None:
        _repair(path, header)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)

    def add(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_lines(path: Path, header: str, parse: Callable[[list[str]], Trial]) -> list[Trial]:
    """All trials of the file, by `parse` of the fields of a line, which raises ValueError on a wrong one.

    Lines that somebody has packed away (`gzip FILE`) count too.
    """
    packed = path.with_name(path.name + ".gz")
    texts = [gzip.decompress(packed.read_bytes()).decode()] if packed.exists() else []
    texts += [path.read_text(encoding="utf-8")] if path.exists() else []
    trials = []
    for text in texts:
        for number, line in enumerate(text.splitlines()[1:], 2):
            try:
                trials.append(parse(line.split(",")))
            except ValueError:
                raise ArgumentError(f"{path}, line {number}: found {line!r}, wanted {header}") from None
    return trials


def _repair(path: Path, header: str) -> None:
    """Cut off a last line that was not written whole; a new file gets its header."""
    raw = path.read_bytes() if path.exists() else b""
    whole = raw[: raw.rfind(b"\n") + 1]
    if not whole.startswith(header.encode()):
        whole = header.encode() + b"\n"
    if whole != raw:
        path.write_bytes(whole)
