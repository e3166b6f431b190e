"""The command line. Needs the extra `cli` (typer and rich)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fmnes.errors import ArgumentError
from fmnes.version import __version__

#: The function of each command, imported when the command is used; `fmnes --help` imports all.
_HOMES = {
    "demo": "fmnes_bench.demo.demo",
    "init": "fmnes.cli.problem.init",
    "check": "fmnes.cli.problem.check",
    "try": "fmnes.cli.problem.try_",
    "minimize": "fmnes.cli.runs.minimize",
    "resume": "fmnes.cli.runs.resume",
    "stop": "fmnes.cli.runs.stop",
    "worker": "fmnes.cli.runs.worker",
    "show": "fmnes.cli.show.show",
    "export": "fmnes.cli.show.export",
    "report": "fmnes.cli.show.report",
    "watch": "fmnes.cli.show.watch",
    "reproduce": "fmnes.cli.bench.reproduce",
    "bench": "fmnes.cli.bench.app",
}


#: Options whose value may be left out; typer lacks this, so they get an empty value.
_MAY_BE_BARE = {"resume": "--forget-failures"}


#: Earlier names of options, for a hint.
_RENAMED = {"minimize": {"--again": "--archive-existing"}}


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = args[: args.index("--")] if "--" in args else args
        for old, new in _RENAMED.get(self.name or "", {}).items():
            if old in options:
                raise ArgumentError(f"{old}: this option is now {new}")
        bare = _MAY_BE_BARE.get(self.name or "")
        return super().parse_args(ctx, [f"{word}=" if word == bare else word for word in args])


class _Commands(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        module, _, function = _HOMES[name].rpartition(".")
        found = getattr(import_module(module), function)
        if not isinstance(found, typer.Typer):
            command, found = found, typer.Typer(add_completion=False)
            found.command(name, cls=_Command)(command)
        return typer.main.get_command(found)

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


class _Group(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "commands": _Commands()})


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Optimise functions whose evaluation may fail.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, help="Show the version.")] = False,
) -> None:
    pass
