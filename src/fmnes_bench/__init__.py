"""Benchmarks, the reproduction of the paper, real problems and the demo."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fmnes.arguments import shown
from fmnes.errors import ArgumentError


def columns_of(points: Any, names: Collection[str]) -> tuple[dict[str, Any], int | None]:
    """{name: numbers}, and how many points there are; None: one, given as one.

    points: {name: number} or (d,) for one, {name: (n,)} or (n, d) for many.
    """
    if isinstance(points, Mapping):
        columns = {name: np.asarray(value) for name, value in points.items()}
        missing = [name for name in names if name not in columns]
        unknown = [name for name in columns if name not in names]
        if missing or unknown:
            what = f"without {missing[0]!r}" if missing else f"with {shown(unknown[0])}"
            raise ArgumentError(f"points: found a dict {what}, wanted {', '.join(names)}")
    else:
        array = np.asarray(points)
        if array.ndim not in (1, 2) or array.shape[-1] != len(names):
            d = len(names)
            raise ArgumentError(f"points: found shape {array.shape}, wanted ({d},) or (n, {d})")
        columns = dict(zip(names, np.moveaxis(array, -1, 0), strict=True))
    shapes = {column.shape for column in columns.values()}
    if len(shapes) != 1 or len(shape := shapes.pop()) > 1:
        raise ArgumentError(
            "points: found columns of different shapes, wanted a number or (n,) for each name"
        )
    for name, column in columns.items():
        if column.dtype.kind not in "fiu":
            raise ArgumentError(f"points: found {name} = {shown(column.tolist())}, wanted real numbers")
    return columns, shape[0] if shape else None
