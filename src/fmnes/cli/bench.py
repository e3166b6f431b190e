"""`fmnes bench`: the speed beside the peers; each further benchmark is a command below it."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(invoke_without_command=True)


@app.callback()
def speed(
    context: typer.Context,
    full: Annotated[
        str, typer.Option(help="Dimensions for methods with a full matrix.")
    ] = "2,10,40,100,400,1000",
    linear: Annotated[str, typer.Option(help="Dimensions for CR-FM-NES.")] = "1000,10000,100000,1000000",
    seconds: Annotated[float, typer.Option(help="Time for each line of the table.")] = 20.0,
    out: Annotated[str | None, typer.Option(help="Folder for speed.md and speed.json.")] = None,
) -> None:
    """Overhead per evaluation beside the peers (extra `bench`), all in one run on one thread."""
    if context.invoked_subcommand is not None:
        return
    from fmnes.benchmark.run import in_one_thread

    raise typer.Exit(in_one_thread([full, linear, str(seconds), *([out] if out else [])]))


# Further benchmarks: one function each, `@app.command()`, which imports what it needs when it is called.
