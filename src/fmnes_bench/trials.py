"""Many independent runs on all cores, stored line by line and resumable, and tables of them."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import numpy as np

from fmnes.errors import ArgumentError

# -- Storage: a CSV file with one line per trial, appended when the trial ends, so that an interrupted run
# can continue. configuration.json in the same folder has the settings that all trials share.

Key = TypeVar("Key", bound=tuple[Any, ...])
Trial = TypeVar("Trial")


def open_folder(folder: Path, configuration: dict[str, Any], **more: str) -> None:
    """Create the folder, or check that it has this configuration. `more` is recorded and not compared."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "configuration.json"
    if not path.exists():
        if any(folder.iterdir()):
            raise ArgumentError(f"out: found {folder} with other files in it, wanted an empty or new folder")
        noted = {**configuration, "numpy": np.__version__, "machine": platform.machine(), **more}
        path.write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        differing = [key for key, value in configuration.items() if found.get(key) != value]
    except (ValueError, AttributeError):
        raise ArgumentError(f"out: found an unreadable {path}, wanted the folder of earlier runs") from None
    if differing:
        key = differing[0]
        raise ArgumentError(
            f"out: found {folder} with {key} = {found.get(key)!r}, wanted {configuration[key]!r}; "
            "choose another folder"
        )


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of packages, for `open_folder` and reports."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


class Store(Generic[Key, Trial]):
    """Trials by key, and a file to which new ones are appended."""

    def __init__(
        self,
        path: Path,
        header: str,
        *,
        read: Callable[[], Iterable[Trial]],
        key: Callable[[Trial], Key],
        line: Callable[[Trial], str],
    ) -> None:
        self._lines = Lines(path, header)  # before `read`: it removes an incomplete last line
        self._key, self._line = key, line
        self.trials: dict[Key, Trial] = {key(trial): trial for trial in read()}

    def add(self, trial: Trial) -> None:
        self.trials[self._key(trial)] = trial
        self._lines.add(self._line(trial))


class Lines:
    """A file of lines to append to; the first one is the header, if it has one."""

    def __init__(self, path: Path, header: str = "") -> None:
        """Remove an incomplete last line; write the header of a new file."""
        self._path = path
        raw = path.read_bytes() if path.exists() else b""
        whole = raw[: raw.rfind(b"\n") + 1]
        if not whole.startswith(header.encode()):
            whole = header.encode() + b"\n"
        if whole != raw:
            path.write_bytes(whole)

    def add(self, line: str) -> None:
        """Append the line in one write, so that several processes can add to the same file."""
        with open(self._path, "ab", buffering=0) as file:
            file.write((line + "\n").encode())


def read_texts(path: Path) -> Iterator[str]:
    """The contents of the compressed form of the file (`gzip FILE`) and of the file, if they exist."""
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        yield gzip.decompress(packed.read_bytes()).decode()
    if path.exists():
        yield path.read_text(encoding="utf-8")


def read_lines(path: Path, header: str, parse: Callable[[list[str]], Trial]) -> list[Trial]:
    """All trials of the file and of its compressed form.

    parse: makes a trial of the fields of a line; raises ValueError for an invalid line.
    """
    trials = []
    for text in read_texts(path):
        for number, line in enumerate(text.splitlines()[1:], 2):
            try:
                trials.append(parse(line.split(",")))
            except ValueError:
                raise ArgumentError(f"{path}, line {number}: found {line!r}, wanted {header}") from None
    return trials


# -- Many trials on all cores. Results do not depend on the number of workers or on the x86-64 machine:
# worker processes use one BLAS thread and an instruction set that all such machines of the last decade have.

PINNED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}


def run_all(
    run: Callable[..., Trial],
    wanted: Sequence[Key],
    done: Mapping[Key, Trial],
    *,
    work: Callable[[Key], float],
    keep: Callable[[Trial], None] | None = None,
    workers: int | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> list[Trial]:
    """`run(*key)` for every wanted key, in that order, with the trials of `done` reused.

    run: a module-level function; a trial depends only on its key.
    work: the approximate cost of a trial, for scheduling and progress.
    keep: called with each trial when it ends.
    progress: called with the work done and the total work.
    """
    found = dict(done)
    total = sum(map(work, wanted))
    finished = sum(work(key) for key in wanted if key in found)
    # The longest first, so that no long trial is left alone at the end.
    queue = sorted((key for key in dict.fromkeys(wanted) if key not in found), key=lambda key: -work(key))
    if progress:
        progress(finished, total)
    if queue:
        with _pinned_pool(min(workers or os.cpu_count() or 1, len(queue))) as pool:
            # A queue, because `concurrent.futures.wait` locks every future: Ctrl-C in between leaves some
            # of them locked, and the process never ends.
            ended: SimpleQueue[Future[Trial]] = SimpleQueue()
            pending: dict[Future[Trial], Key] = {pool.submit(run, *key): key for key in queue}
            for future in pending:
                future.add_done_callback(ended.put)
            while pending:
                future = ended.get()
                key = pending.pop(future)
                found[key] = trial = future.result()
                if keep:
                    keep(trial)
                finished += work(key)
                if progress:
                    progress(finished, total)
    return [found[key] for key in wanted]


@contextmanager
def _pinned_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """New processes, which read the pinned settings before they import NumPy."""
    before = {name: os.environ.get(name) for name in PINNED}
    os.environ.update(PINNED)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_the_parent)
    try:
        yield pool
    except BaseException:
        running = list((pool._processes or {}).values())  # shutdown drops them without ending them
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()
        raise
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        pool.shutdown(wait=True, cancel_futures=True)


def _end_with_the_parent() -> None:
    """End this worker when its parent was killed; it would wait forever for its next trial."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# -- Markdown tables, as every report and page writes them


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> list[str]:
    """The lines of a table."""
    titles = list(head)
    return [table_row(titles), table_row(["---"] * len(titles)), *map(table_row, rows)]


def table_row(cells: Iterable[Any]) -> str:
    """One line of a table."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
