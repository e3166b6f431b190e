"""The one loop: ask, evaluate, tell, observe, stop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ObjectiveError
from fmnes.evaluation.outcome import LOST, WRONG_TYPE, Outcome
from fmnes.evaluation.serial import Evaluator, Task, call_vectorized
from fmnes.optimizer import Optimizer
from fmnes.report.history import History
from fmnes.report.progress import Progress
from fmnes.result import Best, Result, Stop, StopReason, View
from fmnes.runs.ledger import Ledger


class Loop:
    """One run, or several after restarts: what they share."""

    def __init__(
        self,
        *,
        evaluate: Callable[[], Stop | None],
        opt: Optimizer,
        retries: int,
        deadline: float | None,
        callback: Callable[[View], Any] | None,
        progress: Progress | None,
    ) -> None:
        self.opt = opt
        self.spent = 0
        """Evaluations of the runs before this one."""
        self._evaluate = evaluate
        self._retries = retries
        self._deadline = deadline
        self._callback = callback
        self._progress = progress
        self._history = History()
        self._ledger = Ledger()
        self._restarts = 0
        self._generations = 0
        self._infeasible = 0
        self._best = Best(None, np.inf, 0)
        self._lost: dict[tuple[int, int, int], int] = {}
        self._warned = False

    def run(self) -> Stop:
        """The loop."""
        opt = self.opt
        seen = -1
        while True:
            stop = opt.limit_reached()
            if opt.generation != seen or stop:
                view = opt.view()
                stop = opt.stop_at(view)
                if opt.generation != seen:
                    seen = opt.generation
                    stop = self._observe(view) or stop
            stop = stop or self._out_of_time()
            if not stop:
                try:
                    stop = self._evaluate()
                except KeyboardInterrupt:
                    stop = Stop(StopReason.INTERRUPTED, f"at evaluation {self.spent + opt.evaluations}")
            if stop:
                if self._progress:
                    self._progress.close(self._total(opt.view()))
                return stop

    def restart(self, opt: Optimizer) -> None:
        old = self.opt
        self._best = self._overall_best()
        self.spent += old.evaluations
        self._generations += old.generation
        self._infeasible += old.n_infeasible
        self._restarts += 1
        self._lost.clear()
        self.opt = opt

    def result(self, stop: Stop) -> Result:
        last = self.opt.result(stop)
        best = self._overall_best()
        reached = self.opt.target is not None and best.fun <= self.opt.target
        settled = self.opt.target is None and stop.reason.converged and np.isfinite(best.fun)
        return replace(
            last,
            x=best.x,
            fun=best.fun,
            success=bool(reached or settled),
            nfev=self.spent + last.nfev,
            nit=self._generations + last.nit,
            n_infeasible=self._infeasible + last.n_infeasible,
            failures=self._ledger.failures(),
            history=self._history.columns(),
        )

    def wave(self, evaluator: Evaluator) -> Stop | None:
        """Ask, evaluate point by point, tell. What was not evaluated stays open."""
        opt = self.opt
        x = opt.ask()
        names = opt.asked
        tasks = [Task(x[i], *name, self._lost.get(name, 0)) for i, name in enumerate(names)]
        outcomes: list[Outcome | None] = [None] * len(tasks)
        stop = None
        finished = evaluator(tasks, self._deadline)
        try:
            for position, outcome in finished:
                outcomes[position] = outcome
                self._examine(outcome, x[position])
                if self._hit(outcomes):
                    break
        except KeyboardInterrupt:
            stop = Stop(StopReason.INTERRUPTED, f"at evaluation {self.spent + opt.evaluations}")
        finally:
            close = getattr(finished, "close", None)
            if close:
                close()
        if opt.generation == 0 and self.spent == 0:
            _raise_if_bug(outcomes)
        opt.tell([o if o is not None else LOST for o in outcomes])
        return stop or self._count_lost(names, outcomes)

    def vectorized_wave(self, fun: Callable[[Any], Any]) -> Stop | None:
        x = self.opt.ask()
        f = call_vectorized(fun, x) if len(x) else np.empty(0)
        counted = len(f)
        if self.opt.target is not None and (f <= self.opt.target).any():
            counted = int(np.argmax(f <= self.opt.target)) + 1
        self._ledger.add_values(f[:counted], x[:counted])
        self.opt.tell(f)
        return None

    def _examine(self, outcome: Outcome, x: NDArray[np.float64]) -> None:
        self._ledger.add(outcome, x)
        if outcome.fault != WRONG_TYPE:
            return
        if self.opt.evaluations == 0 and self.opt.generation == 0:
            raise ObjectiveError(outcome.reason)
        if not self._warned:
            self._warned = True
            warnings.warn(f"{outcome.reason}; taken for a failed evaluation", RuntimeWarning, stacklevel=5)

    def _hit(self, outcomes: list[Outcome | None]) -> bool:
        """The target is reached and no earlier slot is still out: what follows changes nothing."""
        if self.opt.target is None:
            return False
        for outcome in outcomes:
            if outcome is None:
                return False
            if outcome.status == "value" and outcome.value <= self.opt.target:
                return True
        return False

    def _count_lost(self, names: list[tuple[int, int, int]], outcomes: list[Outcome | None]) -> Stop | None:
        worst = 0
        for name, outcome in zip(names, outcomes, strict=True):
            if outcome is not None and outcome.status == "lost":
                self._lost[name] = self._lost.get(name, 0) + 1
                worst = max(worst, self._lost[name])
                reason = outcome.reason
            else:
                self._lost.pop(name, None)
        if not worst:
            return None
        if worst > self._retries:
            return Stop(StopReason.LOST, f"{worst} tries of one point, the last: {reason}")
        time.sleep(min(0.1 * 2 ** (worst - 1), 10.0))  # what failed may need a moment to recover
        return None

    def _out_of_time(self) -> Stop | None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return None
        return Stop(StopReason.MAX_SECONDS, f"at evaluation {self.spent + self.opt.evaluations}")

    def _observe(self, view: View) -> Stop | None:
        view = self._total(view)
        if view.generation == 0:
            return None
        self._history.add(view)
        if self._progress:
            self._progress.add(view)
        if self._callback is None:
            return None
        try:
            wants_stop = self._callback(view) is True
        except StopIteration:
            wants_stop = True
        return Stop(StopReason.CALLBACK, f"at generation {view.generation}") if wants_stop else None

    def _overall_best(self) -> Best:
        best = self.opt.best
        return (
            best._replace(evaluation=self.spent + best.evaluation)
            if best.fun < self._best.fun
            else self._best
        )

    def _total(self, view: View) -> View:
        """The view with the evaluations and the best of the runs before this one counted in."""
        if not self._restarts:
            return view
        return replace(
            view,
            evaluations=self.spent + view.evaluations,
            best=self._overall_best(),
            restart=self._restarts,
        )


def _raise_if_bug(outcomes: list[Outcome | None]) -> None:
    """A whole first generation with one and the same fault is a bug, not an infeasible region."""
    made = [o for o in outcomes if o is not None]
    faults = {o.fault for o in made}
    if len(made) < 2 or len(faults) != 1 or "" in faults:
        return
    raise ObjectiveError(
        f"this looks like a bug in the objective: each of the first {len(made)} evaluations failed: "
        f"{made[0].reason}. If these points are bad, raise fmnes.Infeasible, or start elsewhere.\n\n"
        f"{made[0].detail}"
    )
