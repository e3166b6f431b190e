"""The one loop: ask, evaluate, tell, observe, stop.

`work.py` is what it takes to evaluate, `waves.py` and `flow.py` do it, `losses.py` and `doubts.py` judge what
comes of it, `succession.py` leads from search to search, and `conclusion.py` is the end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from fmnes.errors import ArgumentError, StorageError
from fmnes.evaluation.evaluator import START, Evaluator
from fmnes.outcome import bug_name
from fmnes.report.progress import Progress
from fmnes.result import Result, Stop, StopReason, View
from fmnes.run import telling
from fmnes.run.conclusion import conclude
from fmnes.run.doubts import Doubts
from fmnes.run.flow import recall, run_ahead
from fmnes.run.interrupts import Wishes
from fmnes.run.losses import Losses
from fmnes.run.restarts import LOOK_XTOL
from fmnes.run.searches import StartPoint
from fmnes.run.settings import Settings
from fmnes.run.snapshots import RunState, Snapshots
from fmnes.run.streak import StoppedWorking
from fmnes.run.succession import begin_next, evaluations_left, has_gained, plan_next, run_limit_reached
from fmnes.run.waves import count_lost, evaluate, is_answer, make_wave
from fmnes.run.work import Work
from fmnes.search.ending import limit_reached, steps_below, stop_at
from fmnes.strategies.base import adapts_population_size

#: The name of the start's own evaluation.
_START = (START, 0, 0)


class Loop:
    """One run, or several after restarts, of one evaluator."""

    def __init__(
        self,
        state: RunState,
        settings: Settings,
        evaluator: Evaluator,
        *,
        deadline: float | None,
        callback: Callable[[View], Any] | None,
        progress: Progress | None,
        snapshots: Snapshots | None,
        wishes: Wishes | None,
    ) -> None:
        """deadline: in time.monotonic()."""
        self.state = state
        self._settings = settings
        self._work = Work(
            state,
            evaluator,
            Losses(settings.retries),
            Doubts(settings.on_error == "raise", state),
            deadline,
            wishes,
        )
        self._callback = callback
        self._progress = progress
        self._snapshots = snapshots
        self._seen = -1
        """The generation that was observed last."""

    def run(self) -> Result:
        """To the end, restarts included."""
        state, work = self.state, self._work
        telling.begins(state, self._settings.max_evaluations)
        try:
            with work.wishes or nullcontext():
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
        result = conclude(state, stop, self._settings.second_look)
        telling.ended(result)
        return result

    def _run_all(self) -> Stop:
        state, settings = self.state, self._settings
        stop = self._evaluate_start() or self._run_one()
        while plan := plan_next(state, settings, stop, timed=self._work.deadline is not None):
            try:
                begin_next(state, settings, plan, stop)
            except ArgumentError:  # so many points do not fit into this machine
                break
            self._work.losses.clear()
            telling.searches_again(plan, stop, state.evaluations)
            stop = self._run_one()
        if stop.reason in (StopReason.MAX_EVALUATIONS, StopReason.TARGET):
            return run_limit_reached(state, settings) or stop  # with the numbers of all searches together
        return stop

    def _evaluate_start(self) -> Stop | None:
        """The start itself, before the first search: counted, but not ranked."""
        state, settings, work = self.state, self._settings, self._work
        if not state.start.open:
            return None
        if stop := run_limit_reached(state, settings):  # what is known already reaches the target
            return stop
        x = state.opt.start_point
        known = state.opt.known(x)
        if known is not None:
            self._note_start(known)
            return None
        if stop := self._take_snapshot():
            return stop
        while not (stop := work.out_of_time()):
            (outcome,), stop = evaluate(work, [_START], x[None])
            if stop or (stop := count_lost(work, [_START], [outcome])):
                return stop
            if is_answer(outcome):
                value = outcome.value if outcome.status == "value" else np.nan
                state.totals.take_start(x, value)
                state.opt.note_outside(x, value)
                state.failures.add(outcome, x)
                self._note_start(value, bug_name(outcome))
                state.opt.max_evaluations = evaluations_left(state, settings)
                return run_limit_reached(state, settings)
        return stop

    def _note_start(self, value: float, fault: str = "") -> None:
        """value: NaN where it fails. What is done about that is a departure: published methods stay so."""
        state = self.state
        state.start = StartPoint(made=True, value=value, fault=fault)
        state.opt.start_failed = bool(np.isnan(value)) and adapts_population_size(state.opt.strategy)

    def _run_one(self) -> Stop:
        """One search, to its end."""
        work, flow = self._work, self.state.opt.flow
        self._seen = -1
        if stop := run_limit_reached(self.state, self._settings):
            return stop
        if flow is not None:
            stop = recall(work, flow, self._look)
        while not stop:
            stop = self._look() or work.out_of_time()
            if not stop:
                try:
                    stop = make_wave(work) if flow is None else run_ahead(work, flow, self._look)
                except KeyboardInterrupt:
                    stop = work.interrupted()
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
                self._work.note_failures()
                stop = self._observe(view) or stop
                stop = stop or self._take_snapshot()
        return stop

    def _nothing_gained(self, view: View) -> Stop | None:
        """A second look need not go on to the last digit: its steps are short again, nothing is better."""
        if self.state.searches.plan.kind != "look" or has_gained(self.state):
            return None
        return steps_below(self.state.opt, LOOK_XTOL, view)

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
