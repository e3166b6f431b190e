"""A sampler for Optuna that learns from failed trials.

    study = optuna.create_study(sampler=fmnes.integrations.optuna.FMNESSampler(seed=1))
    study.optimize(objective, n_trials=1000, catch=(Exception,))

A trial that fails, is pruned or returns NaN is a failed point; one whose process died is lost, and its point
is evaluated again. All that it knows lies in the trials of the study.
"""

from __future__ import annotations

from fmnes.errors import MissingExtra

try:
    import optuna  # noqa: F401
except ImportError as error:
    raise MissingExtra("fmnes.integrations.optuna", "optuna") from error

from fmnes.integrations.optuna.sampler import FMNESSampler

__all__ = ["FMNESSampler"]
