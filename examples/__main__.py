"""All examples, or some: each prints what it found.

    python -m examples [NAME ...] [--quick] [--out DIR]

With --out each writes its picture, and its run where it keeps one, to DIR. An example that lacks a program or
a package says which, the others run, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

NAMES = ("lens", "airfoil", "gene_network", "op_amp", "crashing_program", "training")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="a few evaluations of each")
    parser.add_argument("--out", type=Path, help="a folder for pictures and runs")
    given = parser.parse_args(arguments)
    for name in given.names:
        if name not in NAMES:
            parser.error(f"NAME: found {name!r}, wanted some of {', '.join(NAMES)}")

    failed = [name for name in given.names or NAMES if not ran(name, given.quick, given.out)]
    if failed:
        raise SystemExit(f"not run: {', '.join(failed)}")


def ran(name: str, quick: bool = False, out: Path | None = None) -> bool:
    """Whether the example ran to its end; if not, why has been said."""
    print(f"\n== {name}", flush=True)
    began = time.monotonic()
    try:
        example = importlib.import_module(f"examples.{name}.run")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("examples"):
            raise
        print(f"examples/{name}/run.py: found nothing there", file=sys.stderr)
        return False
    size = ["--evaluations", str(example.QUICK)] if quick else []
    try:
        example.main([*size, *(["--out", str(out)] if out else [])])
    except SystemExit as ended:
        if ended.code in (0, None):
            return True
        print(f"{name} was left out: {ended.code}", file=sys.stderr)
        return False
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    main()
