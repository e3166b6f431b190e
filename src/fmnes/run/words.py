"""The user's words for the points of a run, as its directory remembers them."""

from __future__ import annotations

from typing import Any

from fmnes.errors import ArgumentError, FmnesError, RunError
from fmnes.parameters import Real
from fmnes.space import Space, make_space


def space_of(config: dict[str, Any]) -> Space | None:
    """The named parameters of a run; None of arrays. Raises ArgumentError for what is no such thing.

    Up to 0.2 a Command had names and scales of its own; what else they were is not known, nor needed to read
    the run or to go on with it.
    """
    if "parameters" in config:
        return Space.from_json(config["parameters"])
    names, scales = _of_command(config, "names"), _of_command(config, "scales")
    if "log" not in scales:
        return None
    return _translating(names or _coordinates(len(scales)), scales)


def words_of(config: dict[str, Any], d: int) -> Space:
    """What tells points of d coordinates in the user's names and units.

    Of arrays, the coordinates have the names that a Command gave them, or x0, x1, …
    """
    try:
        space = space_of(config)
        if space is None:
            names = _of_command(config, "names") or _coordinates(d)
            space = _translating(names, ["linear"] * len(names))
    except (FmnesError, TypeError) as error:
        raise RunError(f"found an unusable configuration ({error})") from None
    if len(space.names) != d:
        raise RunError(f"found {len(space.names)} parameters for points of {d} coordinates")
    return space


def _coordinates(d: int) -> list[str]:
    return [f"x{i}" for i in range(d)]


def _of_command(config: dict[str, Any], key: str) -> list[str]:
    objective = config.get("objective")
    found = objective.get(key) if isinstance(objective, dict) else None
    return [str(word) for word in found or ()]


def _translating(names: list[str], scales: list[str]) -> Space:
    """A space for the translation only: nobody knows where it started."""
    if len(names) != len(scales):
        raise ArgumentError(f"parameters: found {len(names)} names and {len(scales)} scales")
    real = {log: Real(start=1.0, sigma=2.0, log=log) for log in (False, True)}
    return make_space([(name, real[scale == "log"]) for name, scale in zip(names, scales, strict=True)])
