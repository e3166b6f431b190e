"""Checks of what users give the sampler, before the first trial."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from fmnes.arguments import check_rng, one_population_size, shown
from fmnes.errors import ArgumentError
from fmnes.integrations.optuna.ranges import Ranges, is_searched
from fmnes.search.optimizer import Optimizer
from fmnes.strategies import Resampling, Strategy, resolve


def settled(
    method: str | Strategy | Resampling, population_size: int | None
) -> tuple[Strategy | Resampling, int | None]:
    """The method without a population of its own, and the population; tried out, so that what is wrong with
    them is said before the first trial."""
    Optimizer([0.0, 0.0], 1.0, method=method, population_size=population_size)
    strategy, max_redraws = resolve(method)
    size = one_population_size(population_size, strategy.population_size)
    if strategy.population_size is not None:
        strategy = replace(strategy, population_size=None)  # type: ignore[type-var]
    settled: Any = strategy if max_redraws is None else Resampling(strategy, max_redraws)  # type: ignore[arg-type]
    return settled, size


def check_seed(seed: Any) -> int:
    try:
        checked = check_rng(seed)[1]
    except ArgumentError:
        checked = None
    if checked is None:
        raise ArgumentError(f"seed: found {shown(seed)}, wanted a whole number >= 0, or None")
    return checked


def check_space(search_space: Any) -> Ranges:
    if not isinstance(search_space, Mapping) or not all(
        isinstance(name, str) and isinstance(found, BaseDistribution) for name, found in search_space.items()
    ):
        raise ArgumentError(
            f"search_space: found {shown(search_space)}, wanted a dict such as "
            "{'width': optuna.distributions.FloatDistribution(0, 1)}"
        )
    return {name: search_space[name] for name in sorted(search_space) if is_searched(search_space[name])}


def described(
    method: Strategy | Resampling,
    population_size: int | None,
    sigma0: float | None,
    x0: Mapping[str, Any] | None,
    source_trials: Sequence[FrozenTrial] | None,
) -> str:
    """What makes one search another one, as text that is the same in each process."""
    complete = [t for t in source_trials or () if t.state is TrialState.COMPLETE]
    source = [[t.number, t.params, t.value] for t in complete]
    arguments = [repr(method), population_size, sigma0, None if x0 is None else dict(x0), source]
    return json.dumps(arguments, sort_keys=True, default=repr)
