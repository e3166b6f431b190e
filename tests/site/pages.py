"""Is what the pages show true? Their code runs, their commands exist, their links lead somewhere.

A page's blocks of Python and of shell run as they stand: a Python block in a new directory, a shell block in
that of the block before it, so that it finds what was made there. What cannot run so is marked `text`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
#: From where a page's name is told.
NAMED_FROM = ROOT
#: Pages that need more than the extra `dev`, and the tests that have it and run their code.
ELSEWHERE = {
    "docs/jax.md": "tests/jax/test_docs.py",
    "docs/clusters.md": "tests/clusters/test_docs.py",
    "docs/programs.md": "tests/real/test_program_page.py",
    "docs/airfoil.md": "tests/real/test_program_page.py",
}
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
#: `python -m benchmarks.lens`, `python examples/jax_control.py`, `fmnes bench search`.
COMMAND = re.compile(
    r"(?:^ *|`)((?:python (?:-m )?(?:benchmarks|examples)[./]|fmnes (?=bench|reproduce))[^`\n]*)",
    re.MULTILINE,
)
#: Programs that a page names and a check must not start, and what stands in for them on the PATH.
STAND_INS = {
    "make": f'exec /usr/bin/make --directory "{ROOT}" --dry-run "$@" > /dev/null',
    "pip": f'exec "{sys.executable}" -m tests.site.pages "$@"',
    "apt-get": "exit 0",
    "sbatch": "exit 0",
}
#: Words that make a text hard to read for those who have learned English as a second language.
UNUSUAL = re.compile(
    r"\b(told|whoever|nobody|somebody|so many|anew|of ours|of theirs|is no|are no|of which|one's own|"
    r"those who|at all times|beforehand|thereby|wherein|nowhere|therein)\b",
    re.IGNORECASE,
)
#: Words of the text that stands for a picture.
MIN_ALT_WORDS = 4
#: Seconds that a block may take; far more than any does.
LIMIT = 300


class Block(NamedTuple):
    page: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}, block {self.number} ({self.language})"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    name = str(page.relative_to(NAMED_FROM))
    return [Block(name, i, *found) for i, found in enumerate(BLOCK.findall(page.read_text("utf-8")), 1)]


def run(block: Block, directory: Path) -> str:
    """What is wrong with it, or nothing."""
    stand_ins = directory.parent / "bin"
    if not stand_ins.exists():
        stand_ins.mkdir()
        for name, text in STAND_INS.items():
            (stand_ins / name).write_text(f"#!/bin/sh\ncd '{ROOT}'\n{text}\n")
            (stand_ins / name).chmod(0o755)
    places = f"{stand_ins}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    text = block.text.replace("/tmp/", f"{directory}/").replace("/shared/", f"{directory}/")
    interpreter = [sys.executable, "-c"] if block.language == "python" else ["bash", "-euc"]
    done = subprocess.run(
        [*interpreter, text],
        cwd=directory,
        env={**os.environ, "PATH": places, "BROWSER": "true", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return f"{block} ended with {done.returncode}:\n{done.stderr[-2000:]}" if done.returncode else ""


def run_page(page: Path) -> list[str]:
    """What is wrong with its blocks."""
    wrong = []
    with tempfile.TemporaryDirectory(prefix="page.", ignore_cleanup_errors=True) as folder:
        directory = Path(folder) / "0"
        directory.mkdir()
        for block in blocks(page):
            if block.language == "python":
                directory = Path(folder) / str(block.number)
                directory.mkdir()
            wrong.append(run(block, directory))
    return [said for said in wrong if said]


def commands(page: Path) -> list[str]:
    """Those of the repository that it names."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    return [" ".join(found.partition("#")[0].split()) for found in COMMAND.findall(text)]


def missing_commands(page: Path) -> Iterator[str]:
    name = page.relative_to(NAMED_FROM)
    for command in commands(page):
        words = command.split()
        source = _source(words)
        if not source:
            yield f"{name}: no such command: {command}"
            continue
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            known = option in source or option[2:].replace("-", "_") in source
            if not known:
                yield f"{name}: {command}: no option {option}"


def _source(words: list[str]) -> str:
    """All that a command consists of; nothing where there is none of the name."""
    if words[0] == "fmnes":
        folder = ROOT / "src" / "fmnes" / "cli"
        return (folder / "bench.py").read_text("utf-8")
    name = words[2] if words[1] == "-m" else words[1].removesuffix(".py").replace("/", ".")
    path = ROOT.joinpath(*name.split("."))
    if path.is_dir() and (path / "__main__.py").exists():
        return "".join(file.read_text("utf-8") for file in sorted(path.rglob("*.py")))
    return path.with_suffix(".py").read_text("utf-8") if path.with_suffix(".py").exists() else ""


