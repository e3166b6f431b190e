"""`fmnes demo`: design a lens and write a page with the lens before and after."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fmnes
from fmnes._files import atomic_write
from fmnes.arguments import check_count, check_rng
from fmnes.cli import messages
from fmnes.cli.messages import LiveDisplay
from fmnes.cli.runs import Json, Method, whole
from fmnes.errors import MissingExtra, RunError
from fmnes.html.markup import figure, section, text
from fmnes.plots.drawing import as_svg, need_matplotlib
from fmnes.reading.next_steps import as_argument, as_line
from fmnes.result import Result
from fmnes.strategies import DEFAULT_METHOD
from fmnes_bench import lens

RUN, PAGE = "lens.run", "lens.html"
#: The median of seeds 1 to 10 by the value after 5,000 evaluations: 10.84 µm, of 8.71 to 15.12 µm.
MEDIAN_SEED = 4

_CAPTION = (
    "Above: the lens with rays of three fields; the black bars are the stop. Below: where the rays of three "
    "wavelengths meet the image."
)


def demo(
    seed: Annotated[int, typer.Option(help="Another seed gives another run.")] = MEDIAN_SEED,
    method: Method = DEFAULT_METHOD,
    max_evaluations: Annotated[
        int, typer.Option(help="Number of lenses to try.", parser=whole, metavar="INTEGER")
    ] = 5000,
    out: Annotated[
        Path | None,
        typer.Option(
            help=f"The folder for {RUN} and {PAGE}; by default a new temporary one.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Design a camera lens: a random lens usually forms no image, and its evaluation fails."""
    # Before a folder is made or anything is printed.
    check_count("max_evaluations", max_evaluations, 1)
    check_rng(seed)
    # With --json no files are written, unless --out asks for them.
    folder = _folder(out) if out or not as_json else None
    run = folder / RUN if folder else None
    console = Console(quiet=as_json)
    problem = lens.triplet()
    wanted = problem.wanted
    what = f" design a lens of three glasses, {wanted.focal_length:g} mm, F/{wanted.f_number:g}: ten numbers."
    messages.say(console, what, bold="Demo:")
    messages.say(console, "A lens has no image if a ray misses a surface or is totally reflected, or if two")
    messages.say(console, "surfaces cross: the evaluation fails, as for most lenses drawn at random.")
    console.print()
    with LiveDisplay(max_evaluations) as display:
        result = fmnes.minimize(
            problem.fun,
            problem.parameters,
            method=method or DEFAULT_METHOD,
            max_evaluations=max_evaluations,
            rng=seed,
            run_dir=run,
            callback=display.update,
        )
        display.end(result)
    if as_json:
        typer.echo(json.dumps(messages.as_json(result, _named)))
    else:
        _show(console, problem, result)
    if run is not None:
        _write(console, problem, result, run)
    raise typer.Exit(messages.exit_code(result))


def _named(x: Any) -> dict[str, Any]:
    return x if isinstance(x, dict) else dict(zip(lens.triplet().parameters, x.tolist(), strict=True))


def _folder(out: Path | None) -> Path:
    """The folder of the run and the page; existing files are not overwritten."""
    if out is None:
        return Path(tempfile.mkdtemp(prefix="fmnes-demo-"))
    for name in (RUN, PAGE):
        if os.path.lexists(out / name):
            raise RunError(f"{out}: found {name} in it, wanted a folder without one: --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out}: could not be made ({error}); wanted another folder: --out") from None
    return out


def _show(console: Console, problem: lens.LensProblem, result: Result) -> None:
    console.print()
    if result.x is not None:
        before, after = problem.lens(problem.start), problem.lens(result.x)
        messages.say(console, f"RMS spot {before.spot:.3g} µm → {after.spot:.3g} µm; the lens found:")
        for line in str(after).splitlines():
            messages.say(console, line)
        console.print()
    messages.show_ending(console, result)


def _write(console: Console, problem: lens.LensProblem, result: Result, run: Path) -> None:
    """Write the page, if there is matplotlib to draw it; the last line is a command that shows the run."""
    messages.say(console, f"the run:  {run}")
    try:
        need_matplotlib()
    except MissingExtra:
        messages.say(
            console, 'for a page with the lens drawn, run it again after:  pip install "fmnes[plot]"'
        )
    else:
        from fmnes.html.document import report

        page = run.with_name(PAGE)
        with atomic_write(page) as file:
            file.write(report(run, {"lens": _drawn(problem, result)}).encode())
        messages.say(console, f"the lens before and after, and the whole run, as a page:  {page}")
    messages.say(console, f"what failed, with examples:  {_typed('show', run, '--failures')}")


def _typed(*words: str | Path) -> str:
    """A command that works as typed, also where `make run` started a fmnes that is not on the PATH."""
    program = Path(sys.argv[0])
    is_found = program.name != "fmnes" or shutil.which("fmnes") or not program.is_file()
    line = as_line(*words)
    return line if is_found else as_argument(program) + line.removeprefix("fmnes")


def _drawn(problem: lens.LensProblem, result: Result) -> str:
    """A part of the page."""
    if result.x is None:
        return ""
    title = "The lens before and after"
    before, after = problem.lens(problem.start), problem.lens(result.x)
    svg = as_svg(lens.draw(before, after))
    return section(
        title,
        figure(title, svg, _CAPTION, several=True),
        f"<pre tabindex='0'>{text(after, lines=True)}</pre>",
    )
