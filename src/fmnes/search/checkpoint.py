"""How a whole search is saved and restored, an unfinished generation and the random state too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fmnes.constraints import Limits
from fmnes.errors import FmnesError, SnapshotError
from fmnes.search.explorer import Explorer
from fmnes.search.generation import Generation
from fmnes.search.noise_watch import NoiseWatch
from fmnes.search.start import Start
from fmnes.search.stopping import Gains
from fmnes.space import Space
from fmnes.storage.snapshot import Saved, count, dump_best, restore_best, shaped
from fmnes.surrogate.limited import LimitedSurrogate
from fmnes.surrogate.phases import Surrogate

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

Search = TypeVar("Search", bound="Optimizer")

#: The kind of a saved file.
KIND = "optimizer"
#: Limits set by the user, saved unchanged.
LIMITS = ("target", "max_evaluations", "xtol", "ftol")


def limits_of(search: Optimizer) -> dict[str, Any]:
    """Return the limits that the user has set."""
    return {name: getattr(search, name) for name in LIMITS}


def dump(search: Optimizer) -> Saved:
    """Return what `Optimizer.save` writes: JSON data, and named arrays."""
    metadata: dict[str, Any] = {
        "kind": KIND,
        **limits_of(search),
        "seed": None if search.seed is None else str(search.seed),
        "restart": search.restart,
        "generation": search.generation,
        "evaluations": search.evaluations,
        "n_infeasible": search.n_infeasible,
        "n_repeated": search.n_repeated,
        "start_failed": search.start_failed,
        "polled": search._polled,
    }
    if search.space is not None:
        metadata["parameters"] = search.space.as_json()
    arrays: dict[str, NDArray[Any]] = {"feasible_share": np.asarray(search._feasible_share)}
    always = (search._start, search._distribution, search._recent, search._archive)
    parts = [part.dump() for part in always] + [dump_best(search._best)]
    optional = (search._explorer, search.gains, search._surrogate, search._constrained, search.noise)
    parts += [part.dump() for part in optional if part is not None]
    if search._current is not None:
        parts.append(search._current.dump())
    if search.overlap_scheduler is not None:
        metadata["overlap"] = search.overlap
        parts.append(search.overlap_scheduler.dump())
    for more_metadata, more_arrays in parts:
        metadata |= more_metadata
        arrays |= more_arrays
    return metadata, arrays


def restore(cls: type[Search], metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Search:
    """Return the optimizer whose `dump` gave these. Raises SnapshotError for anything else."""
    try:
        return _restore(cls, metadata, arrays)
    # Valid JSON and arrays that fmnes did not write, or that were edited.
    except (
        FmnesError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        AttributeError,
        AssertionError,
    ) as error:
        raise SnapshotError(f"found an unusable optimizer ({error})") from None


def _restore(cls: type[Search], metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Search:
    if metadata["kind"] != KIND:
        raise SnapshotError(f"kind {metadata['kind']!r}, wanted {KIND!r}")
    limits = {name: metadata[name] for name in LIMITS}
    start = Start.restore(metadata, arrays)
    constraints = Limits.from_json(metadata["constraints"]) if "constraints" in metadata else None
    opt = cls(
        **start.arguments(),
        **limits,
        rng=0,
        overlap=metadata.get("overlap", 0.0),
        constraints=constraints,
    )
    d = len(start.x0)
    if opt._constrained is not None:
        opt._constrained.restore(metadata, arrays)
    if "parameters" in metadata:
        opt.space = Space.from_json(metadata["parameters"])
        if len(opt.space.names) != d:
            raise SnapshotError(f"{len(opt.space.names)} parameters for {d} coordinates")
    opt._distribution.restore(metadata, arrays)
    opt._recent.restore(metadata, arrays)
    opt.seed = None if metadata["seed"] is None else int(metadata["seed"])
    for name in ("restart", "generation", "evaluations", "n_infeasible", "n_repeated"):
        setattr(opt, name, count(metadata[name]))
    if type(metadata["start_failed"]) is not bool:
        raise SnapshotError(f"start_failed {metadata['start_failed']!r}, wanted true or false")
    opt.start_failed = metadata["start_failed"]
    opt._polled = count(metadata["polled"])
    opt._feasible_share = float(shaped(arrays["feasible_share"], ()))
    opt._best = restore_best(metadata, arrays, d)
    opt._archive.restore(arrays, opt._n_outputs)
    if "surrogate" in metadata:
        opt._surrogate = (
            Surrogate.restore(metadata, arrays)
            if constraints is None
            else LimitedSurrogate.restore(metadata, arrays, constraints)
        )
    opt._explorer = None
    if "explorer" in metadata:
        if start.finite_bounds is None:
            raise SnapshotError("an exploration of a box without finite bounds")
        opt._explorer = Explorer(start.finite_bounds)
        opt._explorer.restore(metadata, arrays)
    opt.noise = NoiseWatch.restore(metadata, arrays) if "noise" in metadata else None
    opt.gains = Gains.restored(metadata, arrays, d) if "gains" in metadata else None
    if opt.overlap_scheduler is not None:
        opt.overlap_scheduler.restore(metadata, arrays)
    elif "current.z" in arrays:
        drawn = opt._distribution
        opt._current = Generation.restore(
            metadata,
            arrays,
            drawn.draws,
            drawn.population_size,
            d,
            drawn.width,
            any_size=opt._surrogate is not None or opt._constrained is not None or "repeat" in metadata,
            n_outputs=opt._n_outputs,
        )
        _check_duplicates(opt, opt._current)
        points, draws = len(opt._current.f), len(opt._current.z) * (2 if opt.strategy.mirrored else 1)
        proposed = opt._current.proposed
        if opt._constrained is not None and not proposed and points - draws not in (0, 1):
            raise SnapshotError(f"{points} points for {draws} draws")
    _check_choices(opt)
    return opt


def _check_duplicates(search: Optimizer, current: Generation) -> None:
    """Check a restored generation: each duplicate has an open slot, or a known value."""
    evaluated = {x.tobytes() for x in current.x[current.open]}
    for x in current.x[current.duplicates]:
        if not (x.tobytes() in evaluated or search._archive.get(x) is not None):
            raise SnapshotError("a duplicate without the slot that is evaluated for it")


def _check_choices(search: Optimizer) -> None:
    """Check that a restored search has no choices that do not exist: they are looked up."""
    choices = search._start.choices
    if choices is None:
        return
    points = [] if search._current is None else [search._current.x]
    points += [] if search._best.x is None else [search._best.x[None]]
    where = np.flatnonzero(choices)
    for x in points:
        found = x[:, where]
        if not ((found == np.rint(found)) & (found >= 0) & (found < choices[where])).all():
            raise SnapshotError("a choice that does not exist")
