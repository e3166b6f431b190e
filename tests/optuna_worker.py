"""One process of a study, for tests that kill it: `python optuna_worker.py KIND PATH TRIALS OPTIONS`.

Options (JSON): those of the sampler, and of ours "hang_at": at its n-th trial it says so and waits to be
killed; "heartbeat": seconds; "seconds": of each trial.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend

from fmnes.integrations.optuna import FMNESSampler

RETRY = getattr(optuna.storages, "RetryHeartbeatStaleTrialCallback", None)


def open_storage(kind: str, path: str, heartbeat: int | None = None, retry: bool = False) -> Any:
    if kind == "memory":
        return optuna.storages.InMemoryStorage()
    if kind == "journal":
        return optuna.storages.JournalStorage(JournalFileBackend(path))
    options: dict[str, Any] = {"heartbeat_interval": heartbeat, "grace_period": heartbeat and 2 * heartbeat}
    if retry:
        if RETRY is not None:
            options["heartbeat_stale_trial_callback"] = RETRY(max_retry=5)
        else:
            options["failed_trial_callback"] = optuna.storages.RetryFailedTrialCallback(max_retry=5)
    return optuna.storages.RDBStorage(f"sqlite:///{path}", **options)


def corner(trial: optuna.Trial, d: int = 3) -> float:
    """The sphere whose optimum lies in the corner of what works."""
    x = [trial.suggest_float(f"x{i}", -6, 10) for i in range(d)]
    if min(x) < 0:
        raise ValueError("outside")
    return sum(value * value for value in x)


def main(kind: str, path: str, trials: str, options: str) -> None:
    given = json.loads(options)
    hang_at, seconds = given.pop("hang_at", None), given.pop("seconds", 0.0)
    heartbeat = given.pop("heartbeat", None)
    storage = open_storage(kind, path, heartbeat, given.pop("retry", False))
    study = optuna.create_study(
        study_name="s", storage=storage, sampler=FMNESSampler(**given), load_if_exists=True
    )
    count = 0

    def objective(trial: optuna.Trial) -> float:
        nonlocal count
        count += 1
        value = trial.suggest_float("x0", -6, 10)  # the point is taken with the first value
        if count == hang_at:
            time.sleep(1.0 if heartbeat else 0.0)  # for its first one: without that nobody misses it
            print(json.dumps({"trial": trial.number, "x0": value}), flush=True)
            time.sleep(60)
        time.sleep(seconds)
        return corner(trial)

    study.optimize(objective, n_trials=int(trials), catch=(ValueError,))


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    main(*sys.argv[1:])
