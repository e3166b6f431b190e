"""The strategy protocol, checks of settings that strategies share, and the ranking that updates get."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import check_choice as check_choice
from fmnes.arguments import is_number, shown
from fmnes.backends import NUMPY, Array, Backend
from fmnes.errors import ArgumentError
from fmnes.steps.sampling import dot

# A strategy consists of pure functions over a state, with frozen settings.
#
#     state = strategy.init(x0, sigma0, z0)      z0 (d,): one draw, for strategies with a random start
#     x     = strategy.sample(state, z)          z (draws, d) standard normal; x (λ, d)
#     state = strategy.update(state, z, order, n_feasible)   order (λ,): indices of x, best to worst
#     shape = strategy.shape(state)              the search distribution
#
# Draws come in as arguments, so a strategy holds no random generator and the same source serves NumPy and
# JAX.
# A state is a NamedTuple of arrays with no λ in any shape: λ may change from one generation to the next.


class Shape(NamedTuple):
    """The search distribution N(mean, sigma² · C) as an observer sees it.

    Attributes
    ----------
    mean : ndarray
        The centre of the points, (d,).
    sigma : float
        The step size.
    axis_lengths : ndarray
        Standard deviations along the axes of C; exact after a refresh, close to it otherwise. (d,)
    phase : str
        "movement", "stagnation" or "convergence"; empty for strategies without phases.

    Examples
    --------
    >>> import numpy as np
    >>> import fmnes
    >>> from fmnes.backends import NUMPY
    >>> method = fmnes.XNES()
    >>> state = method.init(np.zeros(2), np.float64(0.5), np.zeros(2), NUMPY)
    >>> shape = method.shape(state)
    >>> float(shape.sigma), shape.axis_lengths
    (0.5, array([1., 1.]))
    """

    mean: Array
    """Where the points are centred. (d,)"""
    sigma: Array
    """The step size."""
    axis_lengths: Array
    """Standard deviations along the axes of C; exact right after a refresh, close to it otherwise. (d,)"""
    phase: str
    """"movement", "stagnation" or "convergence"; empty for strategies without phases."""


class Strategy:
    """Base class of the strategies: pure functions over a state, with frozen settings.

    A strategy defines `name`, `init`, `sample`, `update` and `shape`. The other members have defaults.
    Without `covariance` (or `deviations`) integers are refused; without `coordinates`, overlap is.
    """

    @property
    def name(self) -> str:
        """The name of the method, such as "fm-nes"."""
        raise NotImplementedError

    @property
    def population_size(self) -> int | None:
        """λ of the settings; None for the default."""
        return None

    @property
    def mirrored(self) -> bool:
        """True if every draw is used as z and −z, so that λ is even and takes λ/2 draws."""
        return False

    @property
    def failed_order(self) -> Literal["index", "distance"]:
        """How failed points are ordered: by index, or by the length of their draws, the shortest first."""
        return "index"

    @property
    def matrices(self) -> int:
        """The largest number of d × d matrices that it holds at once, which limits d."""
        return 0

    @property
    def adapts_population_size(self) -> bool:
        """True if the strategy draws more points where points fail."""
        return False

    def init(self, x0: Array, sigma0: Array, z0: Array, backend: Backend = NUMPY) -> Any:
        """Return the first state.

        Parameters
        ----------
        x0 : ndarray
            Where to start, (d,).
        sigma0 : float
            The first step size.
        z0 : ndarray
            One standard normal draw, (d,), for strategies with a random start.
        backend : Backend, optional
            NumPy or JAX.

        Returns
        -------
        NamedTuple
            Arrays; no shape has λ in it.
        """
        raise NotImplementedError

    def sample(self, state: Any, z: Array, backend: Backend = NUMPY) -> Array:
        """Return the points of these draws.

        Parameters
        ----------
        state : NamedTuple
            The state.
        z : ndarray
            Standard normal draws, (λ, d); (λ/2, d) if `mirrored`.
        backend : Backend, optional
            NumPy or JAX.

        Returns
        -------
        ndarray
            The points, (λ, d).
        """
        raise NotImplementedError

    def update(self, state: Any, z: Array, order: Array, n_feasible: Array, backend: Backend = NUMPY) -> Any:
        """Return the next state.

        Parameters
        ----------
        state : NamedTuple
            The state.
        z : ndarray
            The draws as given to `sample`.
        order : ndarray
            The slots of the points from best to worst, (λ,): `order[0]` is the index of the best. Failed
            points come last.
        n_feasible : int
            Number of points that did not fail.
        backend : Backend, optional
            NumPy or JAX.

        Returns
        -------
        NamedTuple
            The next state.
        """
        raise NotImplementedError

    def shape(self, state: Any, backend: Backend = NUMPY) -> Shape:
        """Return the search distribution.

        Parameters
        ----------
        state : NamedTuple
            The state.
        backend : Backend, optional
            NumPy or JAX.

        Returns
        -------
        Shape
            Its mean, step size and axes.
        """
        raise NotImplementedError

    def covariance(self, state: Any, backend: Backend = NUMPY) -> Array:
        """Return the covariance of the points, sigma² · C.

        Parameters
        ----------
        state : NamedTuple
            The state.
        backend : Backend, optional
            NumPy or JAX.

        Returns
        -------
        ndarray
            (d, d).
        """
        raise NotImplementedError

    def deviations(self, state: Any, backend: Backend = NUMPY) -> Array:
        """Return the standard deviation of each coordinate.

        Parameters
        ----------
        state : NamedTuple
            The state.
        backend : Backend, optional
            NumPy or JAX.

        Returns
        -------
        ndarray
            (d,); by default the square roots of the diagonal of `covariance`.
        """
        xp = backend.xp
        return xp.sqrt(xp.diagonal(self.covariance(state, backend)))

    def coordinates(self, state: Any, x: Array) -> Array:
        """Return the draws z that give these points.

        Parameters
        ----------
        state : NamedTuple
            The state.
        x : ndarray
            Any points, (n, d).

        Returns
        -------
        ndarray
            z, (n, d).
        """
        raise NotImplementedError

    def shape_matrix(self, state: Any) -> Array:
        """Return B, with which the points are mean + sigma · B z.

        A strategy that defines this and `with_shape` converges in spite of noise (`noise=True`).

        Parameters
        ----------
        state : NamedTuple
            The state.

        Returns
        -------
        ndarray
            B with determinant ±1, (d, d).
        """
        raise NotImplementedError

    def with_shape(self, state: Any, mean: Array, sigma: float, B: Array) -> Any:
        """Return the state with another distribution, whose points are mean + sigma · B z.

        Parameters
        ----------
        state : NamedTuple
            The state.
        mean : ndarray
            The mean, (d,).
        sigma : float
            The step size.
        B : ndarray
            The shape with determinant ±1, (d, d).

        Returns
        -------
        NamedTuple
            The state; what it has learned otherwise stays.
        """
        raise NotImplementedError

    def default_population_size(self, d: int) -> int | None:
        """Return λ for settings without a `population_size`.

        Parameters
        ----------
        d : int
            Number of coordinates.

        Returns
        -------
        int or None
            None for 4 + 3 ln d, made even if `mirrored`.
        """
        return None

    def next_population_size(self, state: Any, first: int, backend: Backend = NUMPY) -> Array:
        """Return λ of the next generation.

        Parameters
        ----------
        state : NamedTuple
            The state after an update.
        first : int
            λ of the first generation.
        backend : Backend, optional
            NumPy or JAX.

        Returns
        -------
        int
            By default `first`.
        """
        return first

    def largest_population_size(self, first: int) -> int:
        """Return the largest λ that a run can have.

        Parameters
        ----------
        first : int
            λ of the first generation.

        Returns
        -------
        int
            By default `first`.
        """
        return first

    def with_refresh(self, d: int, population_size: int) -> Strategy:
        """Return the same settings with all intervals fixed to those of this λ, whatever λ becomes.

        Parameters
        ----------
        d : int
            Number of coordinates.
        population_size : int
            λ.

        Returns
        -------
        Strategy
            By default the strategy itself.
        """
        return self


def implements(strategy: Strategy, member: str) -> bool:
    """True if the strategy defines an optional member itself."""
    return getattr(type(strategy), member) is not getattr(Strategy, member)


def takes_points_from_elsewhere(strategy: Strategy) -> bool:
    """True if the strategy can compute the draws of points of another distribution."""
    return implements(strategy, "coordinates")


def slows_down(strategy: Strategy) -> bool:
    """True if the strategy can take a share of its steps."""
    return implements(strategy, "shape_matrix") and implements(strategy, "with_shape")


def stays_finite(state: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """True if no array of a state holds NaN or infinity. Arrays unchanged since `before` are not read."""
    # An inner product is finite only if each product is, and so both arrays are (inf · 0 is NaN): neighbours
    # of one size are looked at together, any other by itself. It overflows beyond 1e154; only then each entry
    # is looked at.
    total, alone = 0.0, None
    for leaf, old in zip(state, before, strict=True):
        if leaf is old:
            continue
        if not leaf.ndim:
            total += float(leaf)
        elif alone is None or alone.size != leaf.size:
            total += 0.0 if alone is None else _inner(alone, alone)
            alone = leaf
        else:
            total += _inner(alone, leaf)
            alone = None
    if alone is not None:
        total += _inner(alone, alone)
    if math.isfinite(total):
        return True
    return all(np.isfinite(leaf).all() for leaf in state if leaf is not None)


def _inner(a: Array, b: Array) -> float:
    return float(a.ravel().dot(b.ravel()))


# Checks of settings that several strategies share.


def check_positive_int(argument: str, found: Any) -> int | None:
    """Return the number as int, or None."""
    if found is None:
        return None
    if not is_number(found, whole=True) or found < 1:
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a whole number of at least 1, or None")
    return int(found)


def settle_positive_ints(settings: Any, *names: str) -> None:
    """Of frozen settings: 8.0 becomes 8."""
    for name in names:
        object.__setattr__(settings, name, check_positive_int(name, getattr(settings, name)))


def own_matrix(argument: str, found: ArrayLike) -> NDArray[np.float64]:
    """A read-only copy: later changes of the caller's matrix do not affect the settings."""
    try:
        matrix = np.array(found, dtype=float, order="C")
    except Exception:  # an object of the user's own may raise anything
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a matrix of numbers") from None
    matrix.setflags(write=False)
    return matrix


