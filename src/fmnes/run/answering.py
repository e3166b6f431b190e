"""The answer of a noisy search: the point with the best estimated mean, evaluated several times.

The candidates are the minimum of the response surface, or else the mean of the distribution, and the point
with the luckiest value. Both are evaluated a few times; the chosen one is then evaluated again, and only
these last values make the reported mean, so that it is no lucky choice. The ids contain the state of the
search: the same point has the same id, with any budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fmnes.outcome import EvaluationId
from fmnes.result import Stop, StopReason, Vector
from fmnes.run.evaluate import Batch, Work, count_lost, evaluate, is_answer
from fmnes.run.settings import Settings
from fmnes.run.snapshots import RunState
from fmnes.run.state import Answer
from fmnes.search.answer import candidates_of, generation_size
from fmnes.search.noise_watch import noisy
from fmnes.search.optimizer import Optimizer
from fmnes.search.stopping import steps_below

#: The share of the evaluations so far that the answer gets, …
SHARE = 0.02
#: … and the fewest and the most evaluations.
FEWEST, MOST = 10, 100
#: The share of those that compares the candidates.
TO_COMPARE = 0.4
#: The other candidate is chosen if its mean is lower by this multiple of the standard error of a difference.
CHOOSE = 3.0
#: Slots of a generation from this one on are evaluations of the answer.
FIRST_SLOT = 1_000_000
#: Values that settle while the steps are above this share of sigma0 are checked by CHECKS evaluations.
LONG_STEP, CHECKS = 1e-4, 5
#: Stop reasons after which the answer is evaluated.
_ENDS = (StopReason.MAX_EVALUATIONS, StopReason.TARGET)


def evaluations_for(evaluations: int) -> int:
    """The evaluations of the answer of a search that has made this number of them."""
    return min(max(math.ceil(SHARE * evaluations), FEWEST), MOST)


def last_evaluations(state: RunState, settings: Settings) -> Stop | None:
    """The end of a search with noise whose budget does not suffice for a generation and for the answer."""
    if settings.max_evaluations is None:
        return None
    left = settings.max_evaluations - state.evaluations
    if left >= generation_size(state.opt) + evaluations_for(state.evaluations):
        return None
    numbers = f"{settings.max_evaluations} of {settings.max_evaluations}"
    assert state.opt.noise is not None
    converged = state.opt.noise.converged and state.opt.target is None
    return Stop(StopReason.NOISE if converged else StopReason.MAX_EVALUATIONS, numbers)


def evaluate_answer(work: Work, settings: Settings, stop: Stop) -> Stop:
    """Evaluate the answer of the search that has ended with `stop`; returns why the search ends now."""
    state, opt = work.state, work.state.opt
    if not noisy(opt) and _is_doubtful(opt, stop):
        return _check_best(work, settings, stop)
    if not noisy(opt) or not (stop.reason.restartable or stop.reason in _ENDS):
        return stop
    left = math.inf if settings.max_evaluations is None else settings.max_evaluations - state.evaluations
    at_end = left < generation_size(opt) + evaluations_for(state.evaluations)
    n = max(0, int(left)) if at_end else evaluations_for(state.evaluations)
    values: list[list[float]] = [[], []]
    candidates = candidates_of(opt)
    chosen = 0
    if len(candidates) > 1 and n >= FEWEST // 2:
        few = max(1, int(TO_COMPARE * n) // 2)
        for i in range(2):
            if ended := _evaluate(work, candidates[i], i, 0, few, values[i]):
                return ended
        chosen, n = _choose(values, opt), n - 2 * few
    elif not candidates:
        return stop
    again: list[float] = []
    if ended := _evaluate(work, candidates[chosen], chosen, len(values[chosen]), n, again):
        return ended
    spent = sum(map(len, values)) + len(again)
    if at_end:
        state.last_answers = spent
    else:
        state.totals.evaluations += spent
        if settings.max_evaluations is not None:
            opt.max_evaluations = opt.evaluations + int(left) - spent
    answer = _answer(candidates[chosen], again)
    if answer is not None and (state.answer is None or answer.mean < state.answer.mean):
        state.answer = answer
    return stop


def _is_doubtful(opt: Optimizer, stop: Stop) -> bool:
    """Whether values settled while the steps are long, as those of a coarse and noisy objective may."""
    if opt.noise is None or stop.reason is not StopReason.FTOL or opt.target is not None or opt.surrogate:
        return False
    return steps_below(opt, LONG_STEP, opt.view()) is None


def _check_best(work: Work, settings: Settings, stop: Stop) -> Stop:
    """Evaluate the best point of a search again, a few times, to see whether its value is the same."""
    state, opt = work.state, work.state.opt
    n = CHECKS
    if settings.max_evaluations is not None:
        n = min(n, settings.max_evaluations - state.evaluations)
    if opt.best.x is None or not opt.best.evaluation or n <= 0:
        return stop
    values: list[float] = []
    if ended := _evaluate(work, opt.best.x, 0, 0, n, values):
        return ended
    state.totals.evaluations += n
    if settings.max_evaluations is not None:
        opt.max_evaluations = max(1, settings.max_evaluations - state.totals.evaluations)
    assert opt.noise is not None
    opt.noise.note_values(opt.best.fun, np.array(values), state.evaluations)
    return stop


def noise_in_words(opt: Optimizer, answer: Answer | None) -> str:
    """The end of the message of a noisy run; else nothing."""
    if not noisy(opt):
        return ""
    assert opt.noise is not None
    deviation = opt.noise.deviation if answer is None else answer.deviation
    words = f"; values at the same point differ by about {deviation:.2g}"
    return words if answer is not None else f"{words}; the answer was not evaluated again"


def _evaluate(work: Work, x: Vector, candidate: int, first: int, n: int, values: list[float]) -> Stop | None:
    """Evaluate a point n times and append the values, NaN for a failure; returns why the run ends, if so."""
    opt = work.state.opt
    slots = [FIRST_SLOT + 2 * i + candidate for i in range(first, first + n)]
    # The number of evaluations tells states of one generation apart: a run may end within one.
    open = [EvaluationId(opt.restart, opt.generation, slot, opt.evaluations) for slot in slots]
    found: dict[EvaluationId, float] = {}
    while open:
        batch = Batch(work, open, np.repeat(x[None], len(open), axis=0))
        stop = evaluate(work, batch) or count_lost(work, batch)
        for id, outcome in zip(open, batch.outcomes, strict=True):
            if is_answer(outcome):
                found[id] = outcome.value if outcome.status == "value" else math.nan
                if outcome.status != "value":
                    work.state.failures.add(outcome, x)
        if stop:
            return stop
        open = [id for id in open if id not in found]
    values += [found[id] for id in sorted(found)]
    return None


def _choose(values: Sequence[Sequence[float]], opt: Optimizer) -> int:
    """The first candidate, unless the second one is clearly better or the first one fails."""
    first, second = (np.array(v) for v in values)
    if not np.isfinite(second).all():
        return 0
    if not np.isfinite(first).all():
        return 1
    assert opt.noise is not None
    deviation = opt.noise.deviation
    with np.errstate(all="ignore"):  # values near the largest number
        if len(first) > 1:
            deviation = max(deviation, float(np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)))
        return int(first.mean() - second.mean() > CHOOSE * deviation * math.sqrt(2 / len(first)))


def _answer(x: Vector, values: Sequence[float]) -> Answer | None:
    """The answer with these values; None if one of them failed, or there are too few."""
    found = np.array(values, dtype=float)
    if len(found) < 2 or not np.isfinite(found).all():
        return None
    with np.errstate(all="ignore"):  # values near the largest number
        mean, deviation = float(found.mean()), float(found.std(ddof=1))
    # As wide as Student's distribution at one standard deviation, which matters for few values.
    error = deviation / math.sqrt(len(found)) * (1 + 0.5 / (len(found) - 1))
    if not math.isfinite(mean + deviation):
        return None
    return Answer(x, mean, error, deviation)
