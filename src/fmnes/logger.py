"""What the library says while it works: through Python's `logging`, to nobody unless somebody listens.

    logging.basicConfig(level=logging.INFO)

shows when a run and its searches begin and end, and what was lost; DEBUG each generation and failure too.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("fmnes")
# Without it Python itself prints what is WARNING or worse.
logger.addHandler(logging.NullHandler())


def one_line(text: str) -> str:
    """Somebody's words as they are, but for the ends of their lines: a record is one line."""
    return " ".join(text.splitlines())
