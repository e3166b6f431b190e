"""The log messages of a run; see errors.py."""

from __future__ import annotations

from typing import Any

from fmnes.errors import logger, one_line
from fmnes.outcome import START, EvaluationId
from fmnes.result import Result, Stop, View
from fmnes.run.restarts import Plan
from fmnes.run.settings import BOX
from fmnes.run.snapshots import RunState
from fmnes.search.optimizer import Optimizer

_ORIGIN_WORDS: dict[Any, str] = {
    "best": "the best point",
    "uniform": "a random point",
    ("small", BOX): "a basin that no search was in",
}


def begins(state: RunState, max_evaluations: int | None) -> None:
    opt = state.opt
    logger.info(
        "run begins at evaluation %d: %s, d = %d, population %d, %s",
        state.evaluations,
        opt.strategy.name,
        len(opt.mean),
        opt.population_size,
        f"at most {max_evaluations} evaluations" if max_evaluations else "evaluations without a limit",
    )


def searches_again(plan: Plan, stop: Stop, evaluations: int) -> None:
    logger.info(
        "search ended at evaluation %d: %s; %s begins at %s, population %d",
        evaluations,
        one_line(stop.message),
        "a second look" if plan.kind == "look" else f"a restart ({plan.kind})",
        _ORIGIN_WORDS.get((plan.kind, plan.origin)) or _ORIGIN_WORDS.get(plan.origin, "the start"),
        plan.population_size,
    )


def observed(view: View) -> None:
    """After each generation."""
    logger.debug(
        "generation %d: %d evaluations, %d failed, best %g, sigma %g",
        view.generation,
        view.evaluations,
        view.n_infeasible,
        view.best.fun,
        view.sigma,
    )


def noise_seen(opt: Optimizer) -> None:
    noise = opt.noise
    assert noise is not None and noise.found is not None
    size = max(abs(noise.found.first), abs(noise.found.again))
    logger.info(
        "the objective is noisy: values at the same point differ by about %.2g (%.2g %%): %.9g and %.9g, at "
        "evaluation %d",
        noise.deviation,
        100 * noise.deviation / size if size else 0.0,
        *noise.found,
        noise.found_at,
    )


def lost(id: EvaluationId, tries: int, retries: int, reason: str) -> None:
    where = "of the start" if id.generation == START else f"of generation {id.generation}, point {id.slot},"
    left = "it is tried again" if tries <= retries else "no tries are left"
    logger.warning("evaluation %s lost, try %d: %s; %s", where, tries, one_line(reason), left)


def ended(result: Result) -> None:
    logger.info(
        "run ended with fun = %g after %d evaluations, %d failed: %s",
        result.fun,
        result.nfev,
        result.n_infeasible,
        one_line(result.message),
    )
