"""The evaluations of a run as a table, and as a file for other programs."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError, MissingExtra, RunError, nearest
from fmnes.space import Space
from fmnes.storage.log_reader import Batch, Kind, Tally

# -- The evaluations of a run, by columns.


#: Rows that are turned into Python's numbers at a time.
_ROWS = 1000
_BEFORE = ("restart", "generation", "slot", "redraw", "attempt", "status", "value")
_AFTER = ("reason", "fault", "detail", "seconds", "started")
Column = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluations:
    """Every evaluation of a run, in the user's names and units, ordered by restart, generation and slot.

    `evaluations["value"]` is a column, and `evaluations.columns` are the names of all columns, including
    parameters and outputs. Iterating yields a dict for each evaluation, and `to_pandas()` returns a
    DataFrame. In all of these a parameter whose name is that of another column is named "parameter.NAME", an
    output "output.NAME".

    Attributes
    ----------
    restart : ndarray of int
        The search that asked for it: 0, then 1 more with each restart or confirmation search. All columns are
        (n,).
    generation : ndarray of int
        Generation of that search, from 0; -1 for the start, which is evaluated before the first.
    slot : ndarray of int
        The point's place in its generation.
    redraw : ndarray of int
        How often its slot was drawn again before, if failed points are resampled; otherwise 0.
    attempt : ndarray of int
        How often this point was tried before, and was lost.
    status : ndarray
        "value", "infeasible" (it failed) or "lost" (the machine failed).
    value : ndarray
        The objective's value; NaN if there is none.
    parameters : dict of str to ndarray
        The points: a column for each name; whole numbers as int64. Empty above 10,000 coordinates, which
        are not stored.
    outputs : dict of str to ndarray
        Further outputs: a column for each name; NaN or None if an evaluation has none of that name.
    reason : ndarray
        Why it failed or was lost; empty for a value.
    fault : ndarray
        What broke, if it was not the objective's own answer: "ValueError", "SIGSEGV", "timeout", …
    detail : ndarray
        The tail of the traceback, or of what the program wrote.
    seconds : ndarray
        How long it took.
    started : ndarray
        When it began, in seconds since 1970 (UTC).

    Examples
    --------
    >>> import fmnes
    >>> space = {"width": fmnes.Real(0, 1), "layers": fmnes.Integer(1, 4)}
    >>> def cost(p):
    ...     return p["width"] ** 2 + p["layers"], {"mass": 2.0 * p["layers"]}
    >>> result = fmnes.minimize(cost, space, max_evaluations=20, rng=1, keep_evaluations=True)
    >>> table = result.evaluations
    >>> len(table), sorted(table.parameters), list(table.outputs)
    (20, ['layers', 'width'], ['mass'])
    >>> table["layers"].dtype.name
    'int64'
    """

    restart: NDArray[np.int64]
    generation: NDArray[np.int64]
    slot: NDArray[np.int64]
    redraw: NDArray[np.int64]
    attempt: NDArray[np.int64]
    status: Column
    value: NDArray[np.float64]
    parameters: dict[str, Column]
    outputs: dict[str, Column]
    reason: Column
    fault: Column
    detail: Column
    seconds: NDArray[np.float64]
    started: NDArray[np.float64]

    @classmethod
    def of(
        cls, batches: Iterable[Batch], space: Space | None, kinds: Mapping[str, Kind] | None = None
    ) -> Evaluations:
        """Make a table of evaluations that are in the search's numbers.

        Parameters
        ----------
        batches : iterable of Batch
            The rows, as the log has them.
        space : Space or None
            Names and units; None if they are not known: then the points are left out.
        kinds : dict of str to str, optional
            Kinds of the outputs, if `batches` are only a part of the run.

        Returns
        -------
        Evaluations
            The table.
        """
        found = list(batches)
        keys = np.concatenate([np.empty((0, 5), np.int64), *(batch.keys for batch in found)])
        status = _texts(found, "statuses")
        outputs = [one for batch in found for one in batch.outputs]
        if kinds is None:
            kinds = Tally.of(outputs).kinds()
        value = np.concatenate([np.empty(0), *(batch.values for batch in found)])
        return cls(
            restart=keys[:, 0].copy(),
            generation=keys[:, 1].copy(),
            slot=keys[:, 2].copy(),
            redraw=keys[:, 3].copy(),
            attempt=keys[:, 4].copy(),
            status=status,
            value=np.where(status == "value", value, np.nan),
            parameters=_parameters(found, space),
            outputs={name: _output(name, kind, outputs) for name, kind in kinds.items()},
            reason=_texts(found, "reasons"),
            fault=_texts(found, "faults"),
            detail=_texts(found, "details"),
            seconds=np.concatenate([np.empty(0), *(batch.seconds for batch in found)]),
            started=np.concatenate([np.empty(0), *(batch.started for batch in found)]),
        )

    def __len__(self) -> int:
        return len(self.value)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(self._table())

    def __getitem__(self, name: str) -> Column:
        table = self._table()
        if name not in table:
            raise ArgumentError(
                f"evaluations: found the column {name!r}, wanted one of {', '.join(table)}"
                f"{nearest(str(name), table)}"
            )
        return table[name]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self.columns
        return (dict(zip(names, row, strict=True)) for row in self.rows())

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of each evaluation, in the order of `columns`, as Python objects.

        Yields
        ------
        tuple
            One evaluation.
        """
        table = self._table()
        for begin in range(0, len(self), _ROWS):
            columns = [column[begin : begin + _ROWS].tolist() for column in table.values()]
            yield from zip(*columns, strict=True)

    def __repr__(self) -> str:
        counts = ", ".join(f"{np.sum(self.status == s)} {word}" for s, word in _WORDS if s in self.status)
        return f"Evaluations({len(self)}{': ' * bool(counts)}{counts}; columns {', '.join(self.columns)})"

    def to_pandas(self) -> Any:
        """Return the table as a DataFrame.

        Returns
        -------
        pandas.DataFrame
            One column per name in `columns`.

        Raises
        ------
        MissingExtra
            pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            if error.name != "pandas":
                raise
            raise MissingExtra("to_pandas", "data") from None
        return pandas.DataFrame(self._table())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table as CSV: one line per evaluation, after one with the names of the columns.

        Parameters
        ----------
        path : path
            The file.
        """

        write([self], "csv", path)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the table as JSON: a list with an object for each evaluation.

        Parameters
        ----------
        path : path
            The file.
        """

        write([self], "json", path)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the table as Parquet.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        MissingExtra
            pyarrow is not installed.
        """

        write([self], "parquet", path)

    def _table(self) -> dict[str, Column]:
        """All columns by name; names are unique."""
        table: dict[str, Column] = {name: getattr(self, name) for name in _BEFORE}
        taken = {*_BEFORE, *_AFTER}
        for prefix, columns in (("parameter.", self.parameters), ("output.", self.outputs)):
            for name, column in columns.items():
                while name in taken:
                    name = prefix + name
                taken.add(name)
                table[name] = column
        return table | {name: getattr(self, name) for name in _AFTER}


