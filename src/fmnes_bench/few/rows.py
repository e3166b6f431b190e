"""One run of a method on a problem, and its row: a line of JSON in a file that only grows."""

from __future__ import annotations

import contextlib
import gzip
import inspect
import json
import os
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError, FmnesError, nearest
from fmnes.run.minimize import minimize
from fmnes.strategies import DEFAULT_METHOD
from fmnes.strategies import METHODS as OURS
from fmnes_bench.coco.problems import seed_for
from fmnes_bench.few.problems import Case, Problem, open_problem
from fmnes_bench.peers import PEERS, Evaluate, Finished, Start, is_installed, load

Array = NDArray[np.float64]

# -- What is measured.

#: The best value is kept after these multiples of d.
CHECKPOINTS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500)
#: The first evaluation with each of these regrets is kept.
REGRETS = (1e-3, 1e-6, 1e-8)
#: The same on COCO's functions, for areas under curves: 1, … 1e-6.
TARGETS = tuple(10 ** (-i / 5) for i in range(31))


class Key(NamedTuple):
    """What determines a run."""

    case: Case
    method: str
    budget: int
    """Evaluations per dimension."""


class Row(NamedTuple):
    """What is kept of a run."""

    key: Key
    evaluations: int
    failed: int
    working: int
    """The first evaluation that did not fail; 0 if there was none."""
    optimum: float
    scale: float
    """What a gap is divided by to give the regret."""
    gaps: tuple[float | None, ...]
    """The best value less the optimum at each of CHECKPOINTS within the budget; None before a success."""
    hits: tuple[int | None, ...]
    """The first evaluation with each of REGRETS; None if it was not reached."""
    failed_before: tuple[int | None, ...]
    """Failed evaluations before each of these; empty in rows that were made before it was counted."""
    targets: tuple[int, ...]
    """The first evaluation with each of TARGETS, as far as it got; only of `bbob`."""
    milliseconds: float
    """Processor time of the method for an evaluation, without the objective's."""

    def regret(self, multiple: int) -> float | None:
        """The regret after `multiple` d evaluations, at most 1; None if the budget was smaller."""
        if multiple not in CHECKPOINTS or multiple > self.key.budget:
            return None
        gap = self.gaps[CHECKPOINTS.index(multiple)]
        return 1.0 if gap is None else min(1.0, gap / self.scale)


class Recorder:
    """The objective as a method sees it: points (n, d) to values (n,), NaN for what failed."""

    def __init__(self, problem: Problem, key: Key) -> None:
        self._problem = problem
        self._d = len(problem.start.x0)
        self._budget = key.budget * self._d
        self._marks = [multiple * self._d for multiple in CHECKPOINTS if multiple <= key.budget]
        self._wants_targets = key.case.suite == "bbob"
        self.evaluations = self.failed = self.working = 0
        self.gaps: list[float | None] = []
        self.hits: list[int | None] = [None] * len(REGRETS)
        self.failed_before: list[int | None] = [None] * len(REGRETS)
        self.targets: list[int] = []
        self.best = np.inf
        self.seconds = 0.0
        """Processor time of the objective itself."""

    @property
    def finished(self) -> bool:
        """Is the budget spent, or the last regret reached?"""
        return self.evaluations >= self._budget or self.hits[-1] is not None

    def __call__(self, points: Array) -> Array:
        return np.array([self._one(x) for x in np.asarray(points, dtype=float)])

    def _one(self, x: Array) -> float:
        if self.finished:
            raise Finished
        began = time.process_time()
        value = self._problem.fun(x)
        self.seconds += time.process_time() - began
        self.evaluations += 1
        if np.isfinite(value):
            self.working = self.working or self.evaluations
            self.best = min(self.best, value - self._problem.optimum)
            self._note()
        else:
            self.failed += 1
            value = np.nan
        if self.evaluations in self._marks:
            self.gaps.append(self._gap())
        return value

    def _note(self) -> None:
        scale = self._problem.scale
        for i, regret in enumerate(REGRETS):
            if self.hits[i] is None and self.best <= regret * scale:
                self.hits[i], self.failed_before[i] = self.evaluations, self.failed
        while len(self.targets) < len(TARGETS) and self.best <= TARGETS[len(self.targets)] * scale:
            self.targets.append(self.evaluations)

    def _gap(self) -> float | None:
        return None if np.isinf(self.best) else self.best

    def row(self, key: Key, seconds: float) -> Row:
        """seconds: processor time of the whole run."""
        # A run that ended early keeps its best value until the end of the budget.
        gaps = self.gaps + [self._gap()] * (len(self._marks) - len(self.gaps))
        return Row(
            key,
            self.evaluations,
            self.failed,
            self.working,
            self._problem.optimum,
            self._problem.scale,
            tuple(None if gap is None else float(f"{gap:.4g}") for gap in gaps),
            tuple(self.hits),
            tuple(self.failed_before),
            tuple(self.targets) if self._wants_targets else (),
            round(1e3 * max(0.0, seconds - self.seconds) / max(1, self.evaluations), 3),
        )


