"""Reasons that are alike: the same message with other numbers in it.

A simulation that says "residual 0.0123 after 37 steps" fails for another reason each time, and who wants to
know why it fails is told nothing. So where very many reasons differ in their numbers only, they are told as
one. A few are left as they are: there the numbers say which part of a model it was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

#: So many reasons that differ in their numbers only are told apart.
MAX_ALIKE = 20

_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


def kind_of(reason: str) -> str:
    """The reason without its numbers; that of a kind is itself."""
    return _NUMBER.sub("…", reason)


def told_as(reasons: Iterable[str]) -> dict[str, str]:
    """As what each reason is told beside these others: itself, or its kind."""
    kinds = {reason: kind_of(reason) for reason in reasons}
    alike = Counter(kinds.values())
    return {reason: kind if alike[kind] > MAX_ALIKE else reason for reason, kind in kinds.items()}
