"""`fmnes` and `python -m fmnes`."""

from __future__ import annotations

import os
import sys
import warnings
from importlib.util import find_spec
from typing import Any

from fmnes._text import literal
from fmnes.errors import FmnesError, MissingExtra
from fmnes.progress import QuietStream
from fmnes.version import __version__


def main() -> None:
    _open_standard_files()
    output: Any = QuietStream(sys.stdout)
    errors: Any = QuietStream(sys.stderr)
    sys.stdout, sys.stderr = output, errors
    warnings.showwarning = _warn
    code = _run()
    if output.failure and not isinstance(output.failure, BrokenPipeError) and not code:
        # A closed pipe is not an error; any other failed write is.
        _say(f"the output could not be written ({output.failure})")
        code = 1
    sys.exit(code)


def _run() -> Any:
    """The exit code."""
    if any(find_spec(name) is None for name in ("typer", "rich")):  # commands import rich only when they run
        if sys.argv[1:] == ["--version"]:
            print(__version__)
            return 0
        _say(str(MissingExtra("the command line", "cli")))
        return 1
    from fmnes.cli import app

    try:
        app(prog_name="fmnes")  # also for `python -m fmnes`: completion and hints name the command
    except FmnesError as error:
        _say(str(error))
        return 2
    except SystemExit as ended:
        return ended.code
    except KeyboardInterrupt:
        return 130
    return 0


def _say(text: str) -> None:
    print(f"fmnes: {literal(text, lines=True)}", file=sys.stderr)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(f"warning: {message}")


def _open_standard_files() -> None:
    """Open closed standard files: a run's file could otherwise get the number 1 or 2 and receive output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


if __name__ == "__main__":
    main()
