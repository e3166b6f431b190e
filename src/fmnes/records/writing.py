"""The evaluations as a file for other programs: CSV, JSON or Parquet.

Tables come one after another, so that a large run is never in memory as a whole.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from fmnes.errors import MissingExtra, RunError
from fmnes.records.table import Column, Evaluations

Format = Literal["csv", "json", "parquet"]


def write(tables: Iterable[Evaluations], format: Format, path: str | os.PathLike[str]) -> None:
    """Write tables with the same columns, of which there is at least one, to a file: all or nothing."""
    path = Path(path)
    # A device or a pipe is written to; a file is replaced when the new one is there.
    plain = path.is_file() or not path.exists()
    target = path.with_name(f".{path.name}.{os.getpid()}.tmp") if plain else path
    try:
        try:
            with open(target, "wb") as file:
                _WRITERS[format](tables, file)
            if plain:
                os.replace(target, path)
        finally:
            if plain:
                target.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"{path}: could not be written ({error.strerror or error})") from None


def write_csv(tables: Iterable[Evaluations], file: BinaryIO) -> None:
    """Floats with all their digits; NaN and None are empty cells."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    # With "\r\n" at the ends of lines both of these are quoted inside of a cell.
    writer = csv.writer(text, lineterminator="\r\n")
    for i, table in enumerate(tables):
        if i == 0:
            writer.writerow(table.columns)
        # Of all values only NaN differs from itself.
        writer.writerows(["" if value != value else value for value in row] for row in table.rows())
    text.detach()


def write_json(tables: Iterable[Evaluations], file: BinaryIO) -> None:
    """A list with an object on each line. NaN is null, and infinity the text "inf" or "-inf"."""
    separator = b"[\n"
    encode = json.JSONEncoder(allow_nan=False).encode
    for table in tables:
        names = table.columns
        for row in table.rows():
            plain = {name: _plain(value) for name, value in zip(names, row, strict=True)}
            file.write(separator + encode(plain).encode())
            separator = b",\n"
    file.write(b"[]\n" if separator == b"[\n" else b"\n]\n")


def write_parquet(tables: Iterable[Evaluations], file: BinaryIO) -> None:
    """Columns of texts, whole numbers, numbers or flags; outputs that are now this, now that are texts."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise MissingExtra("writing Parquet", "data") from None
    writer: Any = None
    for table in tables:
        columns = {name: table[name] for name in table.columns}
        if writer is None:
            types = {"f": pyarrow.float64(), "i": pyarrow.int64(), "b": pyarrow.bool_()}
            schema = pyarrow.schema(
                [(name, types.get(column.dtype.kind, pyarrow.string())) for name, column in columns.items()]
            )
            writer = pyarrow.parquet.ParquetWriter(file, schema)
        arrays = [_arrow(pyarrow, columns[field.name], field.type) for field in schema]
        writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
    writer.close()


_WRITERS: Mapping[Format, Any] = {"csv": write_csv, "json": write_json, "parquet": write_parquet}


def write_stream(tables: Iterable[Evaluations], format: Format, file: BinaryIO) -> None:
    """The same to a stream, such as the standard output."""
    _WRITERS[format](tables, file)


def _arrow(pyarrow: Any, column: Column, kind: Any) -> Any:
    if kind == pyarrow.string():
        return pyarrow.array([None if value is None else str(value) for value in column], type=kind)
    # A whole number may be missing in a run that goes on: then it is a float here, with NaN for a gap.
    if column.dtype.kind == "f" and kind == pyarrow.int64():
        return pyarrow.array([None if np.isnan(value) else int(value) for value in column], type=kind)
    return pyarrow.array(column, type=kind)


def _plain(value: Any) -> Any:
    if type(value) is float and not math.isfinite(value):
        return None if math.isnan(value) else repr(value)
    return value
