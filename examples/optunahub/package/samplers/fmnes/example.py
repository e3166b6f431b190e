"""A simulation that fails in most of the space, and whose optimum lies at the edge of what works."""

from __future__ import annotations

from pathlib import Path

import optuna
import optunahub


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -6, 10)
    y = trial.suggest_float("y", -6, 10)
    n = trial.suggest_int("n", 1, 64, log=True)
    if x < 0 or y < 0:
        raise ValueError("the simulation diverged")
    return x**2 + y**2 + abs(n - 8)


# From the registry: optunahub.load_module("samplers/fmnes").FMNESSampler
registry = Path(__file__).resolve().parents[2]
module = optunahub.load_local_module("samplers/fmnes", registry_root=str(registry))

study = optuna.create_study(sampler=module.FMNESSampler(seed=1))
study.optimize(objective, n_trials=300, catch=(ValueError,))
failed = len(study.get_trials(states=(optuna.trial.TrialState.FAIL,)))
print(f"{failed} of 300 trials failed; best {study.best_value:.3g} at {study.best_params}")
