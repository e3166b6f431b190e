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


@app.command()
def coco(
    suite: Annotated[str, typer.Option(help="bbob, bbob-constrained or bbob-mixint.")] = "bbob",
    methods: Annotated[
        str,
        typer.Option(
            help="Ours by name, with BIPOP as NAME-bipop; cma-ipop, cma-bipop, cmawm, nomad, random."
        ),
    ] = "fm-nes,cma-es,cma-ipop,cma-bipop,random",
    dimensions: Annotated[str, typer.Option(help="Those that the suite lacks are left out.")] = "2,3,5,10,20",
    instances: Annotated[str, typer.Option(help="Such as 1-5 or 1,3.")] = "1-5",
    functions: Annotated[str, typer.Option(help="all, odd, even, or numbers.")] = "all",
    budget: Annotated[
        int | None, typer.Option(help="Evaluations per dimension; 2000, or 1000 on bbob-constrained.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    out: Annotated[str, typer.Option(help="Folder for runs, tables and plot.")] = "coco",
    data: Annotated[bool, typer.Option("--data", help="Also write what cocopp reads, to OUT/data.")] = False,
) -> None:
    """Areas under runtime curves on the problems of COCO (extra `coco`), beside the peers.

    Finished runs are kept: the same command, or one with more methods, goes on from there.
    """
    from fmnes.benchmark.coco.__main__ import Progress, interrupted
    from fmnes.benchmark.coco.study import coco as run

    try:
        report = run(
            suite,
            methods=methods,
            dimensions=dimensions,
            instances=instances,
            functions=functions,
            budget=budget,
            workers=workers,
            out=out,
            data=data,
            progress=Progress(),
        )
    except KeyboardInterrupt:
        typer.echo(interrupted(out))
        raise typer.Exit(130) from None
    typer.echo(report)
