"""A run is its start and one search or several: what all before the last one come to, and all together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fmnes.result import Best, Vector, View
from fmnes.search.optimizer import Optimizer
from fmnes.search.saved import count
from fmnes.storage.snapshot import Arrays

_NONE = Best(None, np.inf, 0)


@dataclass
class Totals:
    """Of the start's own evaluation, and of the searches before the last one."""

    restarts: int = 0
    evaluations: int = 0
    generations: int = 0
    infeasible: int = 0
    repeated: int = 0
    best: Best = _NONE

    def take_start(self, x: Vector, value: float) -> None:
        """The start was evaluated, before the first search; NaN: it failed."""
        self.evaluations += 1
        if np.isfinite(value):
            self.best = Best(x, value, 1)
        else:
            self.infeasible += 1

    def take(self, opt: Optimizer) -> None:
        """That search is over, and another one begins."""
        self.best = self.best_with(opt)
        self.evaluations += opt.evaluations
        self.generations += opt.generation
        self.infeasible += opt.n_infeasible
        self.repeated += opt.n_repeated
        self.restarts += 1

    def best_with(self, opt: Optimizer) -> Best:
        if opt.best.fun < self.best.fun:
            number = opt.best.evaluation and self.evaluations + opt.best.evaluation  # 0: known before
            return opt.best._replace(evaluation=number)
        return self.best

    def view_with(self, view: View, opt: Optimizer) -> View:
        """The view of `opt` with the searches before it counted in."""
        if not self.evaluations and not self.restarts:
            return view
        return replace(
            view,
            evaluations=self.evaluations + view.evaluations,
            best=self.best_with(opt),
            restart=self.restarts,
            n_repeated=self.repeated + view.n_repeated,
            n_infeasible=self.infeasible + view.n_infeasible,
        )

    def dump(self) -> tuple[dict[str, int], Arrays]:
        counts = {
            "restarts": self.restarts,
            "evaluations": self.evaluations,
            "generations": self.generations,
            "infeasible": self.infeasible,
            "repeated": self.repeated,
            "best_evaluation": self.best.evaluation,
        }
        if self.best.x is None:
            return counts, {}
        return counts, {"totals.best.x": self.best.x, "totals.best.fun": np.asarray(self.best.fun)}

    @classmethod
    def restore(cls, counts: dict[str, Any], arrays: Arrays) -> Totals:
        best = Best(None, np.inf, 0)
        if "totals.best.x" in arrays:
            best = Best(
                arrays["totals.best.x"], float(arrays["totals.best.fun"]), int(counts["best_evaluation"])
            )
        names = ("restarts", "evaluations", "generations", "infeasible", "repeated")
        return cls(**{name: count(counts[name]) for name in names}, best=best)
