"""Checks that a command can run, before the first evaluation."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fmnes.errors import ArgumentError
from fmnes.evaluation.programs.inputs import TAKEN, check_no_shell, check_program, point_of, read_inputs
from fmnes.evaluation.supervision import need_supervision

if TYPE_CHECKING:
    from fmnes.evaluation.programs.command import Command


def check_runnable(
    command: Command,
    d: int | None = None,
    names: Iterable[str] | Mapping[str, Any] | None = None,
    *,
    elsewhere: bool = False,
) -> None:
    """Raise ArgumentError if the command cannot run with points of d coordinates or of these names.

    names: those of the parameters; or a point, {name: value}, which also shows which are integers.
    elsewhere: it runs on other machines, so the program itself is not checked.
    """
    check_no_shell(command)
    _check_names(command, d, names)
    if elsewhere:
        return
    need_supervision("Command")
    check_program(command)
    if command.memory_limit is not None and not sys.platform.startswith("linux"):
        raise ArgumentError(f"memory_limit: found {command.memory_limit}, wanted None: it needs Linux")
    place = Path(command.directory or tempfile.gettempdir())
    place = place if place.exists() else place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise ArgumentError(f"directory: found {str(place)!r}, wanted a directory we may write to")


def _check_names(command: Command, d: int | None, names: Iterable[str] | None) -> None:
    inputs = read_inputs(command)
    if names is None:
        if d is not None:
            inputs.check(point_of(command.names, np.zeros(d)), command.names is not None)
        return
    names = names if isinstance(names, Mapping) else tuple(names)
    if command.names is not None and tuple(names) != command.names:
        raise ArgumentError(f"names: found {command.names}, wanted those of the parameters: {tuple(names)}")
    for name in TAKEN:
        if name in names:
            raise ArgumentError(f"parameters: found the name {name!r}, which is taken; wanted another")
    inputs.check(names, True)
