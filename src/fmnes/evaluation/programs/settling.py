"""A Command's settings, checked and each in one form."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fmnes.arguments import check_number, check_path, shown
from fmnes.errors import ArgumentError
from fmnes.evaluation.programs.checks import check_bytes, check_codes, check_strings
from fmnes.evaluation.programs.environment import check_environment
from fmnes.evaluation.programs.inputs import TAKEN, check_targets
from fmnes.evaluation.programs.sources import check_source
from fmnes.evaluation.programs.template import SomeNumber, parse_argument
from fmnes.outputs import read_outputs

if TYPE_CHECKING:
    from fmnes.evaluation.programs.command import Command


def settle_all(command: Command) -> None:
    """Raises ArgumentError for what cannot be meant."""

    def settle(name: str, value: Any) -> None:
        object.__setattr__(command, name, value)

    settle("argv", check_strings("argv", command.argv))
    settle("names", None if command.names is None else check_strings("names", command.names))
    for name in ("templates", "copy", "link"):
        settle(name, check_strings(name, getattr(command, name)))
    for name in ("stdin", "problem_file", "directory"):
        if getattr(command, name) is not None:
            settle(name, check_path(name, getattr(command, name)))
    settle("here", os.path.abspath(check_path("here", "." if command.here is None else command.here)))
    for name in ("problem_file", "directory"):
        if getattr(command, name) is not None:
            settle(name, os.path.abspath(getattr(command, name)))
    settle("environment", check_environment(command.environment))
    settle("value", None if command.value is None else check_source("value", command.value))
    settle("outputs", _outputs(command.outputs))
    texts = [command.fail_if] if isinstance(command.fail_if, str) and command.fail_if else command.fail_if
    settle("fail_if", check_strings("fail_if", texts))
    if any(not text.strip() or len(text) > 1000 for text in command.fail_if):
        raise ArgumentError("fail_if: found a blank text, or one of more than 1000 characters")
    settle("timeout", check_number("timeout", command.timeout, above=0))
    settle("memory_limit", check_bytes("memory_limit", command.memory_limit))
    settle("max_kept", check_number("max_kept", command.max_kept, above=-1, whole=True) or 0)
    settle("success_exit_codes", check_codes("success_exit_codes", command.success_exit_codes, signals=True))
    settle("lost_exit_codes", check_codes("lost_exit_codes", command.lost_exit_codes))
    names = command.names or ()
    if len(set(names)) < len(names) or set(TAKEN) & set(names):
        raise ArgumentError(f"names: found {names}, wanted one for each; params, results, here are taken")
    if not isinstance(command.keep, str) or command.keep not in ("failed", "all", "none"):
        raise ArgumentError(f"keep: found {shown(command.keep)}, wanted 'failed', 'all' or 'none'")
    both = set(command.lost_exit_codes) & set(command.success_exit_codes)
    if both:
        raise ArgumentError(f"lost_exit_codes: found {both}, which are success_exit_codes as well")
    if not command.argv:
        raise ArgumentError("argv: found an empty list, wanted the program and its arguments")
    check_targets(command)
    for element in command.argv:
        template = parse_argument(element)
        if command.names is not None:
            template.fill({**dict.fromkeys(TAKEN, ""), **dict.fromkeys(names, SomeNumber())})


def _outputs(found: Any) -> dict[str, dict[str, str]]:
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ArgumentError(f"outputs: found {shown(found)}, wanted such as {{'mass': {{'regex': ...}}}}")
    try:  # as what a function returns: too many, or a name that cannot be written
        read_outputs(dict.fromkeys(found))
    except TypeError as error:
        raise ArgumentError(f"outputs: found {error}") from None
    for name in found:
        if "\0" in name:
            raise ArgumentError(f"outputs: found the name {shown(name)}, wanted text such as 'mass'")
    return {name: check_source(f"outputs, {name}", source) for name, source in found.items()}
