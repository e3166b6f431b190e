"""The environment of a program: ours, one thread, and what the user adds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fmnes.arguments import check_path, shown
from fmnes.errors import ArgumentError
from fmnes.evaluation.programs.toml import parse, read_text

#: As many programs run at a time as there are workers: each of them with a thread for every core is many
#: times slower. ngspice minds none of these but OMP_THREAD_LIMIT.
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def variables(ours: Mapping[str, str], theirs: Mapping[str, str | None] | None) -> dict[str, str]:
    """The environment that a program sees."""
    said = {**ours, **(theirs or {})}
    joined = {**dict.fromkeys(ONE_THREAD, "1"), **said}
    if "OMP_THREAD_LIMIT" not in said:  # who asks for four threads is not to be held to one
        threads = joined["OMP_NUM_THREADS"] or ""
        joined["OMP_THREAD_LIMIT"] = threads if threads.isdecimal() else None
    return {name: value for name, value in joined.items() if value is not None}


def check_environment(found: Any) -> dict[str, str | None]:
    """Names with texts, or with None for a variable to be removed; raises ArgumentError."""
    try:
        environment = {} if found is None else dict(found)
    except Exception:  # of the user's own class it may be anything
        raise ArgumentError(f"environment: found {shown(found)}, wanted a dictionary") from None
    for name, value in environment.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ArgumentError(f"environment: found {shown(name)}, wanted a name without '='")
        if value is not None and (not isinstance(value, str) or "\0" in value):
            # Not the value itself, which may be a secret.
            raise ArgumentError(
                f"environment: found {name} of type {type(value).__name__}, wanted text such as '4'"
            )
    return environment


def environment_of(data: Mapping[str, Any]) -> dict[str, str]:
    """What a problem file, read, says of its program's environment."""
    program = data.get("program", {})
    found = program.get("environment", {}) if isinstance(program, Mapping) else {}
    if not isinstance(found, Mapping):
        raise ArgumentError(f"environment: found {shown(found)}, wanted a table such as {{ NAME = '4' }}")
    return {name: value for name, value in check_environment(found).items() if value is not None}


def read_environment(path: str | os.PathLike[str]) -> dict[str, str]:
    """The environment of a problem file's program: a run directory keeps its names only.

    Raises ArgumentError if the file is not there any more, or is no problem file.
    """
    name = check_path("problem_file", path)
    if not os.path.exists(name):
        raise ArgumentError(
            f"{name}: found no problem file, wanted it for the program's environment, which a run directory "
            "does not keep"
        )
    data = parse(read_text(name), name)
    try:
        return environment_of(data)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from None
