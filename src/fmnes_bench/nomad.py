"""NOMAD as all our comparisons call it: a failed evaluation is an error, and the seed decides the run."""

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
    """What PyNomad returns. A value that is not finite has failed; `fun` may not raise through the C++."""
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

    small = seed % 10_000  # it draws as many numbers as the seed says before it begins
    # SEED acts only where it differs from the one NOMAD holds: otherwise the run is that of its default seed.
    PyNomad.setSeed(small + 1)
    PyNomad.setCustomMegaIterEndCallback(ended)  # keeps no reference: `ended` has to live as long as the run
    parameters = [f"DIMENSION {d}", "BB_OUTPUT_TYPE OBJ", "DISPLAY_DEGREE 0", f"SEED {small}", *settings]
    found: dict[str, Any]
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        found = PyNomad.optimize(answer, start.tolist(), list(lower), list(upper), parameters)
    finally:
        # NOMAD leaves a handler of its own, by which a later Ctrl-C ends the process or is lost.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
    return found
