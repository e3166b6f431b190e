"""The user's words for the points of a run: its parameters, or else the names and scales it was given."""

from __future__ import annotations

from typing import Any

from fmnes.errors import FmnesError, RunError
from fmnes.parameters import Real
from fmnes.space import Space


def has_names(config: dict[str, Any]) -> bool:
    """Whether the user's points are {name: value}, and not arrays.

    Up to 0.2 a Command with a log scale had names and scales of its own, which is as good.
    """
    return config.get("parameters") is not None or "log" in (config["objective"].get("scales") or ())


def words_of(config: dict[str, Any], d: int) -> Space:
    """The space that tells points of d coordinates in the user's names and units.

    config: that of a run directory. Of a run without named parameters the coordinates have the names that its
    Command gave them, or x0, x1, …; only their translation is meant then, not where they started.
    """
    try:
        if config.get("parameters") is not None:
            space = Space.from_json(config["parameters"])
        else:
            objective = config.get("objective") or {}
            names = [str(name) for name in objective.get("names") or [f"x{i}" for i in range(d)]]
            scales = objective.get("scales") or ["linear"] * len(names)  # up to 0.2 a Command had them
            if len(set(names)) < len(names):
                raise ValueError("two coordinates of one name")
            real = {log: Real(start=1.0, sigma=2.0, log=log) for log in (False, True)}
            pairs = zip(names, scales, strict=True)
            space = Space({name: real[scale == "log"] for name, scale in pairs})
    except (FmnesError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"found an unusable configuration ({error})") from None
    if len(space.names) != d:
        raise RunError(f"found {len(space.names)} parameters for points of {d} coordinates")
    return space
