"""One run as one file: no script, nothing from the network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fmnes.cli.page import content, markup, pictures
from fmnes.run.reading import Run, read_run

#: The parts of the page in their order.
ORDER = ("head", "next", "best", "course", "where", "failures", "when", "movement", "steps", "settings")


def report(path: Path, more: Mapping[str, str] | None = None) -> str:
    """The page of the run in this directory, as it is now. Raises RunError for what is none.

    more: further parts, {name: markup}, which come right after what became of the run.
    """
    run = read_run(path)
    told = content.parts(run, path)
    told["settings"] += content.made_at()
    parts = list(in_order({**told, **drawings(run)}).items())
    return markup.document(run.path.name, dict([*parts[:2], *(more or {}).items(), *parts[2:]]))


def drawings(run: Run) -> dict[str, str]:
    return {name: pictures.drawn(name, run) for name in pictures.PICTURES}


def in_order(parts: Mapping[str, str]) -> dict[str, str]:
    return {name: parts.get(name, "") for name in ORDER}
