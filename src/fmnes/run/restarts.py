"""What the next search of a run is: a restart, a second look, or none.

Decided from plain data, what the searches so far came to, and from the run's random numbers: a resumed run
decides the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fmnes.result import Stop, StopReason
from fmnes.run.settings import BIPOP
from fmnes.search.saved import count

KINDS = ("first", "large", "small", "look")

#: Large searches of "bipop" where no budget ends the run, as in Hansen's own code.
MAX_LARGE = 9
#: A second look begins with this share of sigma0 and this multiple of λ₀: wide enough to leave the place
#: where the steps have vanished, with points enough not to be led astray again (with 2 λ₀ "fm-nes" was, on
#: the beam of `fmnes init`).
CONFIRM_STEP = 0.1
CONFIRM_POPULATION = 4
#: The same for a method that draws more points by itself where points fail.
CONFIRM_POPULATION_ADAPTIVE = 2
#: It has found nothing when its steps have shrunk by this factor and nothing was gained.
CONFIRM_XTOL = 1e-3
#: A gain is more than this share of what the run has gained since its start.
CONFIRM_GAIN = 1e-6
#: Looks, most of which gained something, after which the run gives up: there may be more to find.
MAX_CONFIRMATIONS = 10
#: Looks are made with twice the points, because too few succeeded, so often at most.
MAX_DOUBLINGS = 5
#: Endings of a search that believes to be there.
CONVERGED_REASONS = (StopReason.XTOL, StopReason.FTOL, StopReason.ILL_CONDITIONED)
#: What the message of a search adds that has converged to nothing.
UNSUPPORTED = "; too few evaluations succeeded for this to be an answer"
#: The budget's endings.
BUDGET_REASONS = (StopReason.MAX_EVALUATIONS, StopReason.MAX_SECONDS)


class Plan(NamedTuple):
    """How a search begins."""

    kind: str
    population_size: int
    step: float = 1.0
    """Its sigma0 as a multiple of the first search's."""
    origin: str = "start"


class SearchSummary(NamedTuple):
    """What a search came to."""

    kind: str
    population_size: int
    evaluations: int
    gained: bool
    """Of a look: did it find something better? (True for any other search.)"""
    failing: bool
    """Did points fail where it ended, or has it seen a better place than that?"""
    stop: Stop
    supported: bool = True
    """Did enough evaluations succeed while its steps became shorter?"""

    @property
    def needs_confirmation(self) -> bool:
        return (self.failing or not self.supported) and self.stop.reason in CONVERGED_REASONS

    @property
    def converged(self) -> bool:
        return self.stop.reason.converged and self.supported

    def dump(self) -> list[Any]:
        *fields, stop, supported = self
        return [*fields, stop.reason.name, stop.numbers, supported]

    @classmethod
    def restore(cls, saved: list[Any]) -> SearchSummary:
        kind, population_size, evaluations, gained, failing, reason, numbers, supported = saved
        if kind not in KINDS or not all(type(flag) is bool for flag in (gained, failing, supported)):
            raise ValueError(f"a search of kind {kind!r}")
        stop = Stop(StopReason[reason], str(numbers))
        return cls(kind, count(population_size), count(evaluations), gained, failing, stop, supported)


def next_search(
    searches: Sequence[SearchSummary],
    *,
    restarts: int | str,
    restart_from: str,
    look: bool,
    limited: bool,
    even: bool,
    rng: np.random.Generator,
    adaptive: bool = False,
) -> Plan | None:
    """After these searches, the last of which has just ended by itself.

    look: is a second look wanted where it is due? limited: does a budget end the run? even: must λ be?
    adaptive: does the method draw more points by itself?
    """
    plan = _restart(searches, restarts, restart_from, limited, even, rng)
    if plan is None and look:
        plan = _look(searches, CONFIRM_POPULATION_ADAPTIVE if adaptive else CONFIRM_POPULATION)
    return plan


def _restart(
    searches: Sequence[SearchSummary],
    restarts: int | str,
    origin: str,
    limited: bool,
    even: bool,
    rng: np.random.Generator,
) -> Plan | None:
    """Twice the points each time; or "bipop", large searches and small ones, and next comes the kind that has
    used fewer evaluations.

    N. Hansen, "Benchmarking a BI-Population CMA-ES on the BBOB-2009 Function Testbed", 2009.
    """
    first = searches[0].population_size
    used = {kind: [s.evaluations for s in searches if s.kind == kind] for kind in ("large", "small")}
    double = first * 2 ** (len(used["large"]) + 1)
    if restarts != BIPOP:
        return Plan("large", double, origin=origin) if len(used["large"]) < int(restarts) else None
    if not searches[-1].evaluations:  # nothing can be evaluated there: the budget would never end it
        return None
    if sum(used["small"]) < sum(used["large"]):
        u, v = rng.random(2)
        size = int(first * (0.25 * double / first) ** (u * u))  # λ₀ (½ λ_large/λ₀)^(U²)
        return Plan("small", size - size % 2 if even else size, float(10.0 ** (-2.0 * v)), origin)
    if not limited and len(used["large"]) >= MAX_LARGE:
        return None
    return Plan("large", double, origin=origin)


def _look(searches: Sequence[SearchSummary], more: int) -> Plan | None:
    """A search that settled where points fail may have shrunk its steps too early: look again from there.

    Where too few points succeeded to say so, with twice as many points each time.
    """
    looks = sum(s.kind == "look" for s in searches)
    last = searches[-1]
    done = not last.gained and last.supported
    if done or not last.needs_confirmation or looks >= MAX_CONFIRMATIONS:
        return None
    unsupported = sum(not s.supported for s in searches)
    if unsupported > MAX_DOUBLINGS:
        return None
    return Plan("look", more * searches[0].population_size * 2**unsupported, CONFIRM_STEP, "best")


def is_better(now: float, before: float, first: float) -> bool:
    """Is a value lower than the best before by more than digits? `first`: a value from the run's start."""
    return before - now > max(CONFIRM_GAIN * (first - now), 1e-12 * abs(now))


def has_converged(searches: Sequence[SearchSummary], look: bool) -> bool:
    """May the run be called a success, as far as its searches tell? The last one is over.

    look: were second looks wanted? One that found nothing better also vouches for a search whose shape became
    too elongated: at an edge of the feasible region that is how a good search may end. One that the budget
    cut vouches for nothing, and takes nothing back that had converged.
    """
    last = searches[-1]
    if not last.gained and last.stop.reason in BUDGET_REASONS:
        return searches[-2].converged
    if not last.gained:
        return last.stop.reason.restartable and last.supported
    return last.converged and not (look and last.needs_confirmation)


def ending(searches: Sequence[SearchSummary]) -> tuple[Stop, str]:
    """Why the run ended, and what second looks add to it."""
    stop = searches[-1].stop
    doubt = "" if searches[-1].supported or not stop.reason.restartable else UNSUPPORTED
    looks = [s for s in searches if s.kind == "look"]
    if not looks:
        return stop, doubt
    if stop.reason in BUDGET_REASONS and has_converged(searches, look=True):
        return searches[-2].stop, "; the budget ended while it looked again, with nothing better so far"
    if not stop.reason.restartable:
        return stop, "; before that it had settled, and was looking again from there"
    if not searches[-1].gained:
        stop = next(s.stop for s in reversed(searches) if s.gained)
    better = sum(s.gained for s in looks)
    made = "a second look" if len(looks) == 1 else f"{len(looks)} more looks"
    if not better:
        return stop, f"; {made} found nothing better{doubt}"
    return stop, f"; {made}, {better} of which found something better{doubt}"
