"""Terminal output: untrusted text as plain text (_text.py), through a stream that cannot fail."""

from __future__ import annotations

import os
import sys
from typing import IO, Any

from fmnes._text import literal as literal

#: Replacements for terminals without these characters; others become escapes such as \u4e2d.
_SPELT_OUT = str.maketrans({"×": "x", "σ": "sigma", "λ": "lambda", "…": "...", "–": "-", "−": "-", "≤": "<="})


class QuietStream:
    """A text stream that never raises: after a failed write it is silent, with the error in `failure`.

    Characters that its encoding lacks are replaced.
    """

    def __init__(self, stream: IO[str] | QuietStream | None) -> None:
        """stream: None, as for a closed sys.stderr, is silent."""
        self._stream: Any = stream
        self.failure: Exception | None = None
        self._file = None
        if stream is not None and stream in (sys.__stdout__, sys.__stderr__):
            # Unbuffered: buffered text would fail again when Python ends, and change the exit status.
            self._file = getattr(getattr(stream, "buffer", None), "raw", None)

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str:
        return "backslashreplace"

    def isatty(self) -> bool:
        try:
            return self._stream is not None and bool(self._stream.isatty())
        except Exception:  # closed, or a stream of the user's own that has none
            return False

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("no file")
        return int(self._stream.fileno())

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"wanted text, found {type(text).__name__}")
        if self._stream is not None and self.failure is None:
            try:
                self._write(spelt_out(text, self.encoding))
            except Exception as error:  # whatever: a display must not end what it shows
                self.failure = error
        return len(text)

    def _write(self, text: str) -> None:
        self._stream.flush()
        if self._file is None:
            self._stream.write(text)
            self._stream.flush()
            return
        data = text.replace("\n", os.linesep).encode(self.encoding)
        while data:
            written = self._file.write(data)
            if written is None:
                raise BlockingIOError("it takes no more at the moment")
            data = data[written:]

    def flush(self) -> None:
        pass  # done with every write


def spelt_out(text: str, encoding: str) -> str:
    """The text in characters that the encoding has."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_SPELT_OUT).encode(encoding, "backslashreplace").decode(encoding)
    return text
