"""`fmnes.FileQueue`: an executor for workers that share nothing but a directory."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fmnes.arguments import check_path, is_number, shown, suggest_options
from fmnes.errors import ArgumentError
from fmnes.evaluation.supervision import AwakeClock

if TYPE_CHECKING:
    from fmnes.evaluation.evaluator import Evaluator
    from fmnes.evaluation.programs.command import Command
    from fmnes.evaluation.queue.driver import LiveWorkers
    from fmnes.space import Space


class FileQueue:
    """An executor for workers that share only a directory, on any machine that sees it.

    Start any number of workers, at any time and on any machine, with `fmnes worker queue --function
    model:simulate`. A worker imports the objective itself, and is refused if its objective differs. Each
    evaluation is isolated and timed by its worker (`timeout=` works). If a worker or its machine dies, its
    evaluation is repeated elsewhere. The results are those of a run without workers.

    Parameters
    ----------
    directory : path
        A new or empty directory, or one in which a queue was made. One driver at a time can use it.
    lease : float, optional
        Seconds without a heartbeat after which a worker counts as dead.

    Raises
    ------
    ArgumentError
        `directory` is not a path, or `lease` is below 1.

    Examples
    --------
    >>> import os, tempfile
    >>> import fmnes
    >>> queue = fmnes.FileQueue(os.path.join(tempfile.mkdtemp(), "queue"), lease=30)
    >>> queue.lease
    30.0

    A run through it, which waits for workers:

    >>> fmnes.minimize(simulate, x0, sigma0, executor=queue, run_dir="run")  # doctest: +SKIP
    """

    def __init__(self, directory: str | os.PathLike[str], *, lease: float = 60.0) -> None:
        self.directory = Path(check_path("directory", directory)).absolute()
        if not is_number(lease) or lease < 1:
            raise ArgumentError(f"lease: found {shown(lease)}, wanted a number of seconds, at least 1")
        self.lease = float(lease)
        self._clock = AwakeClock()
        self._live: LiveWorkers | None = None

    def __repr__(self) -> str:
        return f"FileQueue({str(self.directory)!r})"

    def n_workers(self) -> int | None:
        """Return the number of workers that have registered and are not known to be dead.

        Returns
        -------
        int or None
            None if there is no queue yet.
        """
        return self._workers().count()

    def make_evaluator(
        self,
        fun: Any,
        d: int,
        *,
        timeout: float | None,
        retries: int,
        kept_in: str | None,
        space: Space | None,
    ) -> Evaluator:
        """Return the evaluator of a run; it locks the directory until it is closed.

        Parameters
        ----------
        fun : callable or Command
            The objective.
        d : int
            Number of coordinates.
        timeout : float or None
            Seconds for an evaluation.
        retries : int
            How often a lost evaluation is repeated.
        kept_in : str or None
            Folder of the run directory for the directories of failed programs.
        space : Space or None
            The named parameters.

        Returns
        -------
        Evaluator
            The evaluator.
        """
        from fmnes.evaluation.programs.command import Command
        from fmnes.evaluation.queue import files
        from fmnes.evaluation.queue.driver import QueueDriver, QueueEvaluator
        from fmnes.evaluation.queue.files import Job, new_driver
        from fmnes.evaluation.queue.fingerprint import fingerprint
        from fmnes.evaluation.supervision import RetryKilled
        from fmnes.storage.directory import CONFIG
        from fmnes.storage.lock import RunLock

        objective = fingerprint(fun)
        if isinstance(fun, Command):
            _check_command(fun, d, space)
            timeout = fun.timeout if timeout is None else timeout
        run = os.path.realpath(os.path.dirname(kept_in)) if kept_in else ""
        files.make_queue(self.directory)
        lock = RunLock(self.directory / files.LOCK)
        try:
            job = Job(objective, d, timeout, self.lease, space, run, new_driver())
            driver = QueueDriver(
                self.directory,
                job,
                self._workers(),
                self._clock,
                call=_call(self.directory, fun),
                resumed=bool(run) and os.path.exists(os.path.join(run, CONFIG)),
            )
        except BaseException:
            lock.release()
            raise
        return RetryKilled(QueueEvaluator(driver, lock), retries)

    def _workers(self) -> LiveWorkers:
        from fmnes.evaluation.queue.driver import LiveWorkers

        if self._live is None:
            self._live = LiveWorkers(self.directory, self.lease, self._clock)
        return self._live


# A decorator of the class would hide its signature from `help` and from type checkers.
FileQueue.__init__ = suggest_options(FileQueue.__init__)  # type: ignore[method-assign]


def _check_command(command: Command, d: int, space: Space | None) -> None:
    """Check the files and placeholders. The program itself need exist on the workers' machines only."""
    from fmnes.evaluation.programs.inputs import point_of, read_inputs

    named = None if space is None else space.named(np.zeros(d))
    if named is not None and command.names is not None and tuple(named) != tuple(command.names):
        raise ArgumentError(f"names: found {command.names}, wanted those of the parameters: {tuple(named)}")
    point = point_of(command.names, np.zeros(d)) if named is None else named
    read_inputs(command).check(point, named is not None or command.names is not None)


def _call(directory: Path, fun: Any) -> str:
    """Return the command line that starts a worker for this objective, as far as it is known."""
    problem = getattr(fun, "problem_file", None)
    if problem is not None:
        return f"fmnes worker {shlex.quote(str(directory))} {shlex.quote(str(problem))}"
    module = getattr(fun, "__module__", None) or "module"
    if module == "__main__":  # workers import it by the name of its file
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or "module").stem
    name = getattr(fun, "__qualname__", None) or "name"
    return f"fmnes worker {shlex.quote(str(directory))} --function {shlex.quote(f'{module}:{name}')}"
