"""`fmnes export`: the evaluations of a run for other programs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fmnes.cli import places
from fmnes.errors import ArgumentError, RunError
from fmnes.records.writing import write, write_stream
from fmnes.run.reading import read_run


class Format(StrEnum):
    csv = "csv"
    json = "json"
    parquet = "parquet"


def export(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    format: Annotated[
        Format | None,
        typer.Option(help="By default what the name of --output ends in, or csv.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="A file to write; by default the standard output.", show_default=False),
    ] = None,
) -> None:
    """Write every evaluation of a run, in its names and units, as CSV, JSON or Parquet."""
    if format is None:
        ending = "" if output is None else output.suffix.removeprefix(".").lower()
        format = Format(ending) if ending in [known.value for known in Format] else Format.csv
    if output is None and format is Format.parquet:
        raise ArgumentError("output: found none, wanted a file for Parquet: --output evaluations.parquet")
    places.check_run(run)
    tables = read_run(run).tables()
    if output is not None:
        write(tables, format.value, output)
        return
    try:
        # Bytes: what a terminal's encoding lacks must not be spelt out in a file.
        with open(sys.stdout.fileno(), "wb", closefd=False) as file:
            write_stream(tables, format.value, file)
    except BrokenPipeError:  # whoever reads it has had enough
        pass
    except OSError as error:
        raise RunError(f"the output could not be written ({error})") from None
