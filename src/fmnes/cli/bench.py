"""`fmnes bench` and `fmnes reproduce`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fmnes.arguments import check_number
from fmnes.errors import ArgumentError

# -- The bar over many runs that take hours.


@contextmanager
def show_bar(what: str, out: str | Path) -> Iterator[Callable[[float, float], None]]:
    """A bar on stderr, to be called with the work done and the work in all; Ctrl-C says where it is kept."""
    columns = ("{task.percentage:>3.0f}%", BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what)
        try:
            yield lambda done, total: bar.update(task, completed=done, total=total or 1)
        except KeyboardInterrupt:
            bar.stop()
            typer.echo(f"interrupted; finished {what} are kept in {out}: the same command goes on from there")
            raise typer.Exit(130) from None


# -- `fmnes reproduce`.


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="table-2, table-3, table-4, corrections, figure-1, sweep, or all (but the sweep)."
        ),
    ] = "all",
    trials: Annotated[int, typer.Option(help="Trials per cell; the paper has 50.")] = 50,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for results and report.")] = Path("reproduction"),
    method: Annotated[str | None, typer.Option(help="Only this method, such as FM-NES.")] = None,
) -> None:
    """Run the paper's experiments and compare the results with the published numbers.

    All tables with 50 trials take about half an hour on 2 cores; table-2 with 3 trials half a minute.
    """
    from fmnes_bench.reproduction import check_arguments
    from fmnes_bench.reproduction import reproduce as run
    from fmnes_bench.reproduction.report import HEAD, table_rows

    check_arguments(what, method)
    with show_bar("trials", out) as progress:
        rows = run(what, trials=trials, workers=workers, out=out, method=method, progress=progress)
    if rows:
        table = Table(*HEAD)
        for line in table_rows(rows):
            table.add_row(*line)
        Console().print(table)
    typer.echo(f"report: {out / ('sweep.md' if what == 'sweep' else 'report.md')}, and the same as .html")


# -- `fmnes bench`: the speed beside the peers; each further benchmark is a command below it.


app = typer.Typer(name="bench", invoke_without_command=True, add_completion=False)


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
    from fmnes_bench.speed import in_one_thread

    for name, text in (("full", full), ("linear", linear)):
        for word in _words(text):
            check_number(name, _whole(name, word), above=0, whole=True)
    raise typer.Exit(in_one_thread([full, linear, str(seconds), *([out] if out else [])]))


@app.command()
def search(
    what: Annotated[
        str, typer.Option(help="evaluations (to the target), or success (is what it says at the end true?).")
    ] = "evaluations",
    problems: Annotated[
        str, typer.Option(help="Problems, or groups: study, paper, box, rotated, regions, noise, beam.")
    ] = "study,box,rotated,regions,noise,beam",
    dimensions: Annotated[str, typer.Option(help="Dimensions, up to 80.")] = "2,3,5,10,20,40",
    methods: Annotated[
        str | None,
        typer.Option(help="By default afm-nes, fm-nes, cma-es, cma; also our others, and nomad to d = 10."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each; 0 only writes the page.")] = 8,
    first_seed: Annotated[int, typer.Option(help="To measure on other seeds than those designed on.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    out: Annotated[Path, typer.Option(help="Folder that keeps the runs.")] = Path("search"),
    report: Annotated[Path | None, typer.Option(help="The page; by default search.md in the folder.")] = None,
) -> None:
    """How many evaluations the methods need, ours and the peers' (extra `bench`), and how honest they are.

    Runs that the folder has are not run again; to repeat a method, delete its lines from the CSV file.
    """
    from fmnes_bench.search import search as run
    from fmnes_bench.search.runs import DEFAULT, is_installed

    chosen = list(DEFAULT) if methods is None else _words(methods)
    if methods is None:  # a peer that was asked for by name is an error
        missing = [method for method in chosen if not is_installed(method)]
        chosen = [method for method in chosen if method not in missing]
        if missing:
            words = f"not installed, so left out: {', '.join(missing)}"
            typer.echo(f'{words}; pip install "fmnes[bench]" brings them', err=True)
    with show_bar("runs", out) as progress:
        page = run(
            what,
            problems=_words(problems),
            dimensions=[_whole("dimensions", word) for word in _words(dimensions)],
            methods=chosen,
            seeds=seeds,
            first_seed=first_seed,
            workers=workers,
            out=out,
            report=report,
            progress=progress,
        )
    typer.echo(f"report: {page}")


@app.command()
def coco(
    suite: Annotated[str, typer.Option(help="bbob, bbob-constrained or bbob-mixint.")] = "bbob",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Ours by name, with BIPOP as NAME-bipop; cma-ipop, cma-bipop, cmawm, nomad, random."
        ),
    ] = None,
    dimensions: Annotated[str, typer.Option(help="Those that the suite lacks are left out.")] = "2,3,5,10,20",
    instances: Annotated[str, typer.Option(help="Such as 1-5 or 1,3.")] = "1-5",
    functions: Annotated[str, typer.Option(help="all, odd, even, or numbers.")] = "all",
    budget: Annotated[
        int | None, typer.Option(help="Evaluations per dimension; 2000, or 1000 on bbob-constrained.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    out: Annotated[str, typer.Option(help="Folder for runs, tables and plot.")] = "coco",
    data: Annotated[bool, typer.Option("--data", help="Also write what cocopp reads, to OUT/data.")] = False,
    constraints: Annotated[
        str, typer.Option(help="On bbob-constrained: failures, or values (methods are given them).")
    ] = "failures",
) -> None:
    """Areas under runtime curves on the problems of COCO (extra `coco`), beside the peers.

    Finished runs are kept: the same command, or one with more methods, goes on from there.
    """
    arguments = locals()
    from fmnes_bench.coco import coco as run

    with show_bar("runs", out) as progress:
        report = run(**arguments, progress=progress)
    typer.echo(report)


@app.command()
def constraints(
    methods: Annotated[
        str,
        typer.Option(help="Some of afm-nes-values, afm-nes-plain, afm-nes-failures, cma-al, cobyqa, de."),
    ] = "afm-nes-values,afm-nes-failures,cma-al,de",
    problems: Annotated[str | None, typer.Option(help="By default all 13.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 3,
    budget: Annotated[int, typer.Option(help="Evaluations per dimension.")] = 500,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    out: Annotated[Path, typer.Option(help="Folder that keeps the runs.")] = Path("constraints"),
) -> None:
    """13 engineering problems with limits, beside the peers (extra `bench`).

    Runs that the folder has are not run again.
    """
    from fmnes_bench.constraints import constraints as run

    with show_bar("runs", out) as progress:
        report = run(
            _words(methods),
            problems=None if problems is None else _words(problems),
            seeds=check_number("seeds", seeds, above=0, whole=True),
            budget=check_number("budget", budget, above=1, whole=True),
            workers=workers,
            out=out,
            progress=progress,
        )
    typer.echo(report)


@app.command()
def few(
    suite: Annotated[
        str,
        typer.Option(help="Some of shared, bbob, search, hidden, boxes, real; none only writes the page."),
    ] = "shared",
    methods: Annotated[
        str | None,
        typer.Option(
            help="By default afm-nes, cobyqa, cma-lq and nomad; also surrogate, our others, and the peers "
            "pybads, optuna-gp, smac, cma, cma-ipop, cma-bipop, optuna-tpe, random."
        ),
    ] = None,
    dimensions: Annotated[
        str, typer.Option(help="Of shared, bbob and search; the others have their own.")
    ] = "2,3,5,10,20",
    instances: Annotated[str, typer.Option(help="Such as 8-12 or 1,3.")] = "8-12",
    budget: Annotated[
        int | None, typer.Option(help="Evaluations per dimension; by default that of the suite.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    out: Annotated[Path, typer.Option(help="Folder that keeps the runs.")] = Path("few"),
    page: Annotated[Path | None, typer.Option(help="The page; by default few.md in the folder.")] = None,
    pack: Annotated[bool, typer.Option("--pack", help="Compress the rows.")] = False,
) -> None:
    """Regret after 10 d to 200 d evaluations, beside the peers (extras `bench` and `few`).

    Runs that the folder has are not run again; to repeat some, delete their lines from rows.jsonl.
    """
    from fmnes_bench.coco import numbers
    from fmnes_bench.few import few as run

    with show_bar("runs", out) as progress:
        written = run(
            [] if suite == "none" else _words(suite),
            methods=None if methods is None else _words(methods),
            dimensions=[_whole("dimensions", word) for word in _words(dimensions)],
            instances=numbers("instances", instances),
            budget=budget,
            jobs=jobs,
            out=out,
            page=page,
            pack=pack,
            progress=progress,
        )
    typer.echo(f"report: {written}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _whole(name: str, word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ArgumentError(f"{name}: found {word!r}, wanted whole numbers separated by commas") from None
