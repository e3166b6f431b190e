"""The progress line on stderr, and terminal output of untrusted text through a stream that cannot fail."""

from __future__ import annotations

import os
import sys
import time
from typing import IO, TYPE_CHECKING, Any

from fmnes._text import literal

if TYPE_CHECKING:
    from fmnes.result import View

# -- Terminal output: untrusted text as plain text (_text.py), through a stream that cannot fail.

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


# -- A progress line on stderr: rewritten in place on a terminal, printed now and then elsewhere.


def describe(view: View, rate: float) -> str:
    """One generation in one line."""
    restart = f"restart {view.restart}  " if view.restart else ""
    return (
        f"{restart}evaluations {view.evaluations}  best {best_value(view)}  sigma {view.sigma:.3g}  "
        f"failed {failed(view)}  {speed(rate)}"
    ).rstrip()


def best_value(view: View) -> str:
    return "none yet" if view.best.x is None else f"{view.best.fun:.6g}"


def failed(view: View) -> str:
    """The number of failed evaluations; points outside the bounds are not evaluations."""
    return f"{view.n_infeasible} of {view.evaluations}"


def speed(rate: float) -> str:
    """A rate as text; empty before the first evaluation."""
    for times, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if rate * times >= 1 or (rate > 0 and unit == "h"):
            return f"{rate * times:.{1 if times > 1 else 0}f}/{unit}"
    return ""


class Rate:
    """Evaluations per second in this session."""

    def __init__(self, made_before: int) -> None:
        """made_before: evaluations already in the log, which do not count."""
        self._made_before = made_before
        self._started = time.monotonic()

    def __call__(self, evaluations: int) -> float:
        seconds = max(time.monotonic() - self._started, 1e-9)
        return max(0, evaluations - self._made_before) / seconds


class Progress:
    """Silent if the stream cannot be written: a run does not end with its display."""

    def __init__(self, stream: IO[str] | QuietStream | None = None, made_before: int = 0) -> None:
        self._stream = QuietStream(stream or sys.stderr)
        self._rate = Rate(made_before)
        self._live = self._stream.isatty()
        self._every = 0.1 if self._live else 5.0
        self._shown = time.monotonic()
        self._width = 0

    def add(self, view: View) -> None:
        now = time.monotonic()
        if now - self._shown >= self._every:
            self._shown = now
            self._write(describe(view, self._rate(view.evaluations)))

    def say(self, text: str) -> None:
        """Print a line that is not overwritten."""
        text = literal(text)
        self._stream.write(f"\r{text.ljust(self._width)}\n" if self._live else f"{text}\n")
        self._width = 0

    def close(self, view: View) -> None:
        """Keep the last line."""
        self._write(describe(view, self._rate(view.evaluations)))
        if self._live:
            self._stream.write("\n")

    def _write(self, line: str) -> None:
        if not self._live:
            self._stream.write(line + "\n")
            return
        columns = self._columns()
        line = line[:columns]
        self._stream.write("\r" + line.ljust(min(self._width, columns)))
        self._width = len(line)

    def _columns(self) -> int:
        """The width of the terminal: a wrapped line cannot be rewritten."""
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except Exception:  # not a terminal
            columns = 0
        return (columns or 80) - 1
