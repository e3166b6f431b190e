"""The user's words for the points of a run, as its directory remembers them."""

from __future__ import annotations

from typing import Any

from fmnes.errors import FmnesError, RunError
from fmnes.parameters import Real
from fmnes.space import Space, make_space

_ANY = Real(start=1.0, sigma=2.0)


def space_of(config: dict[str, Any]) -> Space | None:
    """The named parameters of a run; None of arrays. Raises ArgumentError for what is no such thing."""
    return Space.from_json(config["parameters"]) if "parameters" in config else None


def words_of(config: dict[str, Any], d: int) -> Space:
    """What tells points of d coordinates in the user's names and units.

    Of arrays, the coordinates have the names that a Command gave them, or x0, x1, …
    """
    try:
        space = space_of(config)
        if space is None:
            # For the translation only: nothing says where it started.
            space = make_space([(name, _ANY) for name in _command_names(config) or _coordinates(d)])
    except (FmnesError, TypeError) as error:
        raise RunError(f"found an unusable configuration ({error})") from None
    if len(space.names) != d:
        raise RunError(f"found {len(space.names)} parameters for points of {d} coordinates")
    return space


def _coordinates(d: int) -> list[str]:
    return [f"x{i}" for i in range(d)]


def _command_names(config: dict[str, Any]) -> list[str]:
    objective = config.get("objective")
    found = objective.get("names") if isinstance(objective, dict) else None
    return [str(word) for word in found or ()]