_WORDS = (("value", "with a value"), ("infeasible", "failed"), ("lost", "lost"))


def _texts(batches: list[Batch], field: str) -> Column:
    return np.array([text for batch in batches for text in getattr(batch, field)], dtype=object)


def _parameters(batches: list[Batch], space: Space | None) -> dict[str, Column]:
    if space is None:
        return {}
    points = [batch.x for batch in batches if batch.x is not None]
    if len(points) < len(batches):  # too long to be kept
        return {}
    d = len(space.names)
    for x in points:
        if x.shape[1] != d:
            raise RunError(f"evaluations: found points of {x.shape[1]} coordinates, wanted {d}")
    return space.columns(np.concatenate([np.empty((0, d)), *points]))


def _output(name: str, kind: Kind, outputs: list[dict[str, Any] | None]) -> Column:
    values = [None if found is None else found.get(name) for found in outputs]
    gaps = None in values
    if kind == "number" or (kind == "whole" and gaps):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    if kind in ("whole", "flag") and not gaps:
        return np.array(values, dtype=np.int64 if kind == "whole" else np.bool_)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


# -- The evaluations as a file for other programs: CSV, JSON or Parquet.
#
# Tables come one after another, so that a large run is never in memory as a whole.


Format = Literal["csv", "json", "parquet"]


def write(tables: Iterable[Evaluations], format: Format, path: str | os.PathLike[str]) -> None:
    """Write at least one table, all with the same columns, to a file atomically."""
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
