"""`fmnes` and `python -m fmnes`."""

from __future__ import annotations

import sys

from fmnes.errors import FmnesError, MissingExtra


def main() -> None:
    try:
        from fmnes.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"fmnes: {MissingExtra('the command line', 'cli')}")
    try:
        app()
    except FmnesError as error:
        print(f"fmnes: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
