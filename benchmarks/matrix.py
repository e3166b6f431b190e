"""Every Python with the oldest and the newest NumPy that it has: installs the wheel for each, and runs tests.

    python -m benchmarks.matrix --python python3.12 --python /opt/python3.13/bin/python3 --root /srv/sid

A Python is one of this machine, or any of a tree with another Linux in it (`debootstrap sid /srv/sid`, with
`--include=python3.14,python3.15`), which is entered as root by `unshare`. Writes a row for each as it ends,
and the table in docs/platforms.md from all of them; what is there is not run again. The wheel is built by
hatchling, of the `dev` extra.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from fmnes.version import __version__

#: The oldest NumPy 2 with a wheel for Linux, by PyPI's list of its files. The newest is whatever pip finds.
OLDEST = {"3.11": "2.0.0", "3.12": "2.0.0", "3.13": "2.1.0", "3.14": "2.3.2", "3.15": "2.5.2"}
NEWEST = "newest"
#: Saving and restoring each method bit by bit; workers, crashes, timeouts, programs and a resume.
TESTS = ["tests/test_checkpoint.py", "tests/real/test_portable.py"]
NEEDED = ["cloudpickle", "pytest", "iniconfig", "packaging", "pluggy", "pygments"]
ROWS = Path("docs/benchmarks/platforms.jsonl")
PAGE = Path("docs/platforms.md")
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"

Row = dict[str, Any]


class Python(NamedTuple):
    version: str
    """Such as 3.13."""
    program: str
    root: Path | None = None
    """The tree of another Linux that it belongs to."""

    def run(self, arguments: Sequence[str], folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """In `folder`, which is inside of the tree if there is one."""
        here = folder if self.root is None else "/" / folder.relative_to(self.root)
        enter = ["unshare", "--pid", "--fork", "--mount-proc", f"--root={self.root}", f"--wd={here}"]
        environment = {
            "PATH": os.environ["PATH"] if self.root is None else "/usr/bin:/bin",
            "PYTHONPATH": str(here / "site"),
            "PYTHONNOUSERSITE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "LANG": "C.UTF-8",
        }
        return subprocess.run(
            [*(enter if self.root else []), self.program, *arguments],
            cwd=None if self.root else here,
            env=environment,
            capture_output=True,
            text=True,
            **options,
        )


def version_of(program: str) -> str:
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([program, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()


def pythons(programs: Iterable[str], roots: Iterable[Path]) -> list[Python]:
    found = [Python(version_of(program), shutil.which(program) or program) for program in programs]
    for root in roots:
        for path in sorted((root / "usr/bin").glob("python3.*")):
            if re.fullmatch(r"python3\.\d+", path.name):
                found.append(
                    Python(path.name.removeprefix("python"), f"/usr/bin/{path.name}", root.resolve())
                )
    return found


def install(python: Python, numpy: str, wheel: Path, folder: Path) -> None:
    """For another Python than ours: wheels alone, into a folder, which needs no pip there."""
    wanted = "numpy>=2" if numpy == NEWEST else f"numpy=={numpy}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--no-deps"]
    # Some versions of pip ask their own Python whether it is new enough; the wheel's name has answered.
    there = ["--python-version", python.version, "--ignore-requires-python", "--no-compile"]
    there += ["--target", str(folder / "site")]
    subprocess.run([*pip, *there, wanted, *NEEDED, str(wheel)], check=True)


def combination(python: Python, numpy: str, wheel: Path) -> Row:
    place = None if python.root is None else python.root / "tmp"
    with tempfile.TemporaryDirectory(prefix="matrix-", dir=place) as name:
        folder = Path(name)
        install(python, numpy, wheel, folder)
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree("tests", folder / "tests", ignore=unwanted)
        shutil.copy("pyproject.toml", folder)
        asked = (
            "import json, platform, numpy, fmnes; assert 'site' in fmnes.__file__; "
            "name = platform.freedesktop_os_release()['PRETTY_NAME']; "
            "print(json.dumps([platform.python_version(), numpy.__version__, name]))"
        )
        done = python.run(["-c", asked], folder, check=True)
        version, found, system = json.loads(done.stdout)
        # Warnings of other people's packages on a Python that is newer than they are do not count here.
        options = ["-p", "no:cacheprovider", "-W", "default", "-k", "not windows", *TESTS]
        done = python.run(["-m", "pytest", *options], folder)
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
        count = {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)}
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-1000:])
    row = {"fmnes": __version__, "python": version, "numpy": found, "system": system, "asked": numpy}
    return {**row, "passed": count.get("passed", 0), "ok": done.returncode == 0, "last": last}


def table(rows: Iterable[Row]) -> str:
    lines = ["| Python | NumPy | on | tests |", "|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: [*map(_numbers, (row["python"], row["numpy"]))]):
        said = f"{row['passed']} passed" if row["ok"] else row["last"]
        lines.append(f"| {row['python']} | {row['numpy']} | {row['system']} | {said} |")
    return "\n".join(lines)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", default=[], help="an interpreter of this machine")
    parser.add_argument("--root", action="append", default=[], type=Path, help="a tree with another Linux")
    parser.add_argument("--numpy", choices=("newest", "oldest"), help="only this one; by default both")
    parser.add_argument("--at-a-time", type=int, default=1)
    given = parser.parse_args(arguments)
    rows: list[Row] = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    done = {(row["fmnes"], ".".join(row["python"].split(".")[:2]), row["asked"]) for row in rows}
    wanted = [
        (python, numpy)
        for python in pythons(given.python, given.root)
        for which, numpy in (("newest", NEWEST), ("oldest", OLDEST.get(python.version, NEWEST)))
        if given.numpy in (None, which)
        if (__version__, python.version, numpy) not in done
    ]
    with tempfile.TemporaryDirectory() as built, ThreadPoolExecutor(given.at_a_time) as pool:
        if wanted:
            subprocess.run(
                [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built], check=True
            )
            (wheel,) = Path(built).glob("*.whl")
        tasks = [pool.submit(combination, *one, wheel) for one in dict.fromkeys(wanted)]
        for task in as_completed(tasks):
            rows.append(row := task.result())
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    new = f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{rest.partition(END)[2]}"
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
