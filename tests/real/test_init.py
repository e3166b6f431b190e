"""`fmnes init`: every template is what it says, runs as written, and is solved by the default method."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fmnes
from benchmarks.templates import KNOWN, search, write
from fmnes import ArgumentError
from fmnes.cli import app
from fmnes.cli.problem import TEMPLATES, template_files
from fmnes.cli.problem_file import read_problem


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a user types it, with the commands of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("template", TEMPLATES)
def test_init_writes_the_files_and_never_over_others(template: str, tmp_path: Path) -> None:
    folder = tmp_path / "it's new"
    done = shell(f"fmnes init {shlex.quote(str(folder))} --template {template}", tmp_path)
    assert done.returncode == 0, done.stderr
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert files == template_files(template)
    assert "PYTHON" not in "".join(text for name, text in files.items() if name.endswith(".toml"))
    for name in files:  # one of them is enough
        other = tmp_path / f"other {name}"
        other.mkdir()
        (other / name).write_text("mine")
        with pytest.raises(ArgumentError, match=f"{re.escape(name)}: found it there already"):
            app(["init", str(other), "--template", template], standalone_mode=False)
        assert [(p.name, p.read_text()) for p in other.iterdir()] == [(name, "mine")]


def test_what_init_says_to_run_next_runs_from_here(tmp_path: Path) -> None:
    done = shell('fmnes init "it\'s new"', tmp_path)
    lines = re.findall(r":  +(fmnes .*)", done.stdout)
    assert [line.split()[1] for line in lines] == ["try", "minimize"]
    tried = shell(lines[0], tmp_path)
    assert tried.returncode == 0 and "value 180\n" in tried.stdout and "deflection" in tried.stdout, tried
    done = shell(f"{lines[1]} --max-evaluations 40 --seed 1", tmp_path)
    assert done.returncode == 0 and "density" in done.stdout and "40 evaluations" in done.stdout, done
    assert {p.name for p in (tmp_path / "it's new").iterdir()} >= {"problem.run", "problem.try"}


def test_the_script_runs_and_goes_on_where_it_was(tmp_path: Path) -> None:
    done = shell("fmnes init new --template python", tmp_path)
    line = re.search(r"now run:  (.*)", done.stdout)
    assert line
    script = tmp_path / "new" / "optimise.py"
    budget = "MAX_EVALUATIONS = 600"
    script.write_text(script.read_text().replace(budget, "MAX_EVALUATIONS = 40"))
    done = shell(line[1], tmp_path)
    assert done.returncode == 0 and "40" in done.stdout, done.stderr
    again = shell(line[1], tmp_path)
    assert again.returncode == 0 and again.stdout == done.stdout


def test_an_unknown_template_is_named_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArgumentError, match=r"template: found 'phyton', wanted one of .*mean 'python'\?"):
        app(["init", "/nowhere", "--template", "phyton"], standalone_mode=False)
    app(["init", "--help"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert {"program", "python"} <= {*TEMPLATES} and all(template in shown for template in TEMPLATES)


def quick_beam(folder: Path) -> Any:
    """simulate.py in this process, on the same input file: many times as fast as a program."""
    code = compile((folder / "simulate.py").read_text(), "simulate.py", "exec")
    deck = (folder / "beam.inp.in").read_text()

    def simulate(p: dict[str, float]) -> float:
        (folder / "beam.inp").write_text(deck.format(**p))
        argv, sys.argv = sys.argv, ["simulate.py", str(folder / "beam.inp")]
        try:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, {})
        finally:
            sys.argv = argv
        found = re.findall(r"mass\s+(\S+)", printed.getvalue())
        return float(found[-1]) if found else float("nan")

    return simulate


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("template", ["program", "python"])
def test_the_default_comes_within_one_per_cent(template: str, seed: int, tmp_path: Path) -> None:
    """`python -m benchmarks.templates` does so with 20 seeds, and with real programs."""
    write(template, tmp_path)
    if template == "program":
        problem = read_problem(tmp_path / "problem.toml")
        budget = {"max_evaluations": problem.run["max_evaluations"]}
        result = fmnes.minimize(quick_beam(tmp_path), problem.space.parameters, rng=seed, **budget)
    else:
        result = search(tmp_path, seed)
    least = KNOWN[template]()
    assert least * (1 - 1e-9) <= result.fun <= 1.01 * least
    assert result.n_infeasible > 0.1 * result.nfev  # the edge of what works is where the search ends


@pytest.mark.parametrize("template", ["program", "python"])
def test_beyond_the_known_optimum_everything_fails(template: str, tmp_path: Path) -> None:
    """Points all around the best one: none of them is better, and those on one side fail."""
    write(template, tmp_path)
    if template == "program":
        simulate, best = quick_beam(tmp_path), {"width": 0.01, "height": 0.0125 ** (1 / 3), "density": 100.0}
        parameters = read_problem(tmp_path / "problem.toml").space.parameters
    else:
        script = runpy.run_path(str(tmp_path / "optimise.py"))
        simulate, parameters = script["simulate"], script["space"]
        best = {"radius": 0.06957605681163342, "wall": 0.0006155813030745726}

    def value(p: dict[str, float]) -> float:
        try:
            return simulate(p)
        except (fmnes.Infeasible, SystemExit):
            return float("nan")

    least = KNOWN[template]()
    edge = {name: x * (1 + 1e-9) for name, x in best.items()}
    assert value(edge) == pytest.approx(least, rel=1e-7)
    for name in best:
        for factor in (0.9, 0.99, 0.999, 1.001, 1.01, 1.1):
            moved = {**edge, name: edge[name] * factor}
            p = parameters[name]
            if p.lower <= moved[name] <= p.upper:
                found = value(moved)
                assert not found < least and (found != found) == (factor < 1)
