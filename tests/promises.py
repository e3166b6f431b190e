"""Each promise, the test that holds it, and a way to break the code which that test must see.

    python -m tests.promises              # break the code on purpose, in a copy, and see each test fail
    python -m tests.promises LOST bounds  # only the promises with one of these words in them
    python -m tests.promises --page       # docs/promises.md

A break replaces a small piece of text inside one symbol: a function, a method, a class or a module, given by
its dotted name. A test that passes on the broken code checks nothing; neither does one that fails on the
unbroken code.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "promises.md"


class Promise(NamedTuple):
    says: str
    test: str
    """The node id of the test, below tests/."""
    broken: str
    """What the break does, in words."""
    symbol: str
    """The dotted name of what is broken, e.g. "fmnes.search.generation.Generation.of"."""
    old: str
    """Text in the source of the symbol; its first occurrence is replaced."""
    new: str


PROMISES = [
    Promise(
        "The same seed gives the same run; 0 is a seed",
        "test_optimizer.py::test_the_same_seed_is_the_same_run_and_zero_is_a_seed",
        "the seed is left out",
        "fmnes.arguments.check_rng",
        "return np.random.default_rng(int(rng)), int(rng)",
        "return np.random.default_rng(), int(rng)",
    ),
    Promise(
        "… whatever order results come in",
        "test_ask_tell.py::test_whatever_the_order_it_is_the_search_of_ask_and_tell",
        "values count as they come",
        "fmnes.search.generation.Generation.next_out_of_order",
        "return slots if out_of_order.all() else slots[: int(out_of_order.argmin())]",
        "return slots[out_of_order]",
    ),
    Promise(
        "… whatever the number of workers, without models",
        "test_parameters.py::test_workers_and_executors_get_the_same_points",
        "points are rounded on their way to a worker",
        "fmnes.evaluation.workers.messages.serve",
        "np.frombuffer(receive(stream)).copy()",
        "np.frombuffer(receive(stream)).round(2)",
    ),
    Promise(
        "The target counts in slot order: `nfev` is the number of evaluations up to the first hit",
        "test_ask_tell.py::test_target_and_budget_are_applied_in_slot_order",
        "the last hit of a generation counts, not the first",
        "fmnes.search.counting.tell_all",
        "lost[hits[0] + 1 :] = True",
        "lost[hits[-1] + 1 :] = True",
    ),
    Promise(
        "A budget that cuts a generation evaluates its first points only, and makes no update",
        "test_optimizer.py::test_a_budget_that_cuts_a_generation_evaluates_its_first_points_and_makes_no_update",
        "its last points are evaluated",
        "fmnes.search.counting.next_slots",
        "slots = slots[:left]",
        "slots = slots[-left:]",
    ),
    Promise(
        "Nothing is printed and nothing is written unless asked",
        "test_minimize.py::test_nothing_is_printed_or_written",
        "a run says hello",
        "fmnes.run.minimize.minimize",
        "    check_callback(callback)\n",
        "    check_callback(callback)\n    print('hello')\n",
    ),
    Promise(
        "No global random state is used or changed",
        "test_optimizer.py::test_global_random_state_is_neither_used_nor_changed",
        "the draws are those of `np.random`",
        "fmnes.search.distribution.Distribution.draw",
        "z = self.rng.standard_normal((n, len(self.state.mean)))",
        "z = np.random.standard_normal((n, len(self.state.mean)))",
    ),
    Promise(
        "`minimize` evaluates the start first: a result is never worse than it",
        "test_start_first.py::test_the_result_is_never_worse_than_the_start",
        "the value of the start is forgotten",
        "fmnes.run.state.Totals.take_start",
        "            self.best = Best(x, value, 1)\n",
        "            pass\n",
    ),
    Promise(
        "Every point asked, told and returned is inside the bounds",
        "test_bounds.py::test_all_that_is_seen_is_inside",
        "the search is not bent at the bounds",
        "fmnes.search.box.Box.onto",
        "        if not bent.any():\n",
        "        if True:\n",
    ),
    Promise(
        'With `bounds_as="failure"` a point outside is ranked as one that failed',
        "test_contract.py::test_a_point_outside_the_bounds_is_a_failed_one",
        "it has the value 0",
        "fmnes.search.generation.Generation.of",
        "new = cls(z, x, screened.values, open, common.zeros, screened.source)",
        "new = cls(z, x, 0.0 * x[:, 0], open, common.zeros, screened.source)",
    ),
    Promise(
        "A long row of generations without a feasible point ends with NO_FEASIBLE",
        "test_minimize.py::test_an_objective_that_always_fails_ends_with_no_feasible",
        "only ten times as long a row does",
        "fmnes.search.stopping.nothing_feasible",
        "if recent.infeasible >= recent.patience:",
        "if recent.infeasible >= 10 * recent.patience:",
    ),
    Promise(
        "`success` is never claimed for a run that converged among failing points without a second look",
        "test_second_look.py::test_what_is_a_success",
        "it is",
        "fmnes.run.restarts.has_converged",
        "return last.converged and not (look and last.needs_confirmation)",
        "return last.converged",
    ),
    Promise(
        '`"fm-nes"` and its relatives are as published, number for number',
        "test_reference.py::test_fm_nes_family",
        "of failed points the farthest comes first",
        "fmnes.strategies.base.rank",
        "return backend.order(value, xp.where(feasible, 0.0, distance2))",
        "return backend.order(value, xp.where(feasible, 0.0, -distance2))",
    ),
    Promise(
        "Values are only ever ranked: no scale or offset of the objective reaches the arithmetic",
        "test_contract.py::test_only_the_order_of_the_values_matters",
        "values that agree to a tenth are taken for equal",
        "fmnes.strategies.base.rank",
        "lambda: backend.order(f), failed_last",
        "lambda: backend.order(xp.round(f, 1)), failed_last",
    ),
    Promise(
        "A lost evaluation is never ranked; its point is asked again",
        "test_optimizer.py::test_a_lost_point_is_never_ranked",
        "it is ranked last",
        "fmnes.search.counting.tell_all",
        "        f, slots = f[~lost], slots[~lost]\n",
        "        pass\n",
    ),
    Promise(
        "What is still lost after its retries stops the run with LOST",
        "test_minimize.py::test_an_evaluation_that_stays_lost_stops_the_run",
        "it stops with STORAGE",
        "fmnes.run.checks.LostEvaluations.tally",
        "Stop(StopReason.LOST, ",
        "Stop(StopReason.STORAGE, ",
    ),
    Promise(
        "A death by SIGTERM that repeats after all retries, alone, is the point's own doing",
        "test_processes.py::test_a_simulation_that_ends_its_own_process_group_has_failed_in_the_end",
        "it stays lost",
        "fmnes.evaluation.supervision.RetryKilled._repeats",
        "return 0 < self._retries <= self._deaths[task.id.point]",
        "return False",
    ),
    Promise(
        "`fmnes.Lost`, exit code 75 and a dead node never are",
        "test_processes.py::test_what_the_objective_calls_lost_never_becomes_failed",
        "whatever is lost is taken for a death by a signal",
        "fmnes.evaluation.supervision.RetryKilled._repeats",
        'if not (outcome.status == "lost" and outcome.fault):',
        'if not (outcome.status == "lost"):',
    ),
    Promise(
        "A whole first generation with one and the same exception is a bug, and raised",
        "test_minimize.py::test_a_first_generation_of_one_and_the_same_exception_is_a_bug",
        "it has failed like any other",
        "fmnes.run.checks.raise_if_broken",
        'len(faults) != 1 or "" in faults',
        "len(faults) != 0",
    ),
    Promise(
        "`minimize` into a used `run_dir` is refused",
        "test_run_directory.py::test_a_used_directory_is_refused",
        "it is used again",
        "fmnes.storage.directory._refuse_used",
        "def _refuse_used(path: Path) -> None:\n",
        "def _refuse_used(path: Path) -> None:\n    return\n",
    ),
    Promise(
        "Input is checked before any evaluation is spent, and an error says what was found and wanted",
        "test_arguments.py::test_minimize_refuses_before_anything_is_evaluated",
        "whatever stands for a flag is taken",
        "fmnes.run.settings.Settings.__post_init__",
        "            check_flag(name, getattr(self, name))\n",
        "",
    ),
    Promise(
        "Every ending has a name and its numbers",
        "test_stopping.py::test_a_sphere_ends_with_xtol",
        "steps that vanish are called FTOL",
        "fmnes.search.stopping.steps_vanished",
        "return Stop(StopReason.XTOL, ",
        "return Stop(StopReason.FTOL, ",
    ),
    Promise(
        "Loading runs no code",
        "test_checkpoint.py::test_pickles_are_refused_and_not_run",
        "arrays of objects are unpickled",
        "fmnes.storage.snapshot._read_array",
        "    stream = io.BytesIO(raw)\n",
        "    np.lib.format.read_array(io.BytesIO(raw), allow_pickle=True)\n    stream = io.BytesIO(raw)\n",
    ),
    Promise(
        "A finished evaluation is on disk before it counts",
        "real/test_resume.py::test_five_kills_in_a_row",
        "every third is not written",
        "fmnes.run.recording.Recorder.record",
        "self._log.record(task.id, outcome,",
        "self.evaluated % 3 and self._log.record(task.id, outcome,",
    ),
    Promise(
        "A resumed run is bit for bit the uninterrupted one, and no finished evaluation is made again",
        "real/test_resume.py::test_kill_9_at_random_moments",
        "the log is not asked",
        "fmnes.run.recording.Recorder.replay",
        "if task.id.attempt >= len(counted):",
        "if True:",
    ),
    Promise(
        "With `workers=`, a crash costs one evaluation: that point failed",
        "test_processes.py::test_a_fault_costs_one_evaluation[segfault]",
        "it is lost",
        "fmnes.evaluation.supervision.outcome_of_death",
        'return infeasible(f"died: ',
        'return lost(f"died: ',
    ),
    Promise(
        "What is timed out is killed with everything it has started",
        "test_processes.py::test_a_fault_costs_one_evaluation[leaves a child and hangs]",
        "it alone is killed",
        "fmnes.evaluation.workers.guard._watch",
        "    _kill_descendants()\n",
        "",
    ),
    Promise(
        "Nothing outlives the driver",
        "test_processes.py::test_nothing_outlives_the_driver",
        "nobody looks whether it has gone",
        "fmnes.evaluation.workers.guard._watch",
        "        if os.getppid() != driver:",
        "        if False:",
    ),
    Promise(
        "`import fmnes` loads NumPy and the standard library only",
        "test_imports.py::test_import_loads_numpy_and_the_standard_library_only",
        "cloudpickle is loaded at once",
        "fmnes.version",
        "__version__ =",
        "import cloudpickle\n\n__version__ =",
    ),
    Promise(
        "Imports go one way",
        "test_imports.py::test_imports_go_one_way",
        "a step knows the optimizer",
        "fmnes.steps.sampling",
        "import numpy as np\n",
        "import numpy as np\nimport fmnes.search\n",
    ),
]

HEAD = """# Promises

