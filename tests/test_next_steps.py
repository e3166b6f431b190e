"""What the command line says to do next: as a table, and as lines that a real shell reads back."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from fmnes import StopReason
from fmnes.cli import app
from fmnes.reading.next_steps import RunOutcome, as_line, next_steps, start_over, when_broken, where_a_run_is
from tests.rows import through

RUN, PROBLEM = Path("problem.run"), Path("problem.toml")
RESUME, FAILURES = "fmnes resume problem.run", "fmnes show problem.run --failures"
TRY, RESTARTS = "fmnes try problem.toml", "fmnes minimize --archive-existing --restarts 5 problem.toml"
#: Of a run that has found something and where something has failed, at evaluation 400, of 60 seconds.
TABLE: dict[str, list[str]] = {
    "TARGET": [FAILURES, RESTARTS],  # not a success: the target was changed since
    "MAX_EVALUATIONS": [f"{RESUME} --max-evaluations 800"],
    "MAX_SECONDS": [f"{RESUME} --max-seconds 120"],
    "XTOL": [FAILURES, RESTARTS],
    "FTOL": [FAILURES, RESTARTS],
    "FLAT": [FAILURES, RESTARTS],
    "ILL_CONDITIONED": [FAILURES, RESTARTS],
    "SIGMA_OVERFLOW": [FAILURES, RESTARTS],
    "SIGMA_UNDERFLOW": [FAILURES, RESTARTS],
    "NO_FEASIBLE": [FAILURES, TRY, f"{RESUME} --forget-failures"],
    "LOST": [FAILURES, RESUME],
    "NUMERICAL": [FAILURES, RESTARTS],
    "STORAGE": [RESUME],
    "CALLBACK": [RESUME],
    "INTERRUPTED": [RESUME],
    "REPEATED": [FAILURES, RESTARTS],
    "STALLED": [FAILURES, RESTARTS],
    "HOPELESS": [FAILURES, RESTARTS],
    "NOISE": [f"{RESUME} --max-evaluations 800"],
    "": [RESUME],  # killed
}


def ending(name: str, **changes: Any) -> RunOutcome:
    reason = StopReason[name] if name else None
    return replace(
        RunOutcome(RUN, reason, failed=True, evaluations=400, max_seconds=60.0, problem=PROBLEM), **changes
    )


def test_the_table_has_all_endings() -> None:
    assert TABLE.keys() == {"", *StopReason.__members__}


@through("name", TABLE)
def test_the_next_step_follows_from_the_ending(name: str) -> None:
    assert [step.command for step in next_steps(ending(name))] == TABLE[name]
    assert next_steps(ending(name, success=True)) == []


def test_where_nothing_was_found_one_looks_before_going_on() -> None:
    for name in ("MAX_EVALUATIONS", "MAX_SECONDS"):
        steps = [step.command for step in next_steps(ending(name, found=False))]
        assert steps == [FAILURES, TRY, *TABLE[name]]


def test_without_a_problem_file_or_failures_there_is_less_to_say() -> None:
    assert next_steps(ending("FLAT", failed=False, problem=None)) == []
    assert [step.command for step in next_steps(ending("NO_FEASIBLE", problem=None))] == [
        FAILURES,
        f"{RESUME} --forget-failures",
    ]


def test_a_run_that_never_began_begins_again() -> None:
    for name in ("", "INTERRUPTED"):
        (step,) = next_steps(ending(name, resumable=False))
        assert step == ("to begin it again", "fmnes minimize problem.toml")
        assert next_steps(ending(name, resumable=False, problem=None)) == []


def test_a_python_function_goes_on_in_python() -> None:
    (step,) = next_steps(ending("MAX_EVALUATIONS", function="misfit"))
    assert step == ("to go on, from Python", "fmnes.resume('problem.run', misfit, max_evaluations=800)")
    assert [step.command for step in next_steps(ending("NO_FEASIBLE", function="misfit"))] == [
        FAILURES,
        "fmnes.resume('problem.run', misfit, forget_failures=True)",
    ]


def test_where_a_run_is_the_line_that_was_typed_comes_back() -> None:
    typed = ["--run-dir", "a b", "problem.toml", "--run-dir=c", "--seed", "1"]
    steps = where_a_run_is(typed, RUN, Path("problem.run.1"), Path("problem-2.run"))
    assert [step.command for step in steps] == [
        RESUME,
        "fmnes minimize --archive-existing --run-dir 'a b' problem.toml --run-dir=c --seed 1",
        "fmnes minimize --run-dir problem-2.run problem.toml --seed 1",
    ]
    program = ["--param", "a=1,1", "--", "./simulate", "--run-dir", "{a}"]
    steps = where_a_run_is(program, RUN, Path("problem.run.1"), Path("r"), resumable=False)
    assert [shlex.split(step.command)[2:] for step in steps] == [
        ["--archive-existing", *program],
        ["--run-dir", "r", *program],
    ]


def test_a_run_elsewhere_is_named() -> None:
    assert start_over(RUN, PROBLEM) == "fmnes minimize --archive-existing problem.toml"
    assert start_over(Path("r"), PROBLEM) == "fmnes minimize --archive-existing --run-dir r problem.toml"


HOSTILE = [
    "a b",
    "it's",
    '$(rm -rf "x")',
    "-x",
    "--json",
    "a\nb",
    "\x1b[31mred\x9b",
    "größe 直径",
    "a\\nb",
    "*",
]


@through("name", HOSTILE)
def test_a_line_is_read_back_by_a_shell(name: str) -> None:
    line = as_line("resume", Path(name), "--max-evaluations", "800")
    assert line.isprintable()
    script = f'fmnes() {{ printf "%s\\0" "$@"; }}; {line}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=300)
    *words, end = done.stdout.decode().split("\0")
    path = f"./{name}" if name.startswith("-") else name
    assert (words, end) == (["resume", path, "--max-evaluations", "800"], "")


def test_every_line_is_a_command_with_its_options() -> None:
    steps = [step for name in TABLE for step in next_steps(ending(name, found=False))]
    steps += when_broken(RUN, PROBLEM)
    steps += where_a_run_is(["problem.toml", "--seed", "1"], RUN, Path("problem.run.1"), Path("other.run"))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for step in steps:
        program, name, *arguments = shlex.split(step.command)
        assert program == "fmnes"
        if name in commands:
            commands[name].make_context(name, arguments)  # raises for what it does not know
        else:
            assert name == "try"


@pytest.mark.parametrize("name", ["Model.simulate", "main.<locals>.simulate", "<lambda>"])
def test_no_line_that_cannot_run(name: str) -> None:
    """A method needs its object, and a local function its surroundings."""
    stopped = RunOutcome(Path("a.run"), StopReason.INTERRUPTED)
    assert next_steps(replace(stopped, function=name)) == []
    assert len(next_steps(replace(stopped, function="simulate"))) == 1
