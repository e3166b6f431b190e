"""The one loop: ask, evaluate, tell, observe, stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError, ObjectiveError, StorageError, warn
from fmnes.evaluation.evaluator import Evaluator, Task
from fmnes.evaluation.serial import Vectorized, call_vectorized
from fmnes.outcome import LOST, MINUS_INFINITY, WRONG_TYPE, Outcome, from_number
from fmnes.report.progress import Progress
from fmnes.result import Result, Stop, StopReason, View
from fmnes.run.snapshots import RunState, Snapshots
from fmnes.search.stopping import budget_spent, target_reached

Name = tuple[int, int, int]


class Loop:
    """One run, or several after restarts, of one evaluator."""

    def __init__(
        self,
        state: RunState,
        evaluator: Evaluator,
        *,
        retries: int = 2,
        restarts: int = 0,
        max_evaluations: int | None = None,
        deadline: float | None = None,
        raise_errors: bool = False,
        callback: Callable[[View], Any] | None = None,
        progress: Progress | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.state = state
        self._evaluator = evaluator
        self._retries = retries
        self._restarts = restarts
        self._max_evaluations = max_evaluations
        self._deadline = deadline
        self._raise_errors = raise_errors
        self._callback = callback
        self._progress = progress
        self._snapshots = snapshots
        self._tries: dict[Name, int] = {}
        """How often each open point was lost, before a resume too: the number of its next try."""
        self._lost: dict[Name, int] = {}
        """The same since this process began: what `retries` limits."""
        self._failed: list[tuple[Name, Outcome, NDArray[np.float64]]] = []
        self._warned = False

    def run(self) -> Result:
        """To the end, restarts included."""
        try:
            stop = self._run_all()
        except KeyboardInterrupt:  # outside of an evaluation
            stop = self._interrupted()
        self._note_failures()
        if self._progress:
            self._progress.close(self.state.totals.view_with(self.state.opt.view(), self.state.opt))
        return self._result(stop)

    def _run_all(self) -> Stop:
        state = self.state
        stop = self._run_one()
        while stop.reason.restartable and state.totals.restarts < self._restarts:
            left = None
            if self._max_evaluations is not None:
                left = self._max_evaluations - state.evaluations
                if left <= 0:
                    break
            try:
                self._restart(left)
            except ArgumentError:  # twice the points do not fit into this machine
                break
            stop = self._run_one()
        # The numbers are those of all searches together.
        if stop.reason is StopReason.MAX_EVALUATIONS:
            return budget_spent(state.evaluations, self._max_evaluations) or stop
        if stop.reason is StopReason.TARGET:
            return target_reached(state.totals.best_with(state.opt), state.opt.target) or stop
        return stop

    def _run_one(self) -> Stop:
        opt = self.state.opt
        seen = -1
        while True:
            stop = opt.limit_reached()
            if opt.generation != seen or stop:
                view = opt.view()
                stop = opt.stop_at(view)
                if opt.generation != seen:
                    seen = opt.generation
                    self._note_failures()
                    stop = self._observe(view) or stop
                    if self._snapshots and not stop:
                        try:
                            self._snapshots.take(self.state)
                        except StorageError as error:
                            stop = Stop(StopReason.STORAGE, str(error))
            stop = stop or self._out_of_time()
            if not stop:
                try:
                    stop = self._wave()
                except KeyboardInterrupt:
                    stop = self._interrupted()
            if stop:
                return stop

    def _note_failures(self) -> None:
        """Generation by generation, slot by slot: the same whatever order results came in."""
        for _, outcome, point in sorted(self._failed, key=lambda failed: failed[0]):
            self.state.failures.add(outcome, point)
        self._failed.clear()

    def _restart(self, max_evaluations: int | None) -> None:
        opt = self.state.opt.doubled(max_evaluations)
        self.state.totals.take(self.state.opt)
        self.state.opt = opt
        self._tries.clear()
        self._lost.clear()

    def _wave(self) -> Stop | None:
        """Ask, evaluate, tell. What was not evaluated stays open."""
        opt = self.state.opt
        x = opt.ask()
        if isinstance(self._evaluator, Vectorized):
            self._vectorized(x, self._evaluator.fun)
            return None
        names = opt.asked
        restart = self.state.totals.restarts
        tasks = [Task(x[i], *name, self._tries.get(name, 0), restart) for i, name in enumerate(names)]
        outcomes: list[Outcome | None] = [None] * len(tasks)
        stop = None
        try:
            with closing(self._evaluator(tasks, self._deadline)) as finished:
                for position, outcome in finished:
                    self._examine(outcome, first=position == 0)
                    outcomes[position] = outcome
                    if self._hit(outcomes):
                        break
        except KeyboardInterrupt:
            stop = Stop(StopReason.INTERRUPTED)
        except StorageError as error:
            stop = Stop(StopReason.STORAGE, str(error))
        if self.state.evaluations == 0 and not self._tries:
            _raise_if_bug(outcomes)
        counted = opt.evaluations
        opt.tell([o if o is not None else LOST for o in outcomes])
        counted = opt.evaluations - counted
        told = [(names[i], o, x[i]) for i, o in enumerate(outcomes) if _answered(o)]
        self._failed += told[:counted]
        if stop and stop.reason is StopReason.INTERRUPTED:
            return self._interrupted()
        return stop or self._count_lost(names, outcomes)

    def _vectorized(self, x: NDArray[np.float64], fun: Callable[[Any], Any]) -> None:
        opt = self.state.opt
        f = call_vectorized(fun, x) if len(x) else np.empty(0)
        if np.isneginf(f).any():
            self._warn(f"the objective {MINUS_INFINITY}")
        # Slots are needed where a failed one is drawn anew: only then a generation has several waves.
        names = opt.asked if opt.resamples else None
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
        if not worst:
            return None
        if worst > self._retries:
            return Stop(StopReason.LOST, f"{worst} tries of one point, the last: {reason}")
        self._pause(min(0.1 * 2.0 ** min(worst - 1, 10), 10.0))  # what failed may need a moment to recover
        return None

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
        reached = opt.target is not None and best.fun <= opt.target
        settled = opt.target is None and stop.reason.converged and np.isfinite(best.fun)
        failures = self.state.failures.failures()
        message = stop.message
        if stop.reason is StopReason.NO_FEASIBLE and failures:
            message += f"; most failed with: {failures[0].reason}"
        return replace(
            last,
            x=None if best.x is None else best.x.copy(),
            fun=best.fun,
            success=bool(reached or settled),
            message=message,
            nfev=self.state.evaluations,
            nit=totals.generations + last.nit,
            n_infeasible=totals.infeasible + last.n_infeasible,
            n_repeated=totals.repeated + last.n_repeated,
            seed=self.state.seed,
            failures=failures,
            history=self.state.history.columns(),
        )


def _answered(outcome: Outcome | None) -> TypeGuard[Outcome]:
    return outcome is not None and outcome.status != "lost"


def _raise_if_bug(outcomes: list[Outcome | None]) -> None:
    """A whole first generation with one and the same fault is a bug, not an infeasible region."""
    made = [o for o in outcomes if o is not None]
    faults = {o.fault for o in made}
    if len(made) < len(outcomes) or len(made) < 2 or len(faults) != 1 or "" in faults:
        return
    raise ObjectiveError(
        f"this looks like a bug in the objective: each of the first {len(made)} evaluations failed: "
        f"{made[0].reason}. If these points are bad, raise fmnes.Infeasible, or start elsewhere.\n\n"
        f"{made[0].detail}"
    )
