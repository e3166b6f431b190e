"""What the files of a queue are called. A name says all that must be known before a file is opened.

    open/0.12.3.0.0.h1                            a task that waits for a worker
    claimed/0.12.3.0.0.h1@node7-4711-5f3a09c2     a worker has it
    answers/0.12.3.0.0.h1@node7-4711-5f3a09c2     what came of it
    workers/node7-4711-5f3a09c2                   a worker, while it lives

The numbers are restart, generation, slot, redraw and attempt; h1 says that it was handed out once before.
Two workers never write to one name. Whatever is called otherwise is not ours: it is neither read nor deleted.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from typing import NamedTuple

#: Of an evaluation: restart, generation, slot, redraw, attempt.
Key = tuple[int, int, int, int, int]

#: Without zeros before it, so that there is one way to write a name.
_NUMBER = r"(0|[1-9]\d{0,17})"
_TASK = re.compile(
    rf"{_NUMBER}\.(-1|0|[1-9]\d{{0,17}})\.{_NUMBER}\.{_NUMBER}\.{_NUMBER}\.h{_NUMBER}", re.ASCII
)
_WORKER = re.compile(r"[A-Za-z0-9-]{1,60}-\d{1,10}-[0-9a-f]{8}", re.ASCII)
#: An unfinished write of ours.
_UNFINISHED = re.compile(r"\.[\w.@-]{1,200}\.[0-9a-f]{8}\.tmp", re.ASCII)


class Name(NamedTuple):
    """Of a task, of the claim of one, or of an answer."""

    key: Key
    handout: int
    """How often the task had been handed out before."""
    worker: str = ""

    def __str__(self) -> str:
        task = f"{'.'.join(map(str, self.key))}.h{self.handout}"
        return f"{task}@{self.worker}" if self.worker else task


def read_task(text: str) -> Name | None:
    """The name of an open task; None for what is none."""
    found = _TASK.fullmatch(text)
    if not found:
        return None
    restart, generation, slot, redraw, attempt, handout = map(int, found.groups())
    return Name((restart, generation, slot, redraw, attempt), handout)


def read_claim(text: str) -> Name | None:
    """The name of a claim or of an answer; None for what is none."""
    task, at, worker = text.partition("@")
    name = read_task(task)
    return name._replace(worker=worker) if at and name and is_worker(worker) else None


def is_worker(text: str) -> bool:
    return _WORKER.fullmatch(text) is not None


def is_unfinished(text: str) -> bool:
    return _UNFINISHED.fullmatch(text) is not None


def new_worker() -> str:
    """A name that nobody else has."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60] or "unnamed"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def new_unfinished(name: str) -> str:
    """Where a file is written before it gets its name."""
    return f".{name}.{secrets.token_hex(4)}.tmp"
