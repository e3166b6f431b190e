"""The result of a run: of all its searches together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fmnes.result import Result, Stop, StopReason
from fmnes.run.restarts import ending, has_settled
from fmnes.run.snapshots import RunState
from fmnes.run.succession import searches_until


def conclude(state: RunState, stop: Stop, second_look: bool) -> Result:
    """The last search ended so. second_look: was one wanted?"""
    opt, totals = state.opt, state.totals
    last = opt.result(stop)
    best = totals.best_with(opt)
    searches = searches_until(state, stop)
    reached = opt.target is not None and best.fun <= opt.target
    settled = opt.target is None and np.isfinite(best.fun) and has_settled(searches, second_look)
    failures = state.failures.failures()
    stop, found = ending(searches)
    message = stop.message + found
    if stop.reason is StopReason.NO_FEASIBLE and failures:
        message += f"; most failed with: {failures[0].reason}"
    if not searches[-1].gained and state.searches.looked_at is not None:
        last = replace(last, **state.searches.looked_at._asdict())
    return replace(
        last,
        stop_reason=stop.reason,
        x=None if best.x is None else best.x.copy(),
        fun=best.fun,
        success=bool(reached or settled),
        message=message,
        nfev=state.evaluations,
        nit=totals.generations + last.nit,
        n_infeasible=totals.infeasible + last.n_infeasible,
        n_repeated=totals.repeated + last.n_repeated,
        seed=state.seed,
        sigma0=state.searches.first.sigma,
        second_looks=sum(searched.kind == "look" for searched in searches),
        failures=failures,
        history=state.history.columns(),
    )
