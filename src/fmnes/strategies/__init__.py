"""The strategies by name, and the paper's resampling around those that allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fmnes.arguments import shown
from fmnes.errors import ArgumentError, nearest
from fmnes.strategies.base import Shape, Strategy, settle_positive_ints
from fmnes.strategies.cma_es import CMAES
from fmnes.strategies.cr_fm_nes import CRFMNES
from fmnes.strategies.fm_nes import AFMNES, DXNESIC, FMNES
from fmnes.strategies.xnes import XNES

METHODS: dict[str, Callable[..., Any]] = {
    "afm-nes": AFMNES,
    "fm-nes": FMNES,
    "dx-nes-ic": DXNESIC,
    "xnes": XNES,
    "cma-es": CMAES,
    "cr-fm-nes": CRFMNES,
}

#: What is used unless a user asks for another.
DEFAULT_METHOD = "afm-nes"

#: Failed draws in one generation after which resampling gives up: the feasible region is out of reach.
MAX_REDRAWS = 100_000


@dataclass(frozen=True)
class Resampling:
    """The paper's "/R": a failed point is drawn again until it succeeds; every draw costs an evaluation.

    Parameters
    ----------
    strategy : XNES or CMAES
        The method whose points are drawn again. Its points must not come in mirrored pairs.
    max_redraws : int, optional
        Failed draws in one generation after which the run stops with NO_FEASIBLE.

    Raises
    ------
    ArgumentError
        The strategy draws mirrored pairs, or `max_redraws` is not a positive whole number.

    Examples
    --------
    >>> import fmnes
    >>> method = fmnes.Resampling(fmnes.XNES(), max_redraws=1000)
    >>> fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, method=method, target=1e-3, rng=1).success
    True
    """

    strategy: XNES | CMAES
    max_redraws: int = MAX_REDRAWS

    def __post_init__(self) -> None:
        if not _is_strategy(self.strategy):
            raise ArgumentError(
                f"strategy: found {shown(self.strategy)}, wanted settings such as fmnes.XNES()"
            )
        if self.strategy.mirrored:
            raise ArgumentError(
                f"Resampling: found {self.strategy.name!r}, whose points come in mirrored pairs that a new "
                "draw would break; wanted fmnes.XNES() or fmnes.CMAES()"
            )
        settle_positive_ints(self, "max_redraws")


def resolve(method: str | Strategy | Resampling) -> tuple[Strategy, int | None]:
    """The strategy, and its cap on redraws (None: failed points are not redrawn)."""
    if isinstance(method, Resampling):
        return method.strategy, method.max_redraws
    if isinstance(method, str):
        if method not in METHODS:
            listed = ", ".join(repr(name) for name in METHODS)
            hint = nearest(method, METHODS)
            raise ArgumentError(
                f"method: found {shown(method)}, wanted one of {listed} or settings such as AFMNES(){hint}"
            )
        return METHODS[method](), None
    if not _is_strategy(method):
        raise ArgumentError(
            f"method: found {shown(method)}, wanted a name such as 'afm-nes' or settings such as AFMNES()"
        )
    return method, None


def is_known(method: Any) -> bool:
    """Can a saved file bring it back? Not a strategy of the user's own, nor a subclass of one of ours."""
    strategy = method.strategy if isinstance(method, Resampling) else method
    make = METHODS.get(getattr(strategy, "name", ""))
    return make is not None and type(make()) is type(strategy)


def _is_strategy(found: Any) -> bool:
    """Has it all that a search needs? A dictionary has an `update`, too."""
    if isinstance(found, type) or not all(hasattr(found, name) for name in ("name", "mirrored", "matrices")):
        return False
    return all(callable(getattr(found, name, None)) for name in ("init", "sample", "update", "shape"))


__all__ = [
    "AFMNES",
    "CMAES",
    "CRFMNES",
    "DEFAULT_METHOD",
    "DXNESIC",
    "FMNES",
    "METHODS",
    "XNES",
    "Resampling",
    "Shape",
    "Strategy",
    "is_known",
    "resolve",
]