# -- Methods: the default of fmnes without and with its surrogate, its other methods, and the peers.

SURROGATE = "surrogate"
#: More restarts than any budget has room for.
RESTARTS = 20
#: Of ours: the targets are closer to the optimum than the default tolerances.
TOLERANCE = 1e-12


def check_method(name: str) -> None:
    """Raise an error that says what to do, if this method cannot run here."""
    known = [*OURS, SURROGATE, *PEERS]
    if name not in known:
        raise ArgumentError(
            f"methods: found {name!r}, wanted some of {', '.join(known)}{nearest(name, known)}"
        )
    if name == SURROGATE and not _has_surrogate():
        raise ArgumentError(
            f"methods: found {name!r}, but this version of fmnes.minimize has no argument surrogate="
        )
    if name in PEERS and not is_installed(name):
        raise ArgumentError(
            f"methods: found {name!r}, which is not installed: pip install {PEERS[name].install}"
        )


def _has_surrogate() -> bool:
    return "surrogate" in inspect.signature(minimize).parameters


def ours(evaluate: Evaluate, start: Start, budget: int, seed: int, method: str) -> None:
    """`fmnes.minimize` with restarts, one point at a time; without a known start it gets only the box."""
    options: dict[str, Any] = {"method": DEFAULT_METHOD if method == SURROGATE else method}
    if _has_surrogate():
        options["surrogate"] = method == SURROGATE
    if start.bounded:
        options["bounds"] = list(zip(start.lower.tolist(), start.upper.tolist(), strict=True))
    if start.known:
        options |= {"x0": start.x0, "sigma0": start.sigma0}
    minimize(
        lambda x: float(evaluate(np.asarray(x)[None])[0]),
        max_evaluations=budget,
        restarts=RESTARTS,
        rng=seed,
        xtol=TOLERANCE,
        ftol=TOLERANCE,
        on_error="raise",  # so that Finished ends the run
        **options,
    )


def run_row(case: Case, method: str, budget: int) -> Row:
    """Run a method on a problem until its last target or the end of its budget."""
    key = Key(case, method, budget)
    seed = seed_for(*case)  # the same for all methods
    if method in PEERS:
        load(method)
    with open_problem(case) as problem, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the peers' own
        recorder = Recorder(problem, key)
        evaluations = budget * len(problem.start.x0)
        began = time.process_time()
        with contextlib.suppress(Finished):
            if method in PEERS:
                PEERS[method].run(recorder, problem.start, evaluations, seed)
            else:
                ours(recorder, problem.start, evaluations, seed, method)
        return recorder.row(key, time.process_time() - began)


# -- The file.


class Rows:
    """The rows of a file and of its compressed form (`gzip FILE`), and a way to add some."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _repair(path)
        self._path = path
        self.rows: dict[Key, Row] = {row.key: row for row in read_rows(path)}

    def add(self, row: Row) -> None:
        """Append the row in one write, so that several processes can add to the same file."""
        self.rows[row.key] = row
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, (as_line(row) + "\n").encode())
        finally:
            os.close(file)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file and of its compressed form, the last one of each run."""
    packed = path.with_name(path.name + ".gz")
    texts = [gzip.decompress(packed.read_bytes()).decode()] if packed.exists() else []
    texts += [path.read_text(encoding="utf-8")] if path.exists() else []
    found: dict[Key, Row] = {}
    for text in texts:
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = from_line(line)
            except (ValueError, KeyError, TypeError):
                raise FmnesError(f"{path}, line {number}: found {line[:60]!r}, wanted a row") from None
            found[row.key] = row
    return list(found.values())


def as_line(row: Row) -> str:
    """The row as JSON."""
    fields = {
        **row.key.case._asdict(),
        "method": row.key.method,
        "budget": row.key.budget,
        **{name: value for name, value in row._asdict().items() if name != "key"},
    }
    for name in ("failed_before", "targets"):
        if not fields[name]:
            del fields[name]
    return json.dumps(fields, separators=(",", ":"))


def from_line(line: str) -> Row:
    """The opposite of `as_line`."""
    fields = json.loads(line)
    case = Case(*(fields.pop(name) for name in Case._fields))
    key = Key(case, fields.pop("method"), fields.pop("budget"))
    fields |= {name: tuple(fields.get(name, ())) for name in ("gaps", "hits", "failed_before", "targets")}
    return Row(key, **fields)


def write_packed(rows: Iterable[Row], path: Path) -> None:
    """Write rows as FILE.gz, sorted; the same rows give the same bytes."""
    lines = sorted(as_line(row) for row in rows)
    packed = gzip.compress("".join(line + "\n" for line in lines).encode(), mtime=0)
    path.with_name(path.name + ".gz").write_bytes(packed)


def _repair(path: Path) -> None:
    """Remove a last line that is incomplete."""
    raw = path.read_bytes() if path.exists() else b""
    whole = raw[: raw.rfind(b"\n") + 1]
    if whole != raw:
        path.write_bytes(whole)
