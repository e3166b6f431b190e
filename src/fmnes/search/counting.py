"""The generation in progress: which of its points need a value, and the values that count.

Values count in slot order. Each counts as an evaluation, may be the best, and joins the archive; the last one
of a generation ends it. Points have ids, by which users report values.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import shown
from fmnes.constraints import Limits
from fmnes.errors import ArgumentError, UsageError
from fmnes.outcome import EvaluationId, Outcome, from_return
from fmnes.result import Best, Vector, X
from fmnes.search.advance import end_generation, redraw, sample
from fmnes.search.generation import Generation, feasible_values
from fmnes.search.modelled import next_round
from fmnes.search.noise_watch import single_target

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer
    from fmnes.search.overlap import OverlapScheduler

Floats = NDArray[np.float64]


def next_slots(search: Optimizer) -> tuple[Generation, NDArray[np.intp]]:
    """Return the generation in progress and its open slots, within the budget."""
    while True:
        current = search._current or sample(search)
        while current.complete and search._recent.unevaluated < search._recent.patience:
            end_generation(search, current, feasible_values(current.f))
            current = sample(search)
        slots = current.open_slots()
        if search.max_evaluations is not None:
            left = search.max_evaluations - search.evaluations
            if 0 < left < len(slots):
                slots = slots[:left]
        if current.out_of_order is None:
            return current, slots
        slots = slots[~current.out_of_order[slots]]
        if len(slots) or not len(current.next_out_of_order()):
            return current, slots
        # All values are there, behind one that has reached the target: asking again continues the search.
        _count_in_order(search, current, go_on=True)


def hand_out(search: Optimizer, n: int) -> list[Point[X]]:
    """Return up to n points that were not handed out yet."""
    if search._current is not None and search._current.complete:
        # No point of it had to be evaluated; asking again continues.
        end_generation(search, search._current, feasible_values(search._current.f))
    current, slots = next_slots(search)
    current.x.setflags(write=False)
    return [
        Point(_name(search, current, i).id, search._to_user(current.x[i])) for i in current.hand_out(slots, n)
    ]


def hand_out_overlapping(search: Optimizer, scheduler: OverlapScheduler, n: int) -> list[Point[X]]:
    """Return up to n points, some of them of the next generation."""
    points: list[Point[X]] = []
    while len(points) < n and (found := scheduler.take()) is not None:
        evaluation, x = found
        points.append(Point(Name(evaluation, digest_of(x)).id, search._to_user(x)))
    return points


def tell_all(search: Optimizer, values: Any) -> None:
    """Count the values of the points of the last `ask()`."""
    if search._asked is None or search._current is None:
        raise UsageError("tell: found no open points; wanted ask() first, then one tell() for its points")
    current, slots = search._current, search._asked
    f, lost, outputs = read_values(values, len(slots), search.limits, search.evaluations == 0)
    if current.out_of_order is not None:  # some were reported by id: count all in slot order
        search._asked = None
        kept = slice(None) if lost is None else ~lost
        current.keep(slots[kept], f[kept], None if outputs is None else outputs[kept])
        return _count_in_order(search, current)
    if single_target(search) is not None and (hits := _hits(search, f, outputs)).size:
        # Values count in slot order up to the first that reaches the target.
        lost = np.zeros(len(f), dtype=bool) if lost is None else lost
        lost[hits[0] + 1 :] = True
    if lost is not None:
        f, slots = f[~lost], slots[~lost]
        outputs = None if outputs is None else outputs[~lost]
    _count(search, current, slots, f, outputs)


def tell_one(search: Optimizer, name: Name, f: float, lost: bool, outputs: Vector | None) -> None:
    """Count the value of one point, when those before it are there."""
    if search.overlap_scheduler is not None:
        return _tell_overlapping(search, search.overlap_scheduler, name, f, lost, outputs)
    evaluation, slot = name.evaluation, name.evaluation.slot
    if evaluation[:2] < (search.restart, search.generation):
        return  # its generation has ended
    current = search._current or next_slots(search)[0]  # drawn again after a load
    here = evaluation[:2] == (search.restart, search.generation) and slot < len(current.f)
    if here and evaluation.redraw < current.redraws[slot]:
        return
    if not here or name != _name(search, current, slot):
        raise ArgumentError(
            f"tell: found the id {name.id!r}, wanted one that ask(n) gave: this is of another search, or "
            f"of a later generation than {search.generation}"
        )
    if not current.needs(slot):
        return
    if lost:
        return current.take_back(slot)
    current.keep(np.array([slot]), np.array([f]), None if outputs is None else outputs[None])
    search._asked = None
    _count_in_order(search, current)


def _tell_overlapping(
    search: Optimizer, scheduler: OverlapScheduler, name: Name, f: float, lost: bool, outputs: Vector | None
) -> None:
    """Report a pending point; others have their value already and are ignored."""
    evaluation = name.evaluation
    known = scheduler.out.get(evaluation)
    late = evaluation[:2] > (search.restart, search.generation)
    if late or (known is not None and digest_of(known.x) != name.mark):
        raise ArgumentError(
            f"tell: found the id {name.id!r}, wanted one that ask(n) gave: this is of another search, or "
            f"of a later generation than {search.generation}"
        )
    if known is not None and lost:
        scheduler.give_back(evaluation)
    elif known is not None:
        scheduler.tell(evaluation, f, outputs)


def _name(search: Optimizer, current: Generation, slot: int) -> Name:
    return Name(evaluation_id(search, current, slot), digest_of(current.x[slot]))


def evaluation_id(search: Optimizer, current: Generation, slot: int) -> EvaluationId:
    """Return the id of the evaluation of a slot."""
    return EvaluationId(search.restart, search.generation, slot, int(current.redraws[slot]))


def _count_in_order(search: Optimizer, current: Generation, go_on: bool = False) -> None:
    """Count the stored values that are next in slot order, up to the first that reaches the target."""
    slots = current.next_out_of_order()
    f = current.f[slots]
    outputs = None if current.outputs is None else current.outputs[slots]
    target = single_target(search)
    if target is not None and not go_on:
        reached = _hits(search, f, outputs)
        n = 0 if search._best.fun <= target else reached[0] + 1 if reached.size else len(f)
        slots, f = slots[:n], f[:n]
        outputs = None if outputs is None else outputs[:n]
    if len(slots):
        _count(search, current, slots, f, outputs)


def _count(
    search: Optimizer,
    current: Generation,
    slots: NDArray[np.intp],
    f: Floats,
    outputs: Floats | None,
) -> None:
    """Count the values of open slots in this order; the last ones complete the generation."""
    search._asked = None
    feasible = record(search, current.points(slots), f, outputs)
    current.fill(slots, f, outputs)
    if search._start.repeats and current.complete:
        _fill_duplicates(search, current)
    if search._start.max_redraws is not None and current.complete and current.poll is None:
        # Only now, so that the draws do not depend on lost evaluations.
        redraw(search, current, np.flatnonzero(~np.isfinite(current.f)))
    if not current.complete:
        return
    values = current.f
    if search._surrogate is not None and not current.only_repeat:
        # Only now, so that their order does not depend on lost evaluations.
        drawn = not current.proposed and search.exploring is None
        size = search._distribution.population_size if drawn else 0
        for slot in current.take_for_models().tolist():
            value = float(current.f[slot])
            search._surrogate.add(
                current.x[slot],
                value if math.isfinite(value) else math.nan,
                drawn=slot < size,
                outputs=None if current.outputs is None else current.outputs[slot],
            )
    screened = search._surrogate is not None and search._constrained is None
    ranks = not (current.proposed or current.only_repeat or current.poll is not None)
    if screened and ranks:
        assert search._surrogate is not None
        ranked = next_round(search, search._surrogate, current)
        if ranked is None:  # the models need more evaluations of this generation
            return
        values = ranked
    whole = len(f) == len(current.f)
    end_generation(search, current, feasible if whole else feasible_values(current.f), values)


def _fill_duplicates(search: Optimizer, current: Generation) -> None:
    """Give the duplicates the values of the slots that were evaluated for them."""
    slots = current.duplicates
    if slots.size:
        values = [search._archive.get(x) for x in current.x[slots]]
        outputs = None
        if search._constrained is not None:
            outputs = np.array([search._archive.outputs(x) for x in current.x[slots]])
        current.fill_duplicates(slots, np.array(values, dtype=np.float64), outputs)
        search.n_repeated += len(slots)


def record(search: Optimizer, x: Floats, f: Floats, outputs: Floats | None) -> list[float]:
    """Count evaluations, update the best point and the archive; return the feasible values."""
    feasible = feasible_values(f)
    if feasible:
        take_best(search, x, f, outputs, search.evaluations + 1)
    if search._start.repeats:
        rows: Any = [None] * len(f) if outputs is None else outputs
        for point, value, row in zip(x, f.tolist(), rows, strict=True):
            search._archive.add(point, value, row)
    search.evaluations += len(f)
    search.n_infeasible += len(f) - len(feasible)
    return feasible


def take_best(
    search: Optimizer,
    x: Floats,
    f: Floats,
    outputs: Floats | None,
    first: int,
) -> None:
    """Update the best point by these; first: the number of the first evaluation, 0 if known before."""
    constrained = search._constrained
    if constrained is not None:
        assert outputs is not None
        constrained.best.add(x, f, outputs)
    values = attained_values(search, f, outputs)
    low = min(feasible_values(values), default=np.inf)
    if low < search._best.fun:
        i = int((values == low).argmax())
        point = x[i].copy()
        point.setflags(write=False)
        search._best = Best(point, low, first and first + i)
        search._polled = 0
        if constrained is not None and outputs is not None:
            constrained.note_best(low, outputs[i])


def _hits(search: Optimizer, f: Floats, outputs: Floats | None) -> NDArray[np.intp]:
    """Return which of these evaluations reach the target: within the limits, if there are some."""
    values = attained_values(search, f, outputs)
    return np.flatnonzero((values <= search.target) & np.isfinite(values))


def attained_values(search: Optimizer, f: Floats, outputs: Floats | None) -> Floats:
    """Return the values of points that may be the answer: +inf where a limit is violated. (n,)"""
    return f if outputs is None or search._constrained is None else search._constrained.attained(f, outputs)


def note(search: Optimizer, x: Floats, value: float, outputs: Vector | None = None) -> None:
    """Store a known value that does not count as an evaluation; it may be the best. NaN: it fails."""
    remember(search, x, value, outputs)
    rows = None if outputs is None else outputs[None]
    take_best(search, x[None], np.array([value]), rows, search.evaluations)


def note_outside(search: Optimizer, x: Floats, value: float, outputs: Vector | None = None) -> None:
    """Store a point that was evaluated outside this search; on a grid it may be the best."""
    if search._surrogate is not None:
        search._surrogate.note(x, value, outputs)
    if search._constrained is not None and outputs is not None:
        search._constrained.best.add(x[None], np.array([value]), outputs[None])
    if search._start.grid is not None:
        note(search, x, value, outputs)


def remember(search: Optimizer, x: Vector, value: float, outputs: Vector | None = None) -> None:
    """Store the value of a point evaluated elsewhere, if points can repeat: every coordinate is discrete."""
    if search._start.repeats:
        search._archive.add(x, value, outputs)


def note_start(search: Optimizer, value: float) -> None:
    """Note the value of the start, NaN if it failed. Only adaptive methods react to a failure."""
    search.start_failed = bool(np.isnan(value)) and search.strategy.adapts_population_size
    if search._explorer is not None:
        search._explorer.add(search._distribution.nearest(search._start.x0)[None], np.array([value]))
        search._explorer.exploring = search._explorer.needs_success


# -- Points with ids, and the values that users report for them


class Point(NamedTuple, Generic[X]):
    """A point that needs a value, and the id by which the value is reported.

    Attributes
    ----------
    id : str
        Letters, digits and hyphens; different for every evaluation.
    x : ndarray or dict
        The point, read-only: (d,), or {name: value}.

    Examples
    --------
    >>> import fmnes
    >>> opt = fmnes.Optimizer([1.0, 2.0], 0.5, rng=1)
    >>> [point] = opt.ask(1)
    >>> opt.tell(point.id, float(point.x @ point.x))
    """

    id: str
    x: X


class Name(NamedTuple):
    """The parts of an id, which is unique among the evaluations of a search and its restarts."""

    evaluation: EvaluationId
    mark: str
    """Checksum of the point, which detects ids of other searches."""

    @property
    def id(self) -> str:
        """Only letters, digits and hyphens: safe in JSON and as a file name."""
        return "-".join(map(str, (*self.evaluation[:4], self.mark)))


_ID = re.compile(r"(\d{1,18})-(\d{1,18})-(\d{1,18})-(\d{1,18})-([0-9a-f]{8})", re.ASCII)


def name_of(id: Any) -> Name:
    """Parse an id. Raises ArgumentError for anything else."""
    found = _ID.fullmatch(id) if isinstance(id, str) else None
    if isinstance(id, Point):
        raise ArgumentError("tell: found a point with its value, wanted its id: tell(point.id, value)")
    if isinstance(id, (np.ndarray, Sequence, Mapping)) and not isinstance(id, (str, bytes)):
        raise ArgumentError(
            "tell: found two arguments, and the first is not an id; tell takes the values only, in the order "
            "of ask(): tell(values). For a point of ask(n) it is tell(id, value)"
        )
    if found is None:
        raise ArgumentError(f"tell: found the id {shown(id)}, wanted one that ask(n) gave")
    *numbers, mark = found.groups()
    return Name(EvaluationId(*map(int, numbers)), mark)


def digest_of(x: Vector) -> str:
    return f"{zlib.crc32(x.astype('<f8').tobytes()):08x}"


def read_values(
    values: Any, n: int, limits: Limits | None = None, first: bool = False
) -> tuple[Floats, NDArray[np.bool_] | None, Floats | None]:
    """Return reported values as floats (NaN: failed), and a mask of lost ones or None. (n,)

    With limits also the outputs that have limits (n, k); else None. first: nothing was reported before.
    """
    if limits is not None:
        return _read_outcomes(values, n, limits, first)
    if type(values) is np.ndarray and values.dtype == np.float64 and values.shape == (n,):
        return values.copy(), None, None  # the usual case, fast
    try:
        array = np.asarray(values)
    except ValueError:  # a ragged list: the loop below names the bad element
        array = np.asarray(None)
    if array.dtype.kind in "fiub":
        if array.size != n or array.ndim not in (1, 2) or len(array) != n:
            found = f"{array.size} values" if array.ndim == 1 else f"an array of shape {array.shape}"
            raise _wrong_count(found, n)
        return array.reshape(n).astype(np.float64), None, None
    return _read_outcomes(values, n, None)


def _read_outcomes(
    values: Any, n: int, limits: Limits | None, first: bool = False
) -> tuple[Floats, NDArray[np.bool_], Floats | None]:
    if isinstance(values, (str, bytes, Mapping, Set)):
        raise ArgumentError(f"tell: found {type(values).__name__}, wanted a sequence of {n} values")
    try:
        items = list(values)
    except TypeError:
        raise ArgumentError(f"tell: found {values!r}, wanted a sequence of {n} values") from None
    if len(items) != n:
        raise _wrong_count(f"{len(items)} values", n)
    outcomes = [_outcome(f"value {i}: ", item, limits) for i, item in enumerate(items)]
    f = np.array([o.value if o.status == "value" else np.nan for o in outcomes], dtype=np.float64)
    outputs = None
    if limits is not None:
        reasons = {o.reason for o, item in zip(outcomes, items, strict=True) if o.fault and o is not item}
        if first and n > 1 and len(reasons) == 1 and all(o.fault for o in outcomes):  # as in `minimize`
            raise ArgumentError(f"tell: each of the first {n} evaluations failed: {reasons.pop()}")
        outputs = np.array([limits.row(o) for o in outcomes]).reshape(n, len(limits))
    return f, np.array([o.status == "lost" for o in outcomes], dtype=bool), outputs


def read_value(value: Any, limits: Limits | None = None) -> tuple[float, bool, Floats | None]:
    """Return one reported value as a float, whether it was lost, and with limits its outputs (k,)."""
    outcome = _outcome("", value, limits)
    outputs = None if limits is None else limits.row(outcome)
    return outcome.value if outcome.status == "value" else np.nan, outcome.status == "lost", outputs


def _outcome(which: str, item: Any, limits: Limits | None) -> Outcome:
    try:
        if limits is None:
            return from_return(item)
        found = from_return(limits.name_outputs(item))
    except TypeError as error:
        raise ArgumentError(f"tell: {which}{error}") from None
    if found.status == "value" and found.outputs is None and found is not item:
        raise ArgumentError(
            f"tell: {which}found {found.value:g} without outputs, wanted (value, outputs), as there are "
            "constraints; NaN or None for a failed evaluation"
        )
    return limits.check(found)


def _wrong_count(found: str, n: int) -> ArgumentError:
    return ArgumentError(
        f"tell: found {found}, wanted {n} values, one for each point that ask returned, in order"
    )
