"""Parameters whose values have no order: one distribution over the choices of each.

R. Hamano, S. Saito, M. Nomura, K. Uchida and S. Shirakawa, "CatCMA: Stochastic Optimization for
Mixed-Category Problems", GECCO 2024 (arXiv:2405.09962), and "CatCMA with Margin", 2025 (arXiv:2504.07884).
Their learning rate is that of Y. Akimoto, S. Shirakawa, N. Yoshinari, K. Uchida, S. Saito and K. Nishida,
"Adaptive Stochastic Natural Gradient Method for One-Shot Neural Architecture Search", ICML 2019.

    q_jk       the probability of choice k of category j; c_ij is 1 at the choice of point i, else 0
    G_j        Σ_i w_i (c_ij − q_j) over the best points: the natural gradient
    U_j        G_j / √q_j, whose squares sum up to the squared length ‖U‖² of G in the Fisher metric
    δ          1/Δ, the length of a step: q_j ← q_j + δ G_j/‖U‖
    β          δ/√N, N = Σ_j (K_j − 1)
    s          (1 − β) s + √(β (2 − β)) U/‖U‖;  γ ← (1 − β)² γ + β (2 − β)
    Δ          Δ exp(β (γ − ‖s‖²/α)): shorter steps where successive gradients disagree
    margin     every choice keeps at least q_min, so that none that was unlucky is lost for good

Weights are those of the better half of the points that succeed: a choice that always fails gets none and dies
out down to the margin.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import SnapshotError
from fmnes.result import Vector
from fmnes.search.distribution import BEGIN_AGAIN_STEP, Distribution
from fmnes.search.start import Start
from fmnes.steps.sampling import rank_weights
from fmnes.storage.snapshot import Saved, finite
from fmnes.strategies.base import rank

Floats = NDArray[np.float64]

#: α: steps keep their length if ‖s‖² is this multiple of what random gradients give.
SIGNAL = 1.5
#: Probability that the margin alone moves a discrete coordinate of a point, if every one had its share.
LEAVE = 0.27
#: … and at most this one for each: points off the likeliest choice disturb the search of the numbers.
LEAVE_ONE = 0.05
#: Relative step (of sigma0) from which on a search begins with all choices equally likely.
WIDE = 0.4


def with_margin(q: Floats, least: float) -> Floats:
    """Probabilities of at least `least`; the others give up in proportion to their excess. (K,)"""
    q = np.maximum(q, least)
    excess = q - least
    q = least + excess * ((1 - least * len(q)) / excess.sum())
    q /= q.sum()
    return q


class Categories:
    """The distributions of all categories, and the learning rate that they share."""

    def __init__(self, counts: NDArray[np.int64], discrete: int) -> None:
        """counts: the choices of each category. discrete: discrete coordinates, categories among them."""
        self.counts = [int(n) for n in counts]
        self._ends = np.cumsum(self.counts)[:-1]
        leave = min(LEAVE_ONE, 1 - (1 - LEAVE) ** (1 / discrete))
        self._least = [leave / (n - 1) for n in self.counts]
        self.begin()

    def begin(self, likely: NDArray[np.int64] | None = None, share: float = 1.0) -> None:
        """Begin with equal probabilities; with a small `share` of sigma0 mostly at the likely choices."""
        self.q: list[Floats] = [np.full(n, 1 / n) for n in self.counts]
        self._s = np.zeros(sum(self.counts))
        self._gamma, self._delta = 0.0, 1.0
        spread = min(1.0, share / WIDE)
        if likely is not None and spread < 1:
            for i, k in enumerate(likely):
                q = spread * self.q[i]
                q[k] += 1 - spread
                self.q[i] = with_margin(q, self._least[i])

    @property
    def likeliest(self) -> NDArray[np.int64]:
        return np.array([int(q.argmax()) for q in self.q])

    def draw(self, rng: np.random.Generator, n: int) -> Floats:
        """Draw the choices of n points. (n, categories)"""
        u = rng.random((n, len(self.q)))
        return np.stack(
            [np.searchsorted(np.cumsum(q)[:-1], u[:, i], side="right") for i, q in enumerate(self.q)], axis=1
        ).astype(float)

    def update(self, chosen: Floats, n_feasible: int) -> None:
        """Make the update. chosen: the choices of the points, the best first, failed ones last. (λ, n)"""
        if not n_feasible:
            return
        w = rank_weights(n_feasible).raw
        w = w / w.sum()
        k = chosen[: len(w)].astype(int)
        gradient = [np.bincount(k[:, i], weights=w, minlength=len(q)) - q for i, q in enumerate(self.q)]
        u = np.concatenate([g / np.sqrt(q) for g, q in zip(gradient, self.q, strict=True)])
        length = float(np.sqrt(u @ u))
        if not length > 0:
            return
        step = 1 / self._delta
        beta = step / math.sqrt(sum(self.counts) - len(self.counts))
        for i, (g, least) in enumerate(zip(gradient, self._least, strict=True)):
            self.q[i] = with_margin(self.q[i] + step / length * g, least)
        self._s = (1 - beta) * self._s + math.sqrt(beta * (2 - beta)) / length * u
        self._gamma = (1 - beta) ** 2 * self._gamma + beta * (2 - beta)
        self._delta *= math.exp(beta * (self._gamma - float(self._s @ self._s) / SIGNAL))

    def dump(self) -> dict[str, NDArray[Any]]:
        return {
            "categories.q": np.concatenate(self.q),
            "categories.s": self._s,
            "categories.rate": np.array([self._gamma, self._delta]),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Restore into new categories of the same choices."""
        size = (sum(self.counts),)
        q = finite(arrays["categories.q"], size)
        if not (q > 0).all():
            raise SnapshotError(f"probability {q.min()} of a choice, wanted a positive one")
        self.q = [part.copy() for part in np.split(q, self._ends)]
        self._s = finite(arrays["categories.s"], size)
        self._gamma, self._delta = finite(arrays["categories.rate"], (2,)).tolist()
        if not self._delta > 0:
            raise SnapshotError(f"rate {self._delta}, wanted a positive number")


