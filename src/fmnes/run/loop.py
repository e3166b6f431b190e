"""The loop of a run: evaluate, observe, stop, go from search to search, and conclude."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError, StorageError
from fmnes.evaluation.evaluator import Evaluator
from fmnes.outcome import START, EvaluationId, bug_name
from fmnes.progress import Progress
from fmnes.result import Best, Result, Stop, StopReason, View
from fmnes.run import log_messages
from fmnes.run.answering import evaluate_answer, last_evaluations, noise_in_words
from fmnes.run.checks import LostEvaluations, OutcomeChecks
from fmnes.run.evaluate import (
    Batch,
    Work,
    attained,
    count_lost,
    evaluate,
    evaluate_generation,
    is_answer,
    output_row,
)
from fmnes.run.history import COLUMNS
from fmnes.run.interrupts import StopRequestWatcher
from fmnes.run.overlap import OverlappingPoints, evaluate_overlapping
from fmnes.run.recording import Recorder
from fmnes.run.restarts import (
    CONFIRM_XTOL,
    Plan,
    SearchSummary,
    confirms,
    ending,
    has_converged,
    is_better,
    next_search,
)
from fmnes.run.settings import BOX, Settings
from fmnes.run.snapshots import RunState, Snapshots
from fmnes.run.state import ConfirmedSearch, StartPoint, StoppedWorking
from fmnes.search.advance import again, again_in_box
from fmnes.search.answer import (
    constraints_at,
    ends_within_limits,
    estimate,
    noise_fields,
    violated_in_words,
)
from fmnes.search.counting import note_outside, note_start
from fmnes.search.noise_watch import noisy
from fmnes.search.optimizer import Optimizer
from fmnes.search.stopping import budget_spent, fails_at, limit_reached, steps_below, stop_at, target_stop

# -- From one search to the next

_GENERATION_BEST = COLUMNS.index("generation_best")


def run_limit_reached(state: RunState, settings: Settings) -> Stop | None:
    """Why the run ends by the target or the budget of all searches together, if so."""
    best = state.totals.best_with(state.opt)
    return target_stop(state.opt, best) or budget_spent(state.evaluations, settings.max_evaluations)


def evaluations_left(state: RunState, settings: Settings) -> int | None:
    return None if settings.max_evaluations is None else settings.max_evaluations - state.evaluations


def plan_next(state: RunState, settings: Settings, stop: Stop, timed: bool) -> Plan | None:
    """The next search, or None if the run is over. timed: there is a deadline."""
    left = evaluations_left(state, settings)
    if not stop.reason.restartable or (left is not None and left - state.last_answers <= 0):
        return None
    if stop.reason is StopReason.NO_FEASIBLE and state.opt.exploring is not None:
        return None  # no point of the whole box has worked
    return next_search(
        searches_until(state, stop),
        restarts=settings.restarts,
        restart_from=settings.restart_from or (BOX if state.opt.restarts_in_box else "start"),
        # A second look compares single values, which noise makes different.
        look=settings.second_look and state.opt.target is None and not noisy(state.opt),
        limited=left is not None or timed,
        even=state.opt.strategy.mirrored,
        rng=state.opt.rng,
        adaptive=state.opt.strategy.adapts_population_size,
    )


def searches_until(state: RunState, stop: Stop) -> list[SearchSummary]:
    """Summaries of all searches; the present one has ended with `stop`."""
    plan, opt = state.searches.plan, state.opt
    gained = (plan.kind != "look" and plan.origin != BOX) or has_gained(state)
    failing = fails_at(opt, stop)
    in_vain = plan.kind == "look" and failing and not gained
    return [
        *state.searches.past,
        SearchSummary(
            plan.kind,
            plan.population_size,
            opt.evaluations,
            gained,
            failing or _settled_elsewhere(state),
            stop,
            opt.steps_supported and (not in_vain or _came_back(state)),
            opt.narrow,
            ends_within_limits(opt),
        ),
    ]


def has_gained(state: RunState) -> bool:
    """Whether the present search found a better point than those before."""
    return is_better(state.opt.best.fun, state.totals.best.fun, _first_value(state))


def _settled_elsewhere(state: RunState) -> bool:
    """Whether the present search has seen a better value than where it ended, as in another basin."""
    last = min(state.opt.recent_bests, default=np.inf)
    return bool(np.isfinite(last)) and is_better(state.opt.best.fun, last, _first_value(state))


def _came_back(state: RunState) -> bool:
    """Whether a confirmation search ended with values about as good as the best.

    One that ended with worse values among failures says nothing about the best point: on its way back the
    failures shortened its steps.
    """
    bests = state.opt.recent_bests
    return not bests or confirms(min(bests), state.totals.best.fun, _first_value(state))


def _first_value(state: RunState) -> float:
    """The value of the start or of the first generation in which a point succeeds, the larger one."""
    # Plain floats: a bool of NumPy cannot be stored in a snapshot.
    bests = state.history.rows[:, _GENERATION_BEST]
    firsts = [state.start.value, *bests[np.isfinite(bests)][:1].tolist()]
    return max((f for f in firsts if np.isfinite(f)), default=state.totals.best.fun)


def begin_next(state: RunState, settings: Settings, plan: Plan, stop: Stop) -> None:
    """Begin the planned search after the present one has ended with `stop`."""
    left = evaluations_left(state, settings)
    x0 = _origin(state, plan.origin)
    if plan.origin == BOX:
        opt = again_in_box(state.opt, stop.reason, x0, plan.kind == "small", plan.population_size, left)
    else:
        share = plan.step if plan.origin == "best" else 1.0
        sigma0 = state.searches.first.sigma0 * plan.step
        opt = again(state.opt, x0, sigma0, plan.population_size, left, share)
    searches = state.searches
    searches.past = searches_until(state, stop)
    if (plan.kind == "look" or plan.origin == BOX) and searches.past[-1].gained:
        searches.confirmed_search = ConfirmedSearch.of(state.opt)
    searches.plan = plan
    state.totals.take(state.opt)
    best = state.totals.best
    if best.x is not None:
        note_outside(opt, best.x, best.fun, opt.best_outputs)
    state.opt = opt


def check_origin(opt: Optimizer, restart_from: str | None) -> None:
    """Raises ArgumentError unless restarts can begin at this origin."""
    if restart_from == "uniform" and not opt.has_finite_bounds:
        raise ArgumentError(
            "restart_from: found 'uniform' and not all bounds finite; wanted finite bounds, or 'start'"
        )


def _origin(state: RunState, origin: str) -> NDArray[np.float64]:
    best = state.totals.best_with(state.opt)
    if origin == BOX:  # x0, unless it is known to fail
        origin = "best" if state.start.made and np.isnan(state.start.value) else "start"
    if origin == "best" and best.x is not None:
        found: NDArray[np.float64] = best.x
        return found
    bounds = state.opt.bounds
    if origin == "uniform" and bounds is not None:
        share = state.opt.rng.random(len(bounds.lower))
        x: NDArray[np.float64] = (1 - share) * bounds.lower + share * bounds.upper
        return x
    return state.searches.first.x0


# -- The result


def build_result(state: RunState, stop: Stop, second_look: bool) -> Result:
    """The result after the last search ended with `stop`. second_look: the option."""
    opt, totals = state.opt, state.totals
    last = opt.result(stop)
    best = totals.best_with(opt)
    searches = searches_until(state, stop)
    answer, error = estimate(opt, best)
    again = state.answer if noisy(opt) else None
    if again is not None:
        answer, error = Best(again.x, again.mean, 0), again.error
    reached = opt.target is not None and best.fun <= opt.target
    if noisy(opt):
        met = opt.target is not None and again is not None and again.mean <= opt.target
        reached = met and stop.reason is StopReason.TARGET
    settled = opt.target is None and np.isfinite(best.fun) and has_converged(searches, second_look)
    fields = noise_fields(opt, best, error)
    if again is not None:
        fields["noise"] = replace(fields["noise"], standard_deviation=again.deviation)
    failures = state.failures.failures()
    stop, found = ending(searches)
    message = stop.message + found + violated_in_words(opt, best) + noise_in_words(opt, again)
    unknown = opt.exploring is not None and best.x is None
    nothing = stop.reason is StopReason.NO_FEASIBLE or unknown
    if unknown and stop.reason is not StopReason.NO_FEASIBLE:
        message += f"; none of {state.evaluations} points of the box has worked"
    if nothing and failures:
        message += f"; most failed with: {failures[0].reason}"
    if not searches[-1].gained and state.searches.confirmed_search is not None:
        last = replace(last, **state.searches.confirmed_search._asdict())
    return replace(
        last,
        stop_reason=stop.reason,
        x=None if answer.x is None else answer.x.copy(),
        fun=answer.fun,
        constraints=constraints_at(opt, best),
        success=bool(reached or (settled and not noisy(opt))),
        message=message,
        nfev=state.evaluations + state.last_answers,
        nit=totals.generations + last.nit,
        n_infeasible=totals.infeasible + last.n_infeasible,
        n_repeated=totals.repeated + last.n_repeated,
        seed=state.seed,
        sigma0=state.searches.first.sigma,
        second_looks=sum(searched.kind == "look" for searched in searches),
        failures=failures,
        history=state.history.columns(),
        **fields,
    )


# -- The loop: ask, evaluate, tell, observe, stop
#
# `evaluate.py` and `overlap.py` evaluate, and `checks.py` checks the outcomes.

_START = EvaluationId(0, START, 0)


class Loop:
    """One run, or several after restarts, of one evaluator."""

    def __init__(
        self,
        state: RunState,
        settings: Settings,
        evaluator: Evaluator,
        recorder: Recorder | None,
        *,
        deadline: float | None,
        callback: Callable[[View], Any] | None,
        progress: Progress | None,
        snapshots: Snapshots | None,
        stop_requests: StopRequestWatcher | None,
    ) -> None:
        """deadline: in time.monotonic()."""
        self.state = state
        self._settings = settings
        self._work = Work(
            state,
            evaluator,
            recorder,
            LostEvaluations(settings.retries),
            OutcomeChecks(settings.on_error == "raise", state),
            deadline,
            stop_requests,
        )
        self._callback = callback
        self._progress = progress
        self._snapshots = snapshots
        self._seen = -1
        """The last generation that was observed."""
        self._said_noise = noisy(state.opt)
        state.opt.timed = deadline is not None

    def run(self) -> Result:
        """Run to the end, restarts included."""
        state, work = self.state, self._work
        log_messages.begins(state, self._settings.max_evaluations)
        try:
            with work.stop_requests or nullcontext():
                stop = self._run_all()
        except KeyboardInterrupt:  # outside of an evaluation
            stop = work.interrupted()
        except StoppedWorking as error:
            if self._snapshots:  # it can go on from there
                raise
            stop = Stop(StopReason.LOST, f"{error.what}; give run_dir=, and such a run can be resumed")
        work.note_failures()
        if self._progress:
            self._progress.close(state.totals.view_with(state.opt.view(), state.opt))
        result = build_result(state, stop, self._settings.second_look)
        log_messages.ended(result)
        return result

    def _run_all(self) -> Stop:
        state, settings = self.state, self._settings
        stop = self._evaluate_start() or self._run_one()
        while plan := plan_next(state, settings, stop, timed=self._work.deadline is not None):
            try:
                begin_next(state, settings, plan, stop)
            except ArgumentError:  # the population does not fit into memory
                break
            self._work.losses.clear()
            self._said_noise = self._said_noise or noisy(state.opt)
            log_messages.searches_again(plan, stop, state.evaluations)
            stop = self._run_one()
        if stop.reason in (StopReason.MAX_EVALUATIONS, StopReason.TARGET):
            return run_limit_reached(state, settings) or stop  # with the numbers of all searches together
        return stop

    def _evaluate_start(self) -> Stop | None:
        """Evaluate the start before the first search: it is counted, but not ranked."""
        state, settings, work = self.state, self._settings, self._work
        if not state.start.open:
            return None
        if stop := run_limit_reached(state, settings):  # a known value reaches the target
            return stop
        x = state.opt.start_point
        known = state.opt.known(x)
        if known is not None:
            self._note_start(known)
            return None
        if stop := self._take_snapshot():
            return stop
        while True:
            batch = Batch(work, [_START], x[None])
            if stop := evaluate(work, batch) or count_lost(work, batch):
                return stop
            (outcome,) = batch.outcomes
            if is_answer(outcome):
                value = outcome.value if outcome.status == "value" else np.nan
                state.totals.take_start(x, attained(state.opt, outcome))
                note_outside(state.opt, x, value, output_row(state.opt, outcome))
                state.failures.add(outcome, x)
                self._note_start(value, bug_name(outcome))
                state.opt.max_evaluations = evaluations_left(state, settings)
                return run_limit_reached(state, settings)

    def _note_start(self, value: float, fault: str = "") -> None:
        """Note the value of the start, NaN if it failed."""
        self.state.start = StartPoint(made=True, value=value, fault=fault)
        note_start(self.state.opt, value)

    def _run_one(self) -> Stop:
        """Run one search to its end."""
        work, scheduler = self._work, self.state.opt.overlap_scheduler
        self._seen = -1
        if stop := run_limit_reached(self.state, self._settings):
            return stop
        overlapping = None if scheduler is None else OverlappingPoints(work, scheduler, self._look)
        while not stop:
            stop = self._look()
            if not stop:
                try:
                    stop = (
                        evaluate_generation(work)
                        if overlapping is None
                        else evaluate_overlapping(work, overlapping)
                    )
                except KeyboardInterrupt:
                    stop = work.interrupted()
        return evaluate_answer(work, self._settings, stop)

    def _look(self) -> Stop | None:
        """Observe a generation that has just ended; returns a reason to stop."""
        opt = self.state.opt
        stop = limit_reached(opt)
        if opt.generation != self._seen or stop:
            view = opt.view()
            stop = stop_at(opt, view) or self._nothing_gained(view)
            if opt.generation != self._seen:
                self._seen = opt.generation
                self._work.note_failures()
                if noisy(opt):
                    stop = stop or last_evaluations(self.state, self._settings)
                    self._report_noise()
                stop = self._observe(view) or stop
                stop = stop or self._take_snapshot()
        return stop

    def _report_noise(self) -> None:
        """Log once per session that values at the same point differ."""
        if not self._said_noise:
            log_messages.noise_seen(self.state.opt)
        self._said_noise = True

    def _nothing_gained(self, view: View) -> Stop | None:
        """End a confirmation search (second_look) early if its steps are short again without a gain."""
        if self.state.searches.plan.kind != "look" or has_gained(self.state):
            return None
        return steps_below(self.state.opt, CONFIRM_XTOL, view)

    def _take_snapshot(self) -> Stop | None:
        try:
            if self._snapshots:
                self._snapshots.take(self.state)
        except StorageError as error:
            return Stop(StopReason.STORAGE, str(error))
        return None

    def _observe(self, view: View) -> Stop | None:
        state = self.state
        view = state.totals.view_with(view, state.opt)
        if view.generation == 0 or state.history.has(view):  # nothing yet, or seen before the run was resumed
            return None
        state.history.add(view)
        log_messages.observed(view)
        if self._progress:
            self._progress.add(view)
        if self._callback is None:
            return None
        try:
            answer = self._callback(view)
            wants_stop = isinstance(answer, (bool, np.bool_)) and bool(answer)
        except StopIteration:
            wants_stop = True
        return Stop(StopReason.CALLBACK, f"at generation {view.generation}") if wants_stop else None
