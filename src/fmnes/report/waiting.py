"""What a run waits for somebody to do, told to whoever watches its progress."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from fmnes.logger import waiting


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
