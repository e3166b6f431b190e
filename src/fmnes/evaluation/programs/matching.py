"""Regular expression search in a separate process that can be killed.

An expression may backtrack without end, and `re` neither stops at a signal nor lets other threads run. This
file is also the script of that process, so it imports the standard library only.

A request is two lengths, the expression and the text. The response is START when the search begins, then a
length and JSON: the last match that is not empty, and its first group.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import struct
import subprocess
import sys
from contextlib import suppress
from typing import NamedTuple

_LENGTHS = struct.Struct("<QQ")
_LENGTH = struct.Struct("<Q")
_START = b"s"
_PIECE = 1 << 16


class Search(NamedTuple):
    """An expression and the text to search."""

    regex: str
    text: str
    words: str
    """Describes the expression and the text, for messages."""


class Match(NamedTuple):
    """The last match that is not empty; (.*) always has an empty one at the end."""

    whole: str
    groups: int
    first: str | None
    """The first group, if it took part in the match."""


def last_match(regex: str, text: str) -> Match | None:
    """Return the last match; ^ and $ match at lines. May never end."""
    last = None
    for match in re.compile(regex, re.MULTILINE).finditer(text):
        if match[0]:
            last = match
    if last is None:
        return None
    return Match(last[0], last.re.groups, last[1] if last.re.groups else None)


def can_match() -> bool:
    """Whether an interpreter can run this file. A frozen program searches in its own process."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


class Matcher:
    """The driver's side of the process. Nothing blocks: the selector calls `_write` and `_read`."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        """Raises OSError if the process cannot be started."""
        self._selector = selector
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", os.path.abspath(__file__)],
            bufsize=0,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        selector.register(self._stdout, selectors.EVENT_READ, self._read)
        self.pid = self._process.pid
        self.ended = False
        """The process has ended."""
        self.busy = False
        self._outbox = memoryview(b"")
        self._inbox = bytearray()

    @property
    def began(self) -> bool:
        """Whether the search has begun."""
        return bool(self._inbox)

    def begin(self, search: Search) -> None:
        regex, text = search.regex.encode(errors="surrogatepass"), search.text.encode(errors="surrogatepass")
        self.busy = True
        self._inbox.clear()
        self._outbox = memoryview(_LENGTHS.pack(len(regex), len(text)) + regex + text)
        self._write()
        if self._outbox and not self.ended:
            self._selector.register(self._stdin, selectors.EVENT_WRITE, self._write)

    def answered(self) -> bool:
        size = len(_START) + _LENGTH.size
        if len(self._inbox) < size:
            return False
        length: int = _LENGTH.unpack_from(self._inbox, len(_START))[0]
        return len(self._inbox) >= size + length

    def answer(self) -> Match | str | None:
        """Return the match; or a text, the reason why the search failed. The process is free afterwards."""
        self.busy = False
        found = json.loads(self._inbox[len(_START) + _LENGTH.size :])
        return Match(*found) if isinstance(found, list) else found

    def close(self) -> int:
        """Kill the process and return its exit code."""
        self._stop_writing()
        with suppress(KeyError, ValueError):  # they may be closed already
            self._selector.unregister(self._stdout)
        code = self._process.poll()
        if code is None:
            self._process.kill()
        self._stdin.close()
        self._stdout.close()
        return self._process.wait() if code is None else code

    def _write(self) -> None:
        try:
            while self._outbox:
                self._outbox = self._outbox[os.write(self._stdin.fileno(), self._outbox[:_PIECE]) :]
        except BlockingIOError:
            return
        except OSError:  # the process has ended
            self.ended = True
        self._stop_writing()

    def _stop_writing(self) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._stdin)

    def _read(self) -> None:
        try:
            data = os.read(self._stdout.fileno(), _PIECE)
        except BlockingIOError:
            return
        self._inbox += data
        if not data:
            self.ended = True
            self._selector.unregister(self._stdout)


def _serve() -> None:
    """Answer requests until the end of the input."""
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while len(lengths := stdin.read(_LENGTHS.size)) == _LENGTHS.size:
        regex, text = (
            stdin.read(length).decode(errors="surrogatepass") for length in _LENGTHS.unpack(lengths)
        )
        stdout.write(_START)
        stdout.flush()
        found: Match | str | None
        try:
            found = last_match(regex, text)
        except (MemoryError, RecursionError) as error:
            found = type(error).__name__
        data = json.dumps(found).encode()
        stdout.write(_LENGTH.pack(len(data)) + data)
        stdout.flush()


if __name__ == "__main__":
    _serve()
