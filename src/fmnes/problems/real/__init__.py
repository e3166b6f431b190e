"""Real problems: simulations that fail for part of the space, as pure functions of named parameters.

    from fmnes.problems.real import gene_network, lens

Each has `fun`, for one point or for many, and `parameters`, where to look: the first two arguments of
`fmnes.minimize`. Nothing here is loaded before it is asked for, and nothing is random.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import gene_network, lens

__all__ = ["gene_network", "lens"]

if not TYPE_CHECKING:  # to a type checker, a `__getattr__` means that there is every name

    def __getattr__(name: str) -> ModuleType:
        if name in __all__:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
