"""`python -m fmnes_bench.coco`: as `fmnes bench coco`, for machines without the extra `cli`."""

from __future__ import annotations

import argparse
import sys
import time

from fmnes.errors import FmnesError
from fmnes_bench.coco.study import METHODS, coco


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fmnes_bench.coco")
    parser.add_argument("--suite", default="bbob")
    parser.add_argument("--methods", help=f"by default {METHODS}")
    parser.add_argument("--dimensions", default="2,3,5,10,20")
    parser.add_argument("--instances", default="1-5")
    parser.add_argument("--functions", default="all")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", default="coco")
    parser.add_argument("--constraints", default="failures")
    parser.add_argument("--data", action="store_true")
    options = vars(parser.parse_args(arguments))
    try:
        print(coco(**options, progress=Progress()))
    except FmnesError as error:
        print(f"fmnes: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; finished runs are kept in {options['out']}: the same command goes on from there")
        return 130
    return 0


class Progress:
    """A line on stderr every ten seconds."""

    def __init__(self) -> None:
        self._started = self._said = time.monotonic()
        self._before: float | None = None

    def __call__(self, done: float, total: float) -> None:
        now = time.monotonic()
        if self._before is None:
            self._before = done
        if now - self._said < 10 or done == self._before:
            return
        self._said = now
        left = (now - self._started) * (total - done) / (done - self._before)
        print(f"{done / total:6.1%} done, about {left / 60:.0f} min left", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