def dead_links(page: Path) -> Iterator[str]:
    """Links to files of the repository, and to headings of pages, that are not there."""
    for link, anchor in LINK.findall(page.read_text("utf-8")):
        there = page.parent / link
        if ":" not in link and not there.exists():
            yield f"{page.relative_to(NAMED_FROM)}: no such file: {link}"
        elif anchor and there.suffix == ".md" and ":" not in link and anchor not in anchors(there):
            yield f"{page.relative_to(NAMED_FROM)}: no such heading: {link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The headings of a page as their links are written, here and on the sites of repositories."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(text))
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}


def unmade_pictures(page: Path) -> Iterator[str]:
    """Pictures of a page that names no command at all."""
    text = page.read_text("utf-8")
    made = commands(page) or page.parent.name == "reproduction" or page.name in ("README.md", "index.md")
    if re.search(r"!\[[^]]*\]\(", text) and not made:
        yield f"{page.relative_to(NAMED_FROM)}: it has a picture, and no command that makes it"


def broken_commands(page: Path) -> Iterator[str]:
    """Commands of a page with pictures that do not start; tests/real runs the examples at a reduced size."""
    if not re.search(r"!\[[^]]*\]\(", page.read_text("utf-8")):
        return
    programs = {tuple(command.split()[:3]) for command in commands(page)}
    for words in sorted(programs):
        if said := _ended_badly([*words, "--help"]):
            yield f"{page.relative_to(NAMED_FROM)}: {' '.join(words)} {said}"


def failing_gallery(page: Path, folder: Path, command: str = "python -m benchmarks.gallery") -> Iterator[str]:
    """Run the command that makes the pictures of a page: does it end well, and make them all?"""
    name = page.relative_to(NAMED_FROM)
    if said := _ended_badly([*command.split(), "--out", str(folder)]):
        yield f"{name}: {command} {said}"
        return
    for picture in re.findall(r"!\[[^]]*\]\(([^)\s]+)", page.read_text("utf-8")):
        if not (folder / Path(picture).name).exists():
            yield f"{name}: {command} has not made {picture}"


def _ended_badly(words: list[str]) -> str:
    program = [sys.executable, *words[1:]] if words[0] == "python" else [sys.executable, "-m", *words]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    return f"ended with {done.returncode}: {done.stderr[-500:]}" if done.returncode else ""


def pictures_without_words(page: Path) -> Iterator[str]:
    """Pictures whose alternative text is too short to say what they show."""
    for words, picture in re.findall(r"!\[([^]]*)\]\(([^)\s]+)", page.read_text("utf-8")):
        if len(words.split()) < MIN_ALT_WORDS:
            yield f"{page.relative_to(NAMED_FROM)}: {picture} has no text that says what it shows"


def unusual_words(pages: Iterable[Path]) -> tuple[int, int]:
    """How many of the words of these pages are in `UNUSUAL`, and how many words there are."""
    texts = [re.sub(r"```.*?```|`[^`]*`", " ", page.read_text("utf-8"), flags=re.DOTALL) for page in pages]
    return sum(len(UNUSUAL.findall(text)) for text in texts), sum(len(text.split()) for text in texts)


def sentences(page: Path) -> Iterator[str]:
    """The prose of a page: no code blocks, each cell of a table and each item of a list on its own."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)  # a link is read as its text
    text = re.sub(r"^\|.*$", lambda row: row[0].replace("|", "\n\n"), text, flags=re.MULTILINE)
    text = re.sub(r"^(?=#|- |\d+\. )", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.?!])\s+(?=\S)", " ".join(paragraph.split()))


def figures_elsewhere(page: Path) -> Iterator[str]:
    """Figures in a row of a table that are not on the page which the row links to."""
    name = page.relative_to(NAMED_FROM)
    for row in re.findall(r"^\| (?:\[.*)$", page.read_text("utf-8"), re.MULTILINE):
        first, *cells = row.strip("| ").split(" | ")
        [(source, _)] = LINK.findall(first)[:1]
        there = (page.parent / source).read_text("utf-8")
        for figure in re.findall(r"\d[\w.+-]*", " ".join(cells)):
            if not re.search(rf"(?<![\w.]){re.escape(figure)}(?![\w.]*\w)", there):
                yield f"{name}: {figure} is not in {source}"


def same_output(shown: str, printed: str) -> bool:
    """Equal text, and numbers within 10 %: the last digits depend on the processor."""
    number = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
    close = (
        abs(float(a) - float(b)) <= 0.1 * abs(float(b))
        for a, b in zip(number.findall(shown), number.findall(printed), strict=False)
    )
    return number.sub("#", shown) == number.sub("#", printed) and all(close)


def check_extras(arguments: list[str]) -> None:
    """`pip install ".[cli]"`: are there such extras?"""
    with (ROOT / "pyproject.toml").open("rb") as file:
        known = tomllib.load(file)["project"]["optional-dependencies"]
    for extra in re.findall(r"[\w-]+", "".join(re.findall(r"\[([^]]*)\]", " ".join(arguments)))):
        if extra not in known:
            sys.exit(f"pyproject.toml has no extra {extra!r}")


if __name__ == "__main__":
    check_extras(sys.argv[1:])
