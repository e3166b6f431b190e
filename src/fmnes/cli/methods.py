"""The methods on the command line: one option for all commands that have it."""

from __future__ import annotations

from typing import Annotated

import typer

from fmnes.errors import ArgumentError, nearest
from fmnes.strategies import METHODS


def check_method(method: str | None) -> str | None:
    """Raises ArgumentError with all names: on the command line there are no settings besides."""
    if method is not None and method not in METHODS:
        raise ArgumentError(
            f"--method: found {method!r}, wanted one of {', '.join(METHODS)}{nearest(method, METHODS)}"
        )
    return method


def complete_method(incomplete: str) -> list[str]:
    """What the shell offers at a tab."""
    return [method for method in METHODS if method.startswith(incomplete)]


Method = Annotated[
    str | None,
    typer.Option(help=f"One of {', '.join(METHODS)}.", autocompletion=complete_method, callback=check_method),
]