def check_shape_matrix(
    argument: str, matrix: NDArray[np.float64], d: int
) -> tuple[NDArray[np.float64], float]:
    """The matrix with determinant ±1, and the factor |det|^(1/d) that was taken out of it."""
    if matrix.shape != (d, d):
        raise ArgumentError(f"{argument}: found shape {matrix.shape}, wanted {(d, d)}")
    if not np.isfinite(matrix).all():
        raise ArgumentError(f"{argument}: found NaN or infinite entries, wanted a finite matrix")
    if (largest := np.abs(matrix).max()) > 1e300:
        raise ArgumentError(f"{argument}: found an entry of {largest:g}, wanted smaller ones")
    sign, log_det = np.linalg.slogdet(matrix)
    if sign == 0 or np.linalg.cond(matrix) > 1e14:
        raise ArgumentError(f"{argument}: found a singular matrix, wanted an invertible one")
    scale = math.exp(log_det / d)
    return matrix / scale, scale


# -- Ranking of a generation, failed points included. Strategies see the order only, never the values.


def rank(
    strategy: Strategy, z: Array, f: Array, backend: Backend = NUMPY, population_size: Array | None = None
) -> tuple[Array, Array]:
    """The slots from best to worst (λ,), and the number of feasible points.

    A value is feasible if it is finite. Failed points come last, in the order that the strategy asks for;
    ties keep the order of the slots.

    z: the draws, one for each point or for each mirrored pair; f: (λ,). population_size: λ, if z and f have
    room for more. The unused slots come last.
    """
    xp = backend.xp
    feasible = xp.isfinite(f)
    if population_size is not None:
        used = xp.arange(len(f)) < population_size
        feasible = feasible & used
    n_feasible = xp.count_nonzero(feasible)

    def failed_last() -> Array:
        value = xp.where(feasible, f, xp.inf)
        if strategy.failed_order == "index":
            return backend.order(value)
        # Once per pair, so that the two halves of a failed pair tie exactly.
        distance2 = dot(z, z, backend).repeat(len(f) // len(z))
        if population_size is not None:
            distance2 = xp.where(used, distance2, xp.inf)
        return backend.order(value, xp.where(feasible, 0.0, distance2))

    return backend.choose(n_feasible == len(f), lambda: backend.order(f), failed_last), n_feasible
