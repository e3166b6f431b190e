"""Python logging as the library uses it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

# -- The library logs through Python's `logging`; nothing is printed unless the user configures it.
#
#     logging.basicConfig(level=logging.INFO)
#
# shows the start and end of runs and searches, and lost evaluations; DEBUG also generations and failures.


logger = logging.getLogger("fmnes")
# Without a handler Python prints warnings and errors itself.
logger.addHandler(logging.NullHandler())
#: Situations in which a run waits for the user; the progress display shows them too.
waiting = logging.getLogger("fmnes.waiting")


def one_line(text: str) -> str:
    """Join the lines of a text: a log record is one line."""
    return " ".join(text.splitlines())


# -- Forwarding of the `waiting` logger to a progress display.


@contextlib.contextmanager
def telling(say: Callable[[str], None]) -> Iterator[None]:
    """Call `say` with each line logged to `waiting` inside the block."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    handler = Handler()
    waiting.addHandler(handler)
    try:
        yield
    finally:
        waiting.removeHandler(handler)
