"""A run with restarts is several searches: what those before the last one come to, and all together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fmnes.result import Best, View
from fmnes.search.optimizer import Optimizer


class Totals:
    """Of the searches before the last restart; all zero before the first."""

    def __init__(self) -> None:
        self.restarts = 0
        self.evaluations = 0
        self.generations = 0
        self.infeasible = 0
        self.best = Best(None, np.inf, 0)

    def take(self, opt: Optimizer) -> None:
        """That search is over, and another one begins."""
        self.best = self.best_with(opt)
        self.evaluations += opt.evaluations
        self.generations += opt.generation
        self.infeasible += opt.n_infeasible
        self.restarts += 1

    def best_with(self, opt: Optimizer) -> Best:
        if opt.best.fun < self.best.fun:
            return opt.best._replace(evaluation=self.evaluations + opt.best.evaluation)
        return self.best

    def view_with(self, view: View, opt: Optimizer) -> View:
        """The view of `opt` with the searches before it counted in."""
        if not self.restarts:
            return view
        evaluations = self.evaluations + view.evaluations
        return replace(view, evaluations=evaluations, best=self.best_with(opt), restart=self.restarts)
