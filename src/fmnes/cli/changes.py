"""What differs between a run and its problem file, as that is now: as far as the run remembers."""

from __future__ import annotations

import json
from typing import Any

from fmnes.arguments import shown

#: More are only counted.
MAX_SHOWN = 5


def changes(was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Such as "width.upper is 2.0, was 1.0". Both as `config.json` has them: objective and parameters."""
    now = json.loads(json.dumps(now))  # tuples as lists, as they were read
    found = _differences(_program(was), _program(now), "", {"argv": "command"})
    old, new = _tables(was), _tables(now)
    if old and new:
        found += [f"{name} is new" for name in new if name not in old]
        found += [f"{name} is gone" for name in old if name not in new]
        for name in old:
            found += _differences(old[name], new.get(name), f"{name}.", {})
    more = len(found) - MAX_SHOWN
    return [*found[:MAX_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _differences(was: Any, now: Any, prefix: str, words: dict[str, str]) -> list[str]:
    if not isinstance(was, dict) or not isinstance(now, dict):
        return []
    keys = [key for key in was if key in now or prefix] + [key for key in now if prefix and key not in was]
    return [
        f"{prefix}{words.get(key, key)} is {_value(now.get(key))}, was {_value(was.get(key))}"
        for key in keys
        if was.get(key) != now.get(key)
    ]


def _program(config: dict[str, Any]) -> Any:
    """What is run; where the problem file is does not change it."""
    objective = config.get("objective")
    if not isinstance(objective, dict):
        return None
    return {key: value for key, value in objective.items() if key != "problem_file"}


def _tables(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters by name."""
    tables = config.get("parameters")
    if not isinstance(tables, list):
        return {}
    return {str(table["name"]): table for table in tables if isinstance(table, dict) and "name" in table}


def _value(value: Any) -> str:
    return "not set" if value is None else shown(value)
