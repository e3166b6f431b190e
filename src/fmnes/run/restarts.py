"""The next search of a run: a restart, a confirmation search (second_look), or none.

The decision follows from summaries of the past searches and the random numbers of the run, so a resumed run
decides the same. The kind "look" is a confirmation search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fmnes.result import Stop, StopReason
from fmnes.run.settings import BIPOP, BOX
from fmnes.storage.snapshot import count

KINDS = ("first", "large", "small", "look")

#: Large searches of "bipop" where no budget ends the run, as in Hansen's own code.
MAX_LARGE = 9
#: In a box small searches get at most this multiple of the evaluations of the large ones.
SMALL_SHARE = 3
#: A confirmation search begins with this share of sigma0 and multiple of λ₀: wide enough to leave the place
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
#: Where points fail it confirms an answer only if its last values are above it by at most this share of what
#: the run has gained.
CONFIRM_GAP = 1e-3
#: Maximum number of confirmation searches.
MAX_CONFIRMATIONS = 10
#: Maximum number of doublings of their population because too few points succeeded.
MAX_DOUBLINGS = 5
#: Stop reasons that mean the search converged.
CONVERGED_REASONS = (StopReason.XTOL, StopReason.FTOL, StopReason.ILL_CONDITIONED)
#: Added to the message if a search converged with too few successes.
UNSUPPORTED = "; too few evaluations succeeded for this to be an answer"
#: Stop reasons of a budget.
BUDGET_REASONS = (StopReason.MAX_EVALUATIONS, StopReason.MAX_SECONDS)


class Plan(NamedTuple):
    """How a search begins."""

    kind: str
    population_size: int
    step: float = 1.0
    """Its sigma0 as a multiple of the first search's."""
    origin: str = "start"


class SearchSummary(NamedTuple):
    """The outcome of a search."""

    kind: str
    population_size: int
    evaluations: int
    gained: bool
    """Whether a confirmation search or a restart in a box found a better point; True for other searches."""
    failing: bool
    """Whether points failed where it ended, or it has seen a better value elsewhere."""
    stop: Stop
    supported: bool = True
    """Whether enough evaluations succeeded while its steps became shorter; among failures, whether a
    confirmation search came back to the best value."""
    narrow: bool = False
    """Whether models started it in a small region where nothing fails."""
    within: bool = True
    """With limits: whether it ended within them."""

    @property
    def needs_confirmation(self) -> bool:
        doubtful = self.failing or not self.supported or self.narrow or not self.within
        return doubtful and self.stop.reason in CONVERGED_REASONS

    @property
    def converged(self) -> bool:
        return self.stop.reason.converged and self.supported and self.within

    def dump(self) -> list[Any]:
        *fields, stop, supported, narrow, within = self
        return [*fields, stop.reason.name, stop.numbers, supported, narrow, within]

    @classmethod
    def restore(cls, saved: list[Any]) -> SearchSummary:
        kind, population_size, evaluations, gained, failing, reason, numbers, *flags = saved
        if kind not in KINDS or not all(type(flag) is bool for flag in (gained, failing, *flags)):
            raise ValueError(f"a search of kind {kind!r}")
        stop, (supported, narrow, within) = Stop(StopReason[reason], str(numbers)), flags
        sizes = count(population_size), count(evaluations)
        return cls(kind, *sizes, gained, failing, stop, supported, narrow, within)


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
    """The search after these, or None.

    look: the option `second_look`. limited: the run has a budget. even: λ must be even.
    adaptive: the method adapts λ itself.
    """
    if restart_from == BOX:
        plan = _restart_in_box(searches, restarts, limited)
    else:
        plan = _restart(searches, restarts, restart_from, limited, even, rng)
    if plan is None and look:
        plan = _look(decisive(searches), CONFIRM_POPULATION_ADAPTIVE if adaptive else CONFIRM_POPULATION)
    return plan


def _restart(
    searches: Sequence[SearchSummary],
    restarts: int | str,
    origin: str,
    limited: bool,
    even: bool,
    rng: np.random.Generator,
) -> Plan | None:
    """Twice the population each time; with "bipop" the kind, large or small, with fewer evaluations so far.

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


def _restart_in_box(searches: Sequence[SearchSummary], restarts: int | str, limited: bool) -> Plan | None:
    """A small search in a basin that no search was in, or a large one with twice the population.

    The small ones get up to SMALL_SHARE times the evaluations of the large ones.
    """
    first = searches[0].population_size
    used = {kind: [s.evaluations for s in searches if s.kind == kind] for kind in ("large", "small")}
    if restarts != BIPOP and sum(map(len, used.values())) >= int(restarts):
        return None
    if not searches[-1].evaluations:
        return None
    if sum(used["small"]) <= SMALL_SHARE * sum(used["large"]):
        return Plan("small", first, origin=BOX)
    if restarts == BIPOP and not limited and len(used["large"]) >= MAX_LARGE:
        return None
    return Plan("large", first * 2 ** (len(used["large"]) + 1), origin=BOX)


def decisive(searches: Sequence[SearchSummary]) -> Sequence[SearchSummary]:
    """The searches up to the last one that decides the answer.

    A restart in a box that ended by itself without a gain decides nothing: the best point and its search are
    those before it.
    """
    last = len(searches)
    while last > 1 and _decides_nothing(searches[last - 1]):
        last -= 1
    return searches[:last]


def _decides_nothing(searched: SearchSummary) -> bool:
    return searched.kind in ("large", "small") and not searched.gained and searched.stop.reason.restartable


def _look(searches: Sequence[SearchSummary], more: int) -> Plan | None:
    """A confirmation search, if a search converged where points fail: its steps may have shrunk early.

    If too few points succeeded, with twice the population each time.
    """
    looks = sum(s.kind == "look" for s in searches)
    last = searches[-1]
    done = not last.gained and last.supported
    if done or not last.needs_confirmation or looks >= MAX_CONFIRMATIONS:
        return None
    if last.narrow and not last.failing and last.supported:
        return Plan("look", searches[0].population_size, 1.0, "best")
    unsupported = sum(not s.supported for s in searches)
    if unsupported > MAX_DOUBLINGS:
        return None
    return Plan("look", more * searches[0].population_size * 2**unsupported, CONFIRM_STEP, "best")


def is_better(now: float, before: float, first: float) -> bool:
    """Whether a value is below the best before by more than rounding. first: an early value of the run."""
    return before - now > max(CONFIRM_GAIN * (first - now), 1e-12 * abs(now))


def confirms(last: float, best: float, first: float) -> bool:
    """Whether a confirmation search that ended with this value came back to the best one."""
    return last - best <= max(CONFIRM_GAP * (first - best), 1e-9 * abs(best))


def has_converged(searches: Sequence[SearchSummary], look: bool) -> bool:
    """Whether the searches of a run that has ended count as converged. look: the option `second_look`.

    A confirmation search without a gain also confirms one that ended ill-conditioned, as good searches may
    at an edge of the feasible region. One that the budget cut short changes nothing.
    """
    searches = decisive(searches)
    last = searches[-1]
    if last.kind == "look" and not last.gained and last.stop.reason in BUDGET_REASONS:
        return searches[-2].converged
    if last.kind == "look" and not last.gained:
        confirmed = next(s for s in reversed(searches) if s.kind != "look" or s.gained)
        return last.stop.reason.restartable and last.supported and confirmed.within
    return last.converged and not (look and last.needs_confirmation)


def ending(searches: Sequence[SearchSummary]) -> tuple[Stop, str]:
    """Why the run ended, and the addition of confirmation searches to the message."""
    searches = decisive(searches)
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
