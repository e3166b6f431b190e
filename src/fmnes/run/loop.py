"""The one loop: ask, evaluate, tell, observe, stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError, ObjectiveError, StorageError, warn
from fmnes.evaluation.ahead import Supply
from fmnes.evaluation.evaluator import START, Evaluator, Task
from fmnes.evaluation.serial import Vectorized, call_vectorized
from fmnes.outcome import LOST, MINUS_INFINITY, WRONG_TYPE, Outcome, from_number
from fmnes.report.history import COLUMNS
from fmnes.report.progress import Progress
from fmnes.result import Result, Stop, StopReason, View
from fmnes.run import telling
from fmnes.run.interrupts import Wishes
from fmnes.run.restarts import (
    LOOK_XTOL,
    Plan,
    Searched,
    ending,
    has_settled,
    is_better,
    next_search,
)
from fmnes.run.searches import LookedAt, StartPoint
from fmnes.run.snapshots import RunState, Snapshots
from fmnes.search.ahead import Ahead
from fmnes.search.ending import fails_at, limit_reached, redraws_failed, steps_below, stop_at
from fmnes.search.stopping import budget_spent, target_reached
from fmnes.storage.rows import Logged, x_hash
from fmnes.strategies.base import adapts_population_size

Name = tuple[int, int, int]
#: The name of the start's own evaluation.
_START = (START, 0, 0)
_GENERATION_BEST = COLUMNS.index("generation_best")


class Loop:
    """One run, or several after restarts, of one evaluator."""

    def __init__(
        self,
        state: RunState,
        evaluator: Evaluator,
        *,
        retries: int = 2,
        restarts: int | str = 0,
        restart_from: str = "start",
        second_look: bool = False,
        max_evaluations: int | None = None,
        deadline: float | None = None,
        raise_errors: bool = False,
        callback: Callable[[View], Any] | None = None,
        progress: Progress | None = None,
        snapshots: Snapshots | None = None,
        wishes: Wishes | None = None,
    ) -> None:
        self.state = state
        self._evaluator = evaluator
        self._retries = retries
        self._restarts = restarts
        self._restart_from = restart_from
        self._second_look = second_look
        self._max_evaluations = max_evaluations
        self._deadline = deadline
        self._raise_errors = raise_errors
        self._callback = callback
        self._progress = progress
        self._snapshots = snapshots
        self._wishes = wishes
        self._tries: dict[Name, int] = {}
        """How often each open point was lost, before a resume too: the number of its next try."""
        self._lost: dict[Name, int] = {}
        """The same since this process began: what `retries` limits."""
        self._failed: list[tuple[Name, Outcome, NDArray[np.float64]]] = []
        self._seen = -1
        """The generation that was observed last."""
        self._first: list[Outcome | None] = []
        """Where points are handed out ahead: what came of the first generation."""
        self._waits: list[tuple[float, Name]] = []
        """There, too: points that were lost, and when they are tried again (time.monotonic())."""
        self._warned = False

    def run(self) -> Result:
        """To the end, restarts included."""
        telling.begins(self.state, self._max_evaluations)
        try:
            with self._wishes or nullcontext():
                stop = self._run_all()
        except KeyboardInterrupt:  # outside of an evaluation
            stop = self._interrupted()
        self._note_failures()
        if self._progress:
            self._progress.close(self.state.totals.view_with(self.state.opt.view(), self.state.opt))
        result = self._result(stop)
        telling.ended(result)
        return result

    def _run_all(self) -> Stop:
        stop = self._evaluate_start() or self._run_one()
        while plan := self._next(stop):
            try:
                self._begin(plan, stop)
            except ArgumentError:  # so many points do not fit into this machine
                break
            telling.searches_again(plan, stop, self.state.evaluations)
            stop = self._run_one()
        if stop.reason in (StopReason.MAX_EVALUATIONS, StopReason.TARGET):
            return self._limit() or stop  # with the numbers of all searches together
        return stop

    def _limit(self) -> Stop | None:
        """The user's limits, which are on all searches together."""
        best = self.state.totals.best_with(self.state.opt)
        return target_reached(best, self.state.opt.target) or budget_spent(
            self.state.evaluations, self._max_evaluations
        )

    def _evaluations_left(self) -> int | None:
        return None if self._max_evaluations is None else self._max_evaluations - self.state.evaluations

    def _evaluate_start(self) -> Stop | None:
        """The start itself, before the first search: counted, but not ranked."""
        state = self.state
        if not state.start.open:
            return None
        if stop := self._limit():  # what is known already reaches the target
            return stop
        x = state.opt.start_point
        known = state.opt.known(x)
        if known is not None:
            state.start = StartPoint(made=True, value=known)
            return None
        if stop := self._take_snapshot():
            return stop
        while not (stop := self._out_of_time()):
            (outcome,), stop = self._evaluate([_START], x[None])
            if stop or (stop := self._count_lost([_START], [outcome])):
                return stop
            if _answered(outcome):
                value = outcome.value if outcome.status == "value" else np.nan
                state.totals.take_start(x, value)
                state.opt.remember(x, value)
                state.failures.add(outcome, x)
                state.start = StartPoint(made=True, value=value, fault=outcome.fault)
                state.opt.max_evaluations = self._evaluations_left()
                return self._limit()
        return stop

    def _next(self, stop: Stop) -> Plan | None:
        """The search after the one that ended so."""
        state = self.state
        left = self._evaluations_left()
        if not stop.reason.restartable or (left is not None and left <= 0):
            return None
        return next_search(
            self._searches(stop),
            restarts=self._restarts,
            restart_from=self._restart_from,
            look=self._second_look and state.opt.target is None,
            limited=left is not None or self._deadline is not None,
            even=state.opt.strategy.mirrored,
            rng=state.opt.rng,
            adaptive=adapts_population_size(state.opt.strategy),
        )

    def _searches(self, stop: Stop) -> list[Searched]:
        """All searches; the present one has ended."""
        state = self.state
        plan, opt = state.searches.plan, state.opt
        gained = plan.kind != "look" or self._has_gained()
        return [
            *state.searches.past,
            Searched(plan.kind, plan.population_size, opt.evaluations, gained, fails_at(opt, stop), stop),
        ]

    def _has_gained(self) -> bool:
        """Has this search found something better than those before?"""
        state = self.state
        firsts = [state.start.value, *state.history.rows[:1, _GENERATION_BEST]]
        first = max((f for f in firsts if np.isfinite(f)), default=state.totals.best.fun)
        return is_better(state.opt.best.fun, state.totals.best.fun, first)

    def _run_one(self) -> Stop:
        flow = self.state.opt.flow
        self._seen = -1
        if stop := self._limit():
            return stop
        if flow is not None:
            stop = self._recall(flow)
        while not stop:
            stop = self._look() or self._out_of_time()
            if not stop:
                try:
                    stop = self._wave() if flow is None else self._flow(flow)
                except KeyboardInterrupt:
                    stop = self._interrupted()
        return stop

    def _look(self) -> Stop | None:
        """Whether to stop; a generation that has just ended is observed."""
        opt = self.state.opt
        stop = limit_reached(opt)
        if opt.generation != self._seen or stop:
            view = opt.view()
            stop = stop_at(opt, view) or self._nothing_gained(view)
            if opt.generation != self._seen:
                self._seen = opt.generation
                self._note_failures()
                stop = self._observe(view) or stop
                stop = stop or self._take_snapshot()
        return stop

    def _take_snapshot(self) -> Stop | None:
        try:
            if self._snapshots:
                self._snapshots.take(self.state)
        except StorageError as error:
            return Stop(StopReason.STORAGE, str(error))
        return None

    def _nothing_gained(self, view: View) -> Stop | None:
        """A second look need not go on to the last digit: its steps are short again, nothing is better."""
        if self.state.searches.plan.kind != "look" or self._has_gained():
            return None
        return steps_below(self.state.opt, LOOK_XTOL, view)

    def _note_failures(self) -> None:
        """Generation by generation, slot by slot: the same whatever order results came in."""
        for _, outcome, point in sorted(self._failed, key=lambda failed: failed[0]):
            self.state.failures.add(outcome, point)
        self._failed.clear()

    def _begin(self, plan: Plan, stop: Stop) -> None:
        """The search that has ended so is over, and the one of the plan begins."""
        state = self.state
        opt = state.opt.again(
            self._origin(plan.origin),
            state.searches.first.sigma0 * plan.step,
            plan.population_size,
            self._evaluations_left(),
        )
        searches = state.searches
        searches.past = self._searches(stop)
        if plan.kind == "look" and searches.past[-1].gained:
            searches.looked_at = LookedAt.of(state.opt)
        searches.plan = plan
        state.totals.take(state.opt)
        state.opt = opt
        self._tries.clear()
        self._lost.clear()
        self._waits.clear()

    def _origin(self, origin: str) -> NDArray[np.float64]:
        state = self.state
        best = state.totals.best_with(state.opt)
        if origin == "best" and best.x is not None:
            found: NDArray[np.float64] = best.x
            return found
        bounds = state.opt.bounds
        if origin == "uniform" and bounds is not None:
            share = state.opt.rng.random(len(bounds.lower))
            x: NDArray[np.float64] = (1 - share) * bounds.lower + share * bounds.upper
            return x
        return state.searches.first.x0

    def _wave(self) -> Stop | None:
        """Ask, evaluate, tell. What was not evaluated stays open."""
        opt = self.state.opt
        x = opt.ask()
        if isinstance(self._evaluator, Vectorized):
            self._vectorized(x, self._evaluator.fun)
            return None
        names = opt.asked
        first = opt.evaluations == 0 and self.state.totals.restarts == 0 and not self._tries
        outcomes, stop = self._evaluate(names, x)
        if first:
            _raise_if_bug(outcomes, self.state.start)
        counted = opt.evaluations
        opt.tell([o if o is not None else LOST for o in outcomes])
        counted = opt.evaluations - counted
        told = [(names[i], o, x[i]) for i, o in enumerate(outcomes) if _answered(o)]
        self._failed += told[:counted]
        if stop and stop.reason is StopReason.INTERRUPTED:
            return self._interrupted()
        return stop or self._count_lost(names, outcomes)

    def _evaluate(
        self, names: list[Name], x: NDArray[np.float64]
    ) -> tuple[list[Outcome | None], Stop | None]:
        """What came of these points (None: nothing yet), and why the run cannot go on, if so."""
        restart = self.state.totals.restarts
        tasks = [Task(x[i], *name, self._tries.get(name, 0), restart) for i, name in enumerate(names)]
        outcomes: list[Outcome | None] = [None] * len(tasks)
        try:
            with closing(self._evaluator(tasks, self._deadline)) as finished:
                for position, outcome in finished:
                    self._examine(outcome, first=position == 0)
                    outcomes[position] = outcome
                    if self._hit(outcomes):
                        break
                    if self._wishes:
                        self._wishes.check()
        except KeyboardInterrupt:
            return outcomes, self._interrupted()
        except StorageError as error:
            return outcomes, Stop(StopReason.STORAGE, str(error))
        return outcomes, None

    # -- handing out ahead --------------------------------------------------------------------------------

    def _flow(self, flow: Ahead) -> Stop | None:
        """Points go out whenever somebody is free, and generations end on the way."""
        supply = Supply(lambda: self._next_task(flow))
        try:
            with closing(self._evaluator(supply, self._deadline)) as finished:
                for position, outcome in finished:
                    task = supply.pop(position)
                    self._examine(outcome, first=True)
                    if stop := self._take_in(flow, (task.generation, task.slot, task.redraw), outcome):
                        return stop
                    if self._wishes:
                        self._wishes.check()
        except KeyboardInterrupt:
            return self._interrupted()
        except StorageError as error:
            return Stop(StopReason.STORAGE, str(error))
        for task in supply.left():  # nothing has come of them
            flow.give_back((task.generation, task.slot, task.redraw))
        if self._waits:  # for what was lost, and for nothing else
            self._pause(max(0.0, min(self._waits)[0] - time.monotonic()))
        return None

    def _next_task(self, flow: Ahead) -> Task | None:
        now = time.monotonic()
        for due in [wait for wait in self._waits if wait[0] <= now]:
            self._waits.remove(due)
            flow.give_back(due[1])
        found = flow.take()
        if found is None:
            return None
        name, x = found
        return Task(x, *name, self._tries.get(name, 0), self.state.totals.restarts)

    def _take_in(self, flow: Ahead, name: Name, outcome: Outcome) -> Stop | None:
        """One outcome, in the order in which they come."""
        opt, state = self.state.opt, self.state
        if outcome.status == "lost":
            worst, reason = self._tally_lost([name], [outcome])
            if worst > self._retries:
                return _given_up(worst, reason)
            self._waits.append((time.monotonic() + _patience(worst), name))
            return None
        self._failed.append((name, outcome, flow.out[name].x))
        if opt.generation == 0 and state.totals.restarts == 0:
            self._first.append(outcome)
        self._tally_lost([name], [outcome])
        if flow.tell(name, outcome.value if outcome.status == "value" else np.nan):
            if self._first:
                _raise_if_bug(self._first, state.start)
                self._first = []
            return self._look()
        return limit_reached(opt)

    def _recall(self, flow: Ahead) -> Stop | None:
        """What the log knows of this search, told in the order in which it came: the same happens again.

        An answer to another point, as another version of NumPy may draw, is only remembered.
        """
        answers = getattr(self._evaluator, "answers", None)
        if answers is None:
            return None
        opt = self.state.opt
        oldest = min([opt.generation, *(generation for generation, _, _ in flow.out)])
        try:
            rows, tries = answers(self.state.totals.restarts, oldest)
        except StorageError as error:
            return Stop(StopReason.STORAGE, str(error))
        self._tries |= tries
        slots: dict[int, list[int]] = {}
        for row in rows:
            slots.setdefault(row.key.generation, []).append(row.key.slot)
        expected = -1
        for row in rows:
            if expected != opt.generation:  # those that come late have to be out when it ends
                expected = opt.generation
                flow.expect(slots.get(expected, ()))
            name = row.key[1:4]
            if name not in flow.out or x_hash(flow.out[name].x) != row.x_hash:
                self._keep(row)
            elif row.outcome.status != "lost":
                outcome = replace(row.outcome, remembered=True)
                self._examine(outcome, first=True)
                if stop := self._take_in(flow, name, outcome):
                    return stop
        flow.take_back()
        return None

    def _keep(self, row: Logged) -> None:
        if row.outcome.status == "value" and row.x is not None:
            self.state.opt.note(row.x, row.outcome.value)

    # -- one generation at a time -------------------------------------------------------------------------

    def _vectorized(self, x: NDArray[np.float64], fun: Callable[[Any], Any]) -> None:
        opt = self.state.opt
        f = call_vectorized(fun, x) if len(x) else np.empty(0)
        if np.isneginf(f).any():
            self._warn(f"the objective {MINUS_INFINITY}")
        # Slots are needed where a failed one is drawn anew: only then a generation has several waves.
        names = opt.asked if redraws_failed(opt) else None
        counted = opt.evaluations
        opt.tell(f)
        counted = opt.evaluations - counted
        if names is None:
            self.state.failures.add_values(f[:counted], x[:counted])
        else:
            self._failed += [(names[i], from_number(float(f[i])), x[i]) for i in range(counted)]

    def _examine(self, outcome: Outcome, first: bool) -> None:
        if outcome.reason == MINUS_INFINITY:
            self._warn(f"the objective {outcome.reason}")
        if not outcome.fault:
            return
        if outcome.fault == WRONG_TYPE and first and self.state.evaluations == 0:
            raise ObjectiveError(outcome.reason)
        if self._raise_errors:
            raise ObjectiveError(f"{outcome.reason}\n\n{outcome.detail}")
        if outcome.fault == WRONG_TYPE:
            self._warn(outcome.reason)

    def _warn(self, what: str) -> None:
        """Once in a run."""
        if not self._warned:
            self._warned = True
            warn(f"{what}; taken for a failed evaluation")

    def _hit(self, outcomes: list[Outcome | None]) -> bool:
        """The target is reached and no earlier slot is still out: what follows changes nothing."""
        target = self.state.opt.target
        if target is None:
            return False
        for outcome in outcomes:
            if outcome is None:
                return False
            if outcome.status == "value" and outcome.value <= target:
                return True
        return False

    def _count_lost(self, names: list[Name], outcomes: list[Outcome | None]) -> Stop | None:
        worst, reason = self._tally_lost(names, outcomes)
        if worst > self._retries:
            return _given_up(worst, reason)
        if worst:
            self._pause(_patience(worst))
        return None

    def _tally_lost(self, names: Sequence[Name], outcomes: Sequence[Outcome | None]) -> tuple[int, str]:
        """How often the unluckiest of these points was lost, and why the last time."""
        worst, reason = 0, ""
        for name, outcome in zip(names, outcomes, strict=True):
            if outcome is None:
                continue
            if outcome.status != "lost":
                self._tries.pop(name, None)
                self._lost.pop(name, None)
                continue
            self._tries[name] = self._tries.get(name, 0) + 1
            if not outcome.remembered:
                self._lost[name] = self._lost.get(name, 0) + 1
                worst, reason = max(worst, self._lost[name]), outcome.reason
                telling.lost(name, self._lost[name], self._retries, reason)
        return worst, reason

    def _pause(self, seconds: float) -> None:
        left = seconds if self._deadline is None else self._deadline - time.monotonic()
        time.sleep(max(0.0, min(seconds, left)))

    def _out_of_time(self) -> Stop | None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return None
        return Stop(StopReason.MAX_SECONDS, f"at evaluation {self.state.evaluations}")

    def _interrupted(self) -> Stop:
        return Stop(StopReason.INTERRUPTED, f"at evaluation {self.state.evaluations}")

    def _observe(self, view: View) -> Stop | None:
        state = self.state
        view = state.totals.view_with(view, state.opt)
        if view.generation == 0 or state.history.has(view):  # nothing yet, or seen before the run was resumed
            return None
        state.history.add(view)
        telling.observed(view)
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

    def _result(self, stop: Stop) -> Result:
        opt, totals = self.state.opt, self.state.totals
        last = opt.result(stop)
        best = totals.best_with(opt)
        searches = self._searches(stop)
        reached = opt.target is not None and best.fun <= opt.target
        settled = opt.target is None and np.isfinite(best.fun) and has_settled(searches, self._second_look)
        failures = self.state.failures.failures()
        stop, found = ending(searches)
        message = stop.message + found
        if stop.reason is StopReason.NO_FEASIBLE and failures:
            message += f"; most failed with: {failures[0].reason}"
        if not searches[-1].gained and self.state.searches.looked_at is not None:
            last = replace(last, **self.state.searches.looked_at._asdict())
        return replace(
            last,
            stop_reason=stop.reason,
            x=None if best.x is None else best.x.copy(),
            fun=best.fun,
            success=bool(reached or settled),
            message=message,
            nfev=self.state.evaluations,
            nit=totals.generations + last.nit,
            n_infeasible=totals.infeasible + last.n_infeasible,
            n_repeated=totals.repeated + last.n_repeated,
            seed=self.state.seed,
            sigma0=self.state.searches.first.sigma,
            second_looks=sum(searched.kind == "look" for searched in searches),
            failures=failures,
            history=self.state.history.columns(),
        )


def _given_up(tries: int, reason: str) -> Stop:
    return Stop(StopReason.LOST, f"{tries} tries of one point, the last: {reason}")


def _patience(tries: int) -> float:
    """Seconds until the next try: what failed may need a moment to recover."""
    return float(min(0.1 * 2.0 ** min(tries - 1, 10), 10.0))


def _answered(outcome: Outcome | None) -> TypeGuard[Outcome]:
    return outcome is not None and outcome.status != "lost"


def _raise_if_bug(outcomes: list[Outcome | None], start: StartPoint) -> None:
    """A whole first generation with one and the same fault is a bug, not an infeasible region.

    Unless the start ended otherwise.
    """
    made = [o for o in outcomes if o is not None]
    faults = {o.fault for o in made}
    if len(made) < len(outcomes) or len(made) < 2 or len(faults) != 1 or "" in faults:
        return
    if start.made and start.fault not in faults:
        return
    raise ObjectiveError(
        f"this looks like a bug in the objective: each of the first {len(made) + start.made} evaluations "
        f"failed: {made[0].reason}. If these points are bad, say so (raise fmnes.Infeasible; a program "
        "prints FAIL and a reason), or start elsewhere.\n\n"
        f"{made[0].detail}"
    )