Each promise, the test that holds it, and how that test was seen to fail: `python -m tests.promises` makes
the change of the third column in a copy of the code, one at a time, and runs the test, which has to fail; on
the code as it is all of them pass (`make test`, `make test-real`). `python -m tests.promises --page` writes
this page.

| promise | test, in `tests/` | fails when |
|---|---|---|
"""


def page() -> str:
    rows = [f"| {p.says.replace('|', '&#124;')} | `{p.test}` | {p.broken} (`{p.symbol}`) |" for p in PROMISES]
    return HEAD + "\n".join(rows) + "\n"


def locate(symbol: str, source: Path) -> tuple[Path, int, int]:
    """The file that defines the symbol, and where its source begins and ends in the text of that file.

    source: a folder with the package in it.
    """
    words = symbol.split(".")
    for n in range(len(words), 0, -1):
        module = source.joinpath(*words[:n])
        path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if path.is_file():
            break
    else:
        raise LookupError(f"no module of {symbol} below {source}")
    text = path.read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    start, end = 0, len(text.splitlines())
    for name in words[n:]:
        found = [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == name
        ]
        if not found:
            raise LookupError(f"{path.relative_to(source)} defines no {name}, which {symbol} needs")
        node = found[-1]  # the overloads of a function come before it
        start, end = found[-1].lineno - 1, found[-1].end_lineno or 0
    lines = text.splitlines(keepends=True)
    return path, len("".join(lines[:start])), len("".join(lines[:end]))


def break_code(promise: Promise, source: Path) -> None:
    """Make the break in the package below `source`."""
    path, start, end = locate(promise.symbol, source)
    text = path.read_text(encoding="utf-8")
    within = text[start:end]
    assert promise.old in within, (
        f"{promise.symbol} no longer contains {promise.old!r}, which broke: {promise.says}"
    )
    path.write_text(text[:start] + within.replace(promise.old, promise.new, 1) + text[end:], encoding="utf-8")


def run_test(promise: Promise, tree: Path) -> subprocess.CompletedProcess[str]:
    """The promise's test on the code in this tree."""
    words = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", f"tests/{promise.test}"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, timeout=900)


def sees(promise: Promise) -> str:
    """What is wrong with the promise's test; nothing if it fails on the broken code as it should."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("src", "tests", "benchmarks"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, tree / name)
        break_code(promise, tree / "src")
        done = run_test(promise, tree)
    if done.returncode == 1:
        return ""
    told = "passes on the broken code" if done.returncode == 0 else f"does not run:\n{done.stdout[-2000:]}"
    return f"{promise.test} {told}"


def main(words: list[str]) -> int:
    if words == ["--page"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    chosen = [
        p for p in PROMISES if not words or any(w.lower() in f"{p.says} {p.test}".lower() for w in words)
    ]
    wrong = 0
    for promise in chosen:
        problem = sees(promise)
        wrong += bool(problem)
        print(
            f"{'NOT HELD' if problem else 'held    '}  {promise.says}", problem, sep="\n" if problem else ""
        )
        sys.stdout.flush()
    print(f"{len(chosen) - wrong} of {len(chosen)} promises: their test fails when the code is broken")
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
