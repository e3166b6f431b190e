"""Python logging as the library uses it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

# -- What the library says while it works: through Python's `logging`, to nobody unless somebody listens.
#
#     logging.basicConfig(level=logging.INFO)
#
# shows when a run and its searches begin and end, and what was lost; DEBUG each generation and failure too.


logger = logging.getLogger("fmnes")
# Without it Python itself prints what is WARNING or worse.
logger.addHandler(logging.NullHandler())
#: What a run waits for somebody to do: whoever watches its progress is told, too.
waiting = logging.getLogger("fmnes.waiting")


def one_line(text: str) -> str:
    """Somebody's words as they are, but for the ends of their lines: a record is one line."""
    return " ".join(text.splitlines())


# -- What a run waits for somebody to do, told to whoever watches its progress.


@contextlib.contextmanager
def telling(say: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile `say` is called with each line."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    handler = Handler()
    waiting.addHandler(handler)
    try:
        yield
    finally:
        waiting.removeHandler(handler)
