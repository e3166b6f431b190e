"""NOMAD as all comparisons call it: a failed evaluation is an error, and the seed determines the run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def optimize(
    fun: Callable[[NDArray[np.float64]], float],
    start: NDArray[np.float64],
    lower: Sequence[float],
    upper: Sequence[float],
    settings: Sequence[str],
    seed: int,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run NOMAD and return its result. Non-finite values are failures; `fun` must not raise."""
    import PyNomad

    d = len(start)

    def answer(point: Any) -> bool:
        value = fun(np.array([point.get_coord(i) for i in range(d)]))
        if not np.isfinite(value):
            return False
        point.setBBO(repr(float(value)).encode())
        return True

    def ended(_: Any) -> bool:
        return stop()

    small = seed % 10_000  # NOMAD draws `seed` numbers before it begins
    # SEED has an effect only if it differs from the current one.
    PyNomad.setSeed(small + 1)
    PyNomad.setCustomMegaIterEndCallback(ended)  # keeps no reference to `ended`
    parameters = [f"DIMENSION {d}", "BB_OUTPUT_TYPE OBJ", "DISPLAY_DEGREE 0", f"SEED {small}", *settings]
    found: dict[str, Any]
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        found = PyNomad.optimize(answer, start.tolist(), list(lower), list(upper), parameters)
    finally:
        # NOMAD leaves its own handler, with which a later Ctrl-C ends the process or is ignored.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
    return found
