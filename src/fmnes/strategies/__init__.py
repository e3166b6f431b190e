"""The strategies by name, and the paper's resampling around those that allow it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fmnes.arguments import shown
from fmnes.errors import ArgumentError, nearest
from fmnes.strategies.base import Shape, Strategy, settle_positive_ints
from fmnes.strategies.cma_es import CMAES
from fmnes.strategies.cr_fm_nes import CRFMNES
from fmnes.strategies.fm_nes import AFMNES, DXNESIC, FMNES
from fmnes.strategies.xnes import XNES

S = TypeVar("S", bound=Strategy)

METHODS: dict[str, Callable[..., Any]] = {
    "afm-nes": AFMNES,
    "fm-nes": FMNES,
    "dx-nes-ic": DXNESIC,
    "xnes": XNES,
    "cma-es": CMAES,
    "cr-fm-nes": CRFMNES,
}

#: The default method.
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
        if not isinstance(self.strategy, Strategy):
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
    if not isinstance(method, Strategy):
        raise ArgumentError(
            f"method: found {shown(method)}, wanted a name such as 'afm-nes', settings such as AFMNES(), or "
            "a strategy that derives from fmnes.strategies.Strategy"
        )
    return method, None


def register(strategy_class: type[S]) -> type[S]:
    """Make a strategy of your own available by name, and runs with it resumable.

    Register it in every process that starts or resumes such a run. Can be used as a decorator.

    Parameters
    ----------
    strategy_class : type
        A frozen dataclass that derives from `fmnes.strategies.Strategy`. All settings have defaults and are
        JSON values: numbers, strings, booleans or None. Its `name` is the name of the method.

    Returns
    -------
    type
        The class.

    Raises
    ------
    ArgumentError
        It is not such a class, or another strategy has this name.

    Examples
    --------
    >>> import dataclasses, fmnes
    >>> @fmnes.strategies.register
    ... @dataclasses.dataclass(frozen=True)
    ... class Mine(fmnes.XNES):
    ...     name = "mine"
    >>> fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, method="mine", rng=1, target=1e-3).success
    True
    """
    if not (isinstance(strategy_class, type) and issubclass(strategy_class, Strategy)) or (
        not dataclasses.is_dataclass(strategy_class)
    ):
        raise ArgumentError(
            f"strategy_class: found {shown(strategy_class)}, wanted a dataclass that derives from "
            "fmnes.strategies.Strategy"
        )
    name, where = strategy_class().name, strategy_class.__qualname__
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"name: found {shown(name)} in {where}, wanted a non-empty string")
    known = METHODS.get(name)
    # A module that is reloaded, or a notebook cell that runs again, makes a new class of the same name.
    if known is not None and (known.__module__, known.__qualname__) != (strategy_class.__module__, where):
        raise ArgumentError(f"name: found {name!r} in {where}, wanted a name that is not in use")
    METHODS[name] = strategy_class
    return strategy_class


def is_known(method: Any) -> bool:
    """True if a saved file can be restored: the strategy's class is registered under its name."""
    strategy = method.strategy if isinstance(method, Resampling) else method
    make = METHODS.get(strategy.name)
    return make is not None and type(make()) is type(strategy)


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
    "register",
    "resolve",
]
