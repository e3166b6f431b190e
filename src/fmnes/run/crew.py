"""λ from the number of workers: `population_size="workers"`."""

from __future__ import annotations

import os
from typing import Any

from fmnes.arguments import shown
from fmnes.errors import ArgumentError

#: Beyond so many points for each dimension a larger λ saves no time (docs/benchmarks/scale.md).
MOST_PER_DIMENSION = 50


def population_for(workers: int, d: int, usual: int) -> int:
    """So many that each worker has a point, never fewer than usual; an even number."""
    size = max(usual, min(workers, MOST_PER_DIMENSION * d))
    return size + size % 2


def count_crew(workers: int, executor: Any, vectorized: bool) -> int:
    """How many evaluations are made at a time."""
    if vectorized:
        raise ArgumentError(
            'population_size: found "workers" together with vectorized, where there are none; wanted a number'
        )
    if executor is None:
        return cores() if workers == -1 else workers
    from fmnes.evaluation.executors import count_workers  # needed with an executor only

    found = count_workers(executor)
    if found is None:
        raise ArgumentError(
            f'population_size: found "workers" with {shown(executor)}, which does not say how many it has; '
            "wanted a number"
        )
    return found


def cores() -> int:
    """Those that this process may use, which a batch system may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
