"""Hyper-parameters of a training that diverges, through Optuna.

    python -m examples.training.run [--evaluations 300] [--seed 0] [--out DIR]

With --out, DIR/training.svg is the picture of docs/training.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from examples import make_folder

from .network import LOG, RANGES, loss

QUICK = 20


def objective(trial: Any) -> float:
    """NaN, where the training has diverged, is a failed trial."""
    return loss(**{name: suggested(trial, name, *ends) for name, ends in RANGES.items()})


def suggested(trial: Any, name: str, low: float, high: float) -> Any:
    if isinstance(low, int):
        return trial.suggest_int(name, low, high)
    return trial.suggest_float(name, low, high, log=name in LOG)


def middle() -> dict[str, float]:
    """Of all ranges: where one begins who knows nothing."""
    return {name: _between(name, *ends) for name, ends in RANGES.items()}


def _between(name: str, low: float, high: float) -> float:
    if name in LOG:
        return math.sqrt(low * high)
    return (low + high) // 2 if isinstance(low, int) else (low + high) / 2


def search(evaluations: int, seed: int) -> Any:
    """The study."""
    import optuna

    from fmnes.integrations.optuna import FMNESSampler

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # it warns of every NaN
    study = optuna.create_study(sampler=FMNESSampler(seed=seed, warn_independent_sampling=False))
    study.enqueue_trial(middle())
    study.optimize(objective, n_trials=evaluations)
    return study


def draw(study: Any) -> Any:
    """Learning rate and momentum of all trials, and the best so far."""
    from fmnes.plots import drawing

    figure = drawing.blank(11, 4.6)
    where, course = drawing.panel(figure, 1, 2, 1), drawing.panel(figure, 1, 2, 2)
    trials = study.trials
    rate = np.array([trial.params["rate"] for trial in trials])
    momentum = np.array([trial.params["momentum"] for trial in trials])
    values = np.array([math.nan if trial.value is None else trial.value for trial in trials])
    failed, numbers = np.isnan(values), 1 + np.arange(len(values))

    worst = 3 * np.nanmedian(values)  # what is on its way to infinity would leave no colours for the others
    shown = where.scatter(
        rate[~failed], momentum[~failed], c=np.minimum(values[~failed], worst), cmap="viridis_r", s=18
    )
    where.plot(rate[failed], momentum[failed], "x", color=drawing.FAILED, markersize=5, label="diverged")
    where.plot(*_best(study), "*", color=drawing.BLACK, markersize=13, label="best")
    drawing.log_scale(where, "x")
    where.set(xlabel="learning rate, log scale", ylabel="momentum")
    drawing.title(where, "Where trainings diverge")
    figure.colorbar(shown, ax=where, label="loss", extend="max")

    best = np.fmin.accumulate(values)
    course.step(numbers, best, where="post", color=drawing.BLUE, label="best so far")
    top = 3 * np.nanmax(best)
    inside = ~failed & (values < top)
    course.plot(numbers[inside], values[inside], ".", color=drawing.SKY, markersize=4, label="trials")
    course.plot(
        numbers[failed], np.full(failed.sum(), top), "|", color=drawing.FAILED, markersize=9, label="diverged"
    )
    drawing.log_scale(course, "y")
    course.set(xlabel="trial", ylabel="loss, log scale")
    drawing.title(course, "The course")
    drawing.legend(figure, course)
    return figure


def _best(study: Any) -> tuple[list[float], list[float]]:
    return [study.best_params["rate"]], [study.best_params["momentum"]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--evaluations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder for the picture")
    given = parser.parse_args(arguments)
    for package, extra in {"optuna": "optuna", **({"matplotlib": "plot"} if given.out else {})}.items():
        if not find_spec(package):
            raise SystemExit(f'{package} is not installed: pip install "fmnes[{extra}]"')
    make_folder(given.out)

    study = search(given.evaluations, given.seed)
    failed = sum(trial.value is None for trial in study.trials)
    print(f"loss {study.trials[0].value:.3g} in the middle of the ranges → {study.best_value:.3g}, with")
    print(", ".join(f"{name} {value:.3g}" for name, value in study.best_params.items()))
    print(f"{len(study.trials)} trainings, {failed} of them diverged ({failed / len(study.trials):.0%})")
    if given.out:
        from fmnes.plots import as_svg

        picture = given.out / "training.svg"
        picture.write_text(as_svg(draw(study)) + "\n", encoding="utf-8")
        print(f"the picture is {picture}")


if __name__ == "__main__":
    main()
