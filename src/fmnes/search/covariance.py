"""A search that begins with a known shape: the covariance of its first points, in the user's coordinates."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes.strategies import Resampling, Strategy, resolve

#: Smallest eigenvalue over the largest: below it there are no digits left of the short axes.
MIN_RATIO = 1e-14


def takes_covariance(method: str | Strategy | Resampling) -> bool:
    """Can the method begin with another shape than a round one?"""
    return "B0" in (field.name for field in _fields(resolve(method)[0]))


def shaped_by(
    covariance: ArrayLike, sigma0: ArrayLike | None, x0: ArrayLike | None, method: str | Strategy | Resampling
) -> tuple[Any, Strategy | Resampling]:
    """sigma0 and the method with which the first points are N(x0, covariance).

    With a sigma0 of the user's, the covariance gives the shape only: it is scaled to determinant 1.
    """
    strategy, max_redraws = resolve(method)
    if not takes_covariance(method):
        raise ArgumentError(
            f"covariance: found it together with {strategy.name!r}, which always starts round; wanted "
            "another method, or one sigma0 for each coordinate"
        )
    if getattr(strategy, "B0", None) is not None:
        raise ArgumentError("covariance: found it together with B0 in the method's settings; wanted one")
    if sigma0 is not None and np.ndim(sigma0) > 0:
        raise ArgumentError(
            "sigma0: found one for each coordinate together with covariance, which says that already; "
            "wanted one number, or none"
        )
    B = _root(covariance, None if x0 is None else np.size(x0))
    scale = math.exp(float(np.linalg.slogdet(B)[1]) / len(B))
    shaped: Any = dataclasses.replace(strategy, B0=B / scale)  # type: ignore[type-var]
    method = shaped if max_redraws is None else Resampling(shaped, max_redraws)
    return scale if sigma0 is None else sigma0, method


def _root(covariance: ArrayLike, d: int | None) -> NDArray[np.float64]:
    """B with B Bᵀ = covariance."""
    try:
        C = np.array(covariance, dtype=np.float64)
    except Exception:  # an object of the user's own may raise anything
        raise ArgumentError(f"covariance: found {shown(covariance)}, wanted a matrix of numbers") from None
    if d is None:  # left to the bounds
        d = len(C) if C.ndim else 1
    if C.shape != (d, d):
        raise ArgumentError(f"covariance: found shape {C.shape}, wanted {(d, d)}")
    if not np.isfinite(C).all():
        raise ArgumentError("covariance: found NaN or infinite entries, wanted finite ones")
    if not np.allclose(C, C.T, rtol=1e-8, atol=1e-8 * np.abs(C).max()):
        raise ArgumentError("covariance: found a matrix that is not symmetric, wanted a covariance")
    eigenvalues, axes = np.linalg.eigh((C + C.T) / 2)
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    if not low > MIN_RATIO * high:
        raise ArgumentError(
            f"covariance: found eigenvalues from {low:.3g} to {high:.3g}, wanted positive ones that differ "
            f"by less than {1 / MIN_RATIO:.0e}"
        )
    root: NDArray[np.float64] = axes * np.sqrt(eigenvalues)
    return root


def _fields(strategy: Strategy) -> tuple[Any, ...]:
    return dataclasses.fields(strategy) if dataclasses.is_dataclass(strategy) else ()
