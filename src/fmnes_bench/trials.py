"""Many independent runs on all cores, stored line by line and resumable."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fmnes.errors import ArgumentError

# -- Trials on disk: a CSV file, a line a trial, appended as it finishes, so that an interrupted run can
# go on.
#
# Its folder has a configuration.json: what all trials in it must share, and notes on what else they depend
# on.


Trial = TypeVar("Trial")


def open_folder(folder: Path, configuration: dict[str, Any], **more: str) -> None:
    """Make the folder, or see that it is one of ours with this configuration. `more` is only noted."""
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


class Lines:
    """The file, open for more lines."""

    def __init__(self, path: Path, header: str) -> None:
        _repair(path, header)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)

    def add(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_lines(path: Path, header: str, parse: Callable[[list[str]], Trial]) -> list[Trial]:
    """All trials of the file, by `parse` of the fields of a line, which raises ValueError on a wrong one.

    Lines that somebody has packed away (`gzip FILE`) count too.
    """
    packed = path.with_name(path.name + ".gz")
    texts = [gzip.decompress(packed.read_bytes()).decode()] if packed.exists() else []
    texts += [path.read_text(encoding="utf-8")] if path.exists() else []
    trials = []
    for text in texts:
        for number, line in enumerate(text.splitlines()[1:], 2):
            try:
                trials.append(parse(line.split(",")))
            except ValueError:
                raise ArgumentError(f"{path}, line {number}: found {line!r}, wanted {header}") from None
    return trials


def _repair(path: Path, header: str) -> None:
    """Cut off a last line that was not written whole; a new file gets its header."""
    raw = path.read_bytes() if path.exists() else b""
    whole = raw[: raw.rfind(b"\n") + 1]
    if not whole.startswith(header.encode()):
        whole = header.encode() + b"\n"
    if whole != raw:
        path.write_bytes(whole)


# -- Many trials on all cores, with the same numbers whatever the number of workers.
#
# Trials run in processes of their own whose arithmetic is pinned: one BLAS thread, and the instruction set
# that
# every x86-64 machine of the last decade has. So a trial needs as many evaluations on another such machine.


PINNED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}

Key = TypeVar("Key", bound=tuple[Any, ...])


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
    """`run(*key)` for every wanted key, those already done included, in the order asked for.

    run: a function of a module; a trial depends on its key alone.
    work: about how much a trial costs, for the order and the time left.
    keep: called with each trial as it finishes.
    progress: called with the work done and the work in all.
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
            pending: dict[Future[Trial], Key] = {pool.submit(run, *key): key for key in queue}
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
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
    """Fresh processes, which read the pinned settings before they load NumPy."""
    before = {name: os.environ.get(name) for name in PINNED}
    os.environ.update(PINNED)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_the_parent)
    try:
        yield pool
    except BaseException:
        running = list((pool._processes or {}).values())  # shutdown forgets them, but does not end them
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
    """A worker whose parent was killed would wait for its next trial for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
