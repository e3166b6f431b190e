"""Which search space the trials of a study have: what all complete ones asked for, in the same range.

Unlike Optuna's intersection it knows two things more: a study of which nothing is complete yet has a space as
soon as one trial has failed, and a range that the user has changed comes back with its new ends.
"""

from __future__ import annotations

import bisect
from collections import Counter
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from fmnes.integrations.optuna.ranges import Ranges, is_searched

#: A range that has changed is one to search in when so many complete trials had it; one that changes more
#: often depends on other parameters.
SETTLED = 10


class Spaces:
    """Takes in finished trials in any order; the space depends on which there are, not on their order."""

    def __init__(self) -> None:
        self._complete = 0
        self._having: Counter[str] = Counter()
        """How many of the complete trials asked for each name."""
        self._ranges: Ranges = {}
        """The first range that was seen of each name."""
        self._changing: set[str] = set()
        self._latest: list[tuple[int, Ranges]] = []
        """The last complete trials by their numbers, and their ranges."""
        self._failed: tuple[int, int, Ranges] = (0, 0, {})
        """Of the trial that asked for most among those that did not complete."""
        self._space: Ranges | None = None

    def add(self, trial: FrozenTrial) -> None:
        if trial.state is not TrialState.COMPLETE:
            found = (len(trial.distributions), -trial.number, trial.distributions)
            if not self._complete and found[:2] > self._failed[:2]:
                self._failed, self._space = found, None
            return
        self._complete += 1
        bisect.insort(self._latest, (trial.number, trial.distributions), key=lambda pair: pair[0])
        del self._latest[:-SETTLED]
        for name, distribution in trial.distributions.items():
            self._having[name] += 1
            first = self._ranges.setdefault(name, distribution)
            if first is not distribution and first != distribution:
                self._changing.add(name)
        common = {name for name, n in self._having.items() if n == self._complete}
        if self._complete == 1 or self._changing or self._space is None or not common >= set(self._space):
            self._space = None

    @property
    def space(self) -> Ranges:
        """Sorted by name."""
        if self._space is None:
            space = self._failed[2] if not self._complete else self._common()
            self._space = {name: space[name] for name in sorted(space) if is_searched(space[name])}
        return self._space

    def _common(self) -> Ranges:
        common: dict[str, Any] = {
            name: self._latest[-1][1][name] for name, n in self._having.items() if n == self._complete
        }
        return {name: found for name, found in common.items() if self._is_settled(name, found)}

    def _is_settled(self, name: str, found: Any) -> bool:
        return name not in self._changing or all(ranges[name] == found for _, ranges in self._latest)