# -- The distribution of points with categories: numbers from a strategy, choices beside it.


def make_distribution(start: Start, rng: np.random.Generator, share: float = 1.0) -> Distribution:
    """share: the step size as a share of the first search's."""
    return Distribution(start, rng) if start.choices is None else MixedDistribution(start, rng, share)


class MixedDistribution(Distribution):
    """A distribution of the numbers, in their own coordinates, and of the choices.

    Points have all coordinates; the strategy's state and the draws z have those of the numbers only.
    """

    def __init__(self, start: Start, rng: np.random.Generator, share: float = 1.0) -> None:
        assert start.choices is not None and start.grid is not None
        self._whole = start
        self._numbers = start.numeric
        self._where = np.flatnonzero(start.choices)
        self.categories = Categories(start.choices[self._where], len(start.grid.where))
        super().__init__(start.numbers, rng)
        self.categories.begin(self._parts(start.x0)[1], share)

    def _parts(self, x: Vector) -> tuple[Vector, NDArray[np.int64]]:
        """The numbers and the choices of a point; without any number the strategy's one coordinate."""
        numbers = x[self._numbers] if self._numbers.size else self.start.x0
        return numbers, np.rint(x[self._where]).astype(np.int64)

    def _point(self, numbers: Floats, choices: NDArray[Any]) -> Floats:
        """Points of their numbers and choices. (…, d)"""
        x = np.empty((*numbers.shape[:-1], len(self._whole.x0)))
        x[..., self._numbers] = numbers[..., : self._numbers.size]
        x[..., self._where] = choices
        return x

    def begin_at(self, x: Vector, share: float) -> None:
        numbers, chosen = self._parts(x)
        self.categories.begin(chosen, share)
        self._begin(numbers, share)

    def begin_again(self, x: Vector) -> None:
        if self.start.grid is None:
            return self.begin_at(x, BEGIN_AGAIN_STEP)
        numbers, chosen = self._parts(x)
        self.categories.begin(chosen, BEGIN_AGAIN_STEP)
        super().begin_again(numbers)

    @property
    def all_coordinates(self) -> int:
        return len(self._whole.x0)

    @property
    def own_units(self) -> bool:
        return True

    def draw(self, n: int) -> tuple[Floats, Floats, NDArray[np.bool_] | None]:
        z, x, inside = super().draw(n)
        return z, self._point(x, self.categories.draw(self.rng, len(x))), inside

    def nearest(self, x: Floats) -> Floats:
        assert self._whole.grid is not None
        return self._whole.grid.nearest(x)

    def as_point(self, mean: Any) -> Vector:
        """The point of a mean and of the likeliest choices."""
        return self._point(super().as_point(mean), self.categories.likeliest)

    def update(self, z: Floats, f: Floats, x: Floats, slowly: bool = False) -> None:
        order, n_feasible = rank(self.start.strategy, z, f)
        if self._numbers.size:
            self._update(z, len(f), order, n_feasible, slowly)
        self.categories.update(x[order][:, self._where], int(n_feasible))

    def dump(self) -> Saved:
        metadata, arrays = super().dump()
        return metadata, arrays | self.categories.dump()

    def restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super().restore(metadata, arrays)
        self.categories.restore(arrays)
