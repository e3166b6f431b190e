"""Overlapping generations: more points are evaluated at a time than a generation has, so no worker is idle.

A generation is complete when any λ points have values. Up to a share of λ more points are handed out
meanwhile; those without a value by then belong to the next generation. The strategy is given the draws z that
produce these points from its current distribution, not the older draws (N. Hansen, "Injecting external
solutions into CMA-ES", 2011, arXiv:1110.4181). The length of z is limited: as the steps become shorter, older
points are far from the mean and rank badly for that reason alone, which would shorten the steps further.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import is_number, shown
from fmnes.errors import ArgumentError, SnapshotError
from fmnes.outcome import EvaluationId
from fmnes.result import Vector
from fmnes.search.advance import end_generation
from fmnes.search.counting import record
from fmnes.search.generation import Generation, Screened, Source, read_sources, screen
from fmnes.search.start import Start
from fmnes.storage.snapshot import Saved, count, finite, shaped
from fmnes.strategies.base import takes_points_from_elsewhere

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

Floats = NDArray[np.float64]


def check_overlap(overlap: Any, start: Start) -> float:
    """The share as a number; raises ArgumentError for options that exclude an overlap."""
    if not is_number(overlap) or not 0 <= overlap <= 1:
        raise ArgumentError(f"overlap: found {shown(overlap)}, wanted a share of the population, from 0 to 1")
    if overlap and start.grid is not None:
        kind = "integers" if start.choices is None else "categories"
        raise ArgumentError(f"overlap: found {shown(overlap)} together with {kind}; wanted 0 with those")
    if overlap and start.max_redraws is not None:
        raise ArgumentError(
            f"overlap: found {shown(overlap)} together with fmnes.Resampling; wanted 0 with that, or the "
            "method itself, which needs no resampling"
        )
    if overlap and not takes_points_from_elsewhere(start.strategy):
        raise ArgumentError(
            f"overlap: found {shown(overlap)} with {start.strategy.name!r}, which has no `coordinates` and "
            "takes its own points only; wanted 0"
        )
    return float(overlap)


def shortened(z: Floats, age: NDArray[np.int64], fresh: float) -> Floats:
    """Limit the length of the draws of older points; age: in generations. (n, d), (n,)

    fresh: the share of new points in the generation. The limit grows with it from the length of a typical
    draw to Hansen's limit, which few draws reach. It stays at the typical length for points that are older
    than one generation: where most points are old, longer draws make the search converge prematurely.
    """
    d = z.shape[1]
    limit = math.sqrt(d) + np.where(age > 1, 0.0, fresh * 2 * d / (d + 2))
    with np.errstate(all="ignore"):  # points too far away for floating point
        z = z * np.minimum(1.0, limit / np.sqrt(np.vecdot(z, z)))[:, None]
    return np.where(np.isfinite(z), z, 0.0)


class DrawnPoint(NamedTuple):
    x: Vector
    """In the user's coordinates. (d,)"""
    y: Vector
    """In the search's coordinates, before the map into the bounds. (d,)"""
    z: Vector | None
    """Its draw; None if it was drawn in an earlier generation. (d,)"""


class Block(NamedTuple):
    """All points that one generation may hand out, drawn at once: how many are used depends on timing."""

    z: Floats
    y: Floats
    x: Floats
    screened: Screened | None
    """Which points are evaluated; None: all."""
    size: int
    """λ"""
    most: int
    """Limit of points that are pending or have values: λ and the overlapping share."""

    def given(self, slot: int) -> DrawnPoint:
        return DrawnPoint(self.x[slot], self.y[slot], self.z[slot])

    def is_evaluated(self, slot: int) -> bool:
        return self.screened is None or self.screened.source[slot] == Source.EVALUATED


