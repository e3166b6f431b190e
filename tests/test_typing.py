"""What type checkers know of the public names: run over users' scripts in tests/data/typing."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_overloads

import pytest

import fmnes
from fmnes.run.settings import OptimizerOptions, RunOptions

SCRIPTS = Path(__file__).parent / "data" / "typing"


def reported_by_mypy(script: Path, cache: Path) -> dict[int, str]:
    done = run("mypy", "--strict", "--config-file=", "--cache-dir", str(cache), "--output=json", str(script))
    found = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
    return {one["line"]: one["message"] for one in found if one["severity"] == "error"}


def reported_by_pyright(script: Path, cache: Path) -> dict[int, str]:
    found = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, str(script)))
    assert found["summary"]["filesAnalyzed"] == 1
    diagnostics = [one for one in found["generalDiagnostics"] if one["severity"] == "error"]
    return {one["range"]["start"]["line"] + 1: one["message"] for one in diagnostics}


def run(checker: str, *arguments: str) -> str:
    pytest.importorskip(checker)
    done = subprocess.run(
        [sys.executable, "-m", checker, *arguments], capture_output=True, text=True, cwd=SCRIPTS, timeout=600
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: it has reported something
    return done.stdout


both = pytest.mark.parametrize("reported_by", [reported_by_mypy, reported_by_pyright])


@both
def test_a_script_without_mistakes_passes(reported_by, tmp_path: Path) -> None:
    """Its `assert_type` lines say what each type is."""
    script = SCRIPTS / "right.py"
    assert script.read_text().count("assert_type(") > 10
    assert reported_by(script, tmp_path) == {}


@both
def test_every_mistake_is_reported_and_nothing_else(reported_by, tmp_path: Path) -> None:
    script = SCRIPTS / "wrong.py"
    lines = script.read_text().splitlines()
    mistakes = {number for number, line in enumerate(lines, start=1) if line.endswith("# mistake")}
    assert len(mistakes) > 30
    assert reported_by(script, tmp_path).keys() == mistakes


@pytest.mark.parametrize(
    ("call", "shared"), [(fmnes.minimize, RunOptions), (fmnes.Optimizer.__init__, OptimizerOptions)]
)
def test_the_options_that_overloads_share_are_those_of_the_signature(call, shared) -> None:
    """Same names and the same types; what is left over is written out in the overloads."""
    parameters = inspect.signature(call).parameters
    written_out = {"self", "fun", "x0", "sigma0", "population_size", "bounds", "integers"}
    written_out |= {"vectorized", "warm_start", "callback"}
    assert parameters.keys() - shared.__annotations__.keys() <= written_out
    for name, type_ in shared.__annotations__.items():
        assert parameters[name].annotation == type_.__forward_arg__, name
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("settings", [fmnes.AFMNES, fmnes.DXNESIC])
def test_named_settings_have_the_signature_of_the_class_that_they_make(settings) -> None:
    """The same parameters with the same types; only the defaults differ, and they are what is made."""
    ours, whole = inspect.signature(settings).parameters, inspect.signature(fmnes.FMNES).parameters
    assert list(ours) == list(whole)
    assert [p.annotation for p in ours.values()] == [p.annotation for p in whole.values()]
    made = settings()
    assert {name: getattr(made, name) for name in ours} == {name: p.default for name, p in ours.items()}
    assert made == fmnes.FMNES(**{name: p.default for name, p in ours.items()})
    for name, p in ours.items():  # each one arrives where it belongs
        other = {"B0": [[2.0]], "reset": not p.default, "ridge_threshold": 1.5}.get(name)
        if other is None:
            known = choices(whole[name].annotation)
            other = next(value for value in known if value != p.default) if known else 12
        changed = settings(**{name: other})
        different = [each for each in ours if repr(getattr(changed, each)) != repr(getattr(made, each))]
        assert different == [name]


def choices(annotation: str) -> tuple[object, ...]:
    from typing import Literal

    return get_args(eval(annotation, {"Literal": Literal})) if "Literal" in annotation else ()


def test_overloads_can_be_looked_up() -> None:
    """By editors and documentation tools, at run time."""
    assert len(get_overloads(inspect.unwrap(fmnes.minimize))) == 5
