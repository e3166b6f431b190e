"""Real problems, each a script of its own."""

from __future__ import annotations

from pathlib import Path


def make_folder(out: Path | None) -> None:
    """The folder of --out: it is there before a search whose picture would have no place without it."""
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(
            f"--out: found {out}, wanted a folder that is there or can be made ({error.strerror})"
        ) from None