class OverlapScheduler:
    """Hand out points of a search beyond the current generation."""

    def __init__(self, opt: Optimizer, share: float) -> None:
        self._opt = opt
        self.share = share
        self.out: dict[EvaluationId, DrawnPoint] = {}
        """Pending points: under evaluation, or to be handed out again."""
        self._again: deque[EvaluationId] = deque()
        """The pending points that are not under evaluation."""
        self._answered: dict[EvaluationId, tuple[DrawnPoint, float, int]] = {}
        """Points of the current generation, with value (NaN: failed) and its `Source`."""
        self._outputs: dict[EvaluationId, Vector] = {}
        """With limits: the outputs of the evaluated ones. (k,)"""
        self._block: Block | None = None
        self._next = 0
        """All points of the block before this slot were handed out."""

    def _id(self, slot: int) -> EvaluationId:
        """Return the id of a point of the current generation."""
        return EvaluationId(self._opt.restart, self._opt.generation, slot)

    def take(self) -> tuple[EvaluationId, Vector] | None:
        """Return a point to evaluate; None if more values are needed first."""
        block = self._block or self._draw()
        # A generation without a point inside the bounds is complete at once.
        while self._close_if_complete() and self._opt._recent.unevaluated < self._opt._recent.patience:
            block = self._draw()
        if self._block is None or self._spent():
            return None
        if self._again:
            name = self._again.popleft()
            return name, self.out[name].x
        slot = self._first_free(block)
        if slot == len(block.x) or len(self.out) + len(self._answered) >= block.most:
            return None
        name, given = self.hand_out(slot)
        return name, given.x

    def _spent(self) -> bool:
        """Do the pending points use up the budget?"""
        opt = self._opt
        under_way = len(self.out) - len(self._again)
        return opt.max_evaluations is not None and opt.evaluations + under_way >= opt.max_evaluations

    def hand_out(self, slot: int) -> tuple[EvaluationId, DrawnPoint]:
        """Hand out this point of the current generation."""
        name = self._id(slot)
        self.out[name] = given = (self._block or self._draw()).given(slot)
        return name, given

    def expect(self, slots: Iterable[int]) -> None:
        """Mark points of the current generation as handed out: a log has their values."""
        block = self._block or self._draw()
        for slot in slots:
            if 0 <= slot < len(block.x) and self._id(slot) not in self._answered:
                self.hand_out(slot)

    def _first_free(self, block: Block) -> int:
        """Return the first slot of the block that may be handed out and was not."""
        while self._next < len(block.x):
            id = self._id(self._next)
            if id not in self.out and id not in self._answered and block.is_evaluated(self._next):
                break
            self._next += 1
        return self._next

    def take_back(self) -> None:
        """Hand out all pending points again."""
        self._again = deque(self.out)

    def give_back(self, name: EvaluationId) -> None:
        """Hand out a lost point again."""
        if name in self.out and name not in self._again:
            self._again.append(name)

    def tell(self, name: EvaluationId, f: float, outputs: Vector | None = None) -> bool:
        """Store the value of a pending point, not finite if it failed; return whether a generation ended."""
        given = self.out.pop(name)
        if name in self._again:
            self._again.remove(name)
        value = f if math.isfinite(f) else math.nan
        record(self._opt, given.x[None], np.array([value]), None if outputs is None else outputs[None])
        if outputs is not None:
            self._outputs[name] = outputs
        self._answered[name] = (given, value, Source.EVALUATED)
        return self._close_if_complete()

    def _draw(self, z: Floats | None = None) -> Block:
        """Draw the points of a generation; z: the draws of a saved one."""
        distribution = self._opt._distribution
        size = distribution.population_size
        most = size + math.floor(self.share * size)
        z = distribution.draw_rows(most) if z is None else finite(z, (most, len(self._opt.x0)))
        y = distribution.points(z)
        x, inside = distribution.seen(y)
        x.setflags(write=False)
        screened = screen(x, inside, None)
        self._block = block = Block(z, y, x, screened, size, most)
        self._next = 0
        if screened is not None:  # those beyond the first λ do not count
            for slot in np.flatnonzero(screened.source[:size] != Source.EVALUATED).tolist():
                value, source = float(screened.values[slot]), int(screened.source[slot])
                self._answered[self._id(slot)] = (block.given(slot), value, source)
        return block

    def _close_if_complete(self) -> bool:
        block = self._block or self._draw()
        if len(self._answered) < block.size:
            return False
        opt = self._opt
        names = sorted(self._answered)
        rows = [self._answered[name] for name in names]
        z = np.array([given.y if given.z is None else given.z for given, _, _ in rows])
        age = np.array([opt.generation - name.generation for name in names])
        if (older := age > 0).any():
            z[older] = shortened(opt._distribution.coordinates(z[older]), age[older], 1 - older.mean())
        f = np.array([value for _, value, _ in rows])
        generation = Generation.of(z, np.array([given.x for given, _, _ in rows]), None)
        generation.source = np.array([source for _, _, source in rows], dtype=np.int8)
        generation.f = f
        generation.evaluated = int(np.count_nonzero(generation.source == Source.EVALUATED))
        if opt.limits is not None:
            nothing = np.full(len(opt.limits), np.nan)
            generation.outputs = np.array([self._outputs.get(name, nothing) for name in names])
        end_generation(opt, generation, f[np.isfinite(f)].tolist())
        self._answered, self._outputs = {}, {}
        self._block = None
        self.out = {name: given._replace(z=None) for name, given in self.out.items()}
        return True

    def dump(self) -> Saved:
        """Return the points of this generation and the pending ones, for a snapshot."""
        d = len(self._opt.x0)
        points = {**self.out, **{name: given for name, (given, _, _) in self._answered.items()}}
        values = [math.nan] * len(self.out) + [f for _, f, _ in self._answered.values()]
        source = [Source.EVALUATED] * len(self.out) + [source for _, _, source in self._answered.values()]
        names = [[id.generation, id.slot] for id in points]
        arrays = {
            "overlap.names": np.array(names, dtype=np.int64).reshape(-1, 2),
            "overlap.y": np.array([given.y for given in points.values()]).reshape(-1, d),
            "overlap.values": np.array(values, dtype=float),
            "overlap.source": np.array(source, dtype=np.int8),
        }
        if self._block is not None:
            arrays["overlap.z"] = self._block.z
        if self._opt.limits is not None:
            nothing = np.full(len(self._opt.limits), np.nan)
            rows = [self._outputs.get(name, nothing) for name in points]
            arrays["overlap.outputs"] = np.array(rows).reshape(-1, len(self._opt.limits))
        return {"overlap_out": len(self.out)}, arrays

    def restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore into a new scheduler; all pending points are handed out again."""
        distribution, d = self._opt._distribution, len(self._opt.x0)
        block = self._draw(arrays["overlap.z"]) if "overlap.z" in arrays else None
        names, out = arrays["overlap.names"], count(metadata["overlap_out"])
        n = len(shaped(names, (len(names), 2), kinds="i"))
        y, values = finite(arrays["overlap.y"], (n, d)), shaped(arrays["overlap.values"], (n,))
        source = read_sources(arrays["overlap.source"], n)
        x, _ = distribution.seen(y)
        x.setflags(write=False)
        limits = self._opt.limits
        outputs = None if limits is None else shaped(arrays["overlap.outputs"], (n, len(limits)))
        for i, (generation, slot) in enumerate(names.tolist()):
            if generation == self._opt.generation and block is not None and 0 <= slot < len(block.z):
                given = DrawnPoint(x[i], y[i], block.z[slot])
            elif 0 <= generation < self._opt.generation:
                given = DrawnPoint(x[i], y[i], None)
            else:
                raise SnapshotError(f"a point of generation {generation} in {self._opt.generation}")
            name = EvaluationId(self._opt.restart, generation, slot)
            if i < out:
                self.out[name] = given
                self._again.append(name)
            else:
                self._answered[name] = (given, float(values[i]), int(source[i]))
                if outputs is not None:
                    self._outputs[name] = outputs[i]
