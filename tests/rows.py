"""Many rows in one test: for checks that take less time than a test of their own would."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def through(names: str | tuple[str, ...], rows: Iterable[Any]) -> Any:
    """A decorator: the test is called once for each row, whose values it takes by these names.

    With one name a row is its value.
    """
    if isinstance(names, str):
        names, rows = (names,), [(value,) for value in rows]
    rows = list(rows)

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def through_all(**arguments: Any) -> None:
            for row in rows:
                values = dict(zip(names, row, strict=True))
                try:
                    test(**arguments, **values)
                except BaseException as error:
                    error.add_note(f"with {values}")
                    raise

        signature = inspect.signature(test)
        others = [p for name, p in signature.parameters.items() if name not in names]
        through_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return through_all

    return decorate
