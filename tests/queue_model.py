"""Objectives for workers of a queue, which import them by name. Each call leaves a line in the file CALLS."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from functools import partial
from typing import Any

import numpy as np

import fmnes


def note(x: Any) -> None:
    if path := os.environ.get("CALLS"):
        with open(path, "a") as file:
            file.write(f"{np.asarray(x, dtype=float).tobytes().hex()} {os.getpid()}\n")


def bumpy(x: Any) -> float:
    """Takes a moment, if SLEEP says so, and fails here and there."""
    note(x)
    time.sleep(float(os.environ.get("SLEEP", "0")))
    if x[0] > 1.2:
        raise fmnes.Infeasible("too far")
    return float(np.sum((x - 0.3) ** 2) + 0.1 * np.sum(1 - np.cos(7 * x)))


def other(x: Any) -> float:
    note(x)
    return float(np.sum(x**2))


def scaled(x: Any, factor: float = 2.0) -> float:
    return factor * other(x)


twice = partial(scaled, factor=2.0)
thrice = partial(scaled, factor=3.0)


def named(point: dict[str, Any]) -> float:
    assert set(point) == {"width", "layers"} and type(point["layers"]) is int
    return (np.log(point["width"]) - 0.7) ** 2 + abs(point["layers"] - 3)


def once_endless(x: Any) -> float:
    """Takes for ever, the first time that anybody calls it with this point."""
    path = f"{os.environ['CALLS']}.{abs(float(x[0]))}"
    if x[0] < 0 and not os.path.exists(path):
        with open(path, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
    return float(x[0])


def troubled(x: Any) -> float:
    """Point by point, all that can happen."""
    note(x)
    match int(x[0]):
        case 1:
            print("about to crash", flush=True)
            ctypes.string_at(0)
        case 2:
            time.sleep(600)
        case 3:
            raise ValueError("mesh")
        case 4:
            sys.exit(3)
        case 5:
            return float("nan")
        case 6:
            raise fmnes.Lost("no licence")
        case 7:
            return 7.5, {"mass": float("inf"), "note": "ü"}  # type: ignore[return-value]
        case 8:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(600)
    return float(x[0])
