"""Mistakes that users make, and what the message says: what is wrong, what was expected, what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fmnes
from fmnes.cli.problem import check_run
from fmnes.cli.problem_file import read_problem
from tests.rows import through

SPACE = {"width": fmnes.Real(0, 1), "height": fmnes.Real(0, 1)}


def total(x):
    return float(np.sum(x))


def minimize(fun, *args, **options):
    return fmnes.minimize(fun, *args, **{"rng": 0, "max_evaluations": 30, **options})


def two(width, height):
    return width + height


def three(x, a, b):
    return total(x) + a + b


def keywords(*, width, height):
    return width + height


def _tell_point():
    opt = fmnes.Optimizer([1.0, 2.0], 0.5)
    opt.tell(opt.ask(1)[0], 3.0)


#: what is called, and what its message has to say, word for word.
PYTHON = {
    "values as pycma takes them": (
        lambda: fmnes.Optimizer([1.0, 2.0], 0.5).tell(np.ones((6, 2)), np.ones(6)),
        "tell takes the values only, in the order of ask(): tell(values)",
    ),
    "points as lists": (
        lambda: fmnes.Optimizer([1.0, 2.0], 0.5).tell([[1.0, 2.0]], [3.0]),
        "tell takes the values only",
    ),
    "a named point": (
        lambda: fmnes.Optimizer(SPACE).tell({"width": 0.5, "height": 1.0}, 3.0),
        "tell(id, value)",
    ),
    "a point for its id": (_tell_point, "wanted its id: tell(point.id, value)"),
    "several arguments, named": (
        lambda: minimize(two, SPACE),
        "fun: found a function of 2 arguments (width, height), wanted a function of one point, which is a "
        "dict; pass lambda p: fun(**p)",
    ),
    "keywords only": (lambda: minimize(keywords, SPACE), "pass lambda p: fun(**p)"),
    "several arguments of an array": (
        lambda: minimize(two, [1.0, 2.0], 0.5),
        "wanted a function of one point, which is an array; pass lambda x: fun(*x)",
    ),
    "further arguments": (lambda: minimize(three, [1.0, 2.0], 0.5), "pass lambda x: fun(x, a=..., b=...)"),
    "several arguments, two workers": (lambda: minimize(two, SPACE, workers=2), "pass lambda p: fun(**p)"),
    "no arguments": (lambda: minimize(lambda: 1.0, [1.0], 0.5), "found a function without arguments"),
    "what the call returned": (
        lambda: minimize(total([1, 2]), [1.0, 2.0], 0.5),
        "fun: found 3.0, wanted a function of one point, or a Command; pass the function itself, such as f",
    ),
    "what a call without return returned": (lambda: minimize(None, [1.0], 0.5), "not its result f(x)"),
    "the point first": (lambda: minimize([1.0, 2.0], total, 0.5), "wanted minimize(fun, x0, sigma0)"),
    "the parameters first": (lambda: minimize(SPACE, total), "wanted minimize(fun, x0, sigma0)"),
    "attribute of a point": (
        lambda: minimize(lambda p: p.width, SPACE),
        "With named parameters the point is a dict: write p['width'], or pass lambda p: fun(**p).",
    ),
    "arithmetic with a point": (lambda: minimize(lambda width: width**2, SPACE), "the point is a dict"),
    "a number in quotes": (
        lambda: minimize(total, [1.0], 0.5, max_evaluations="100"),
        "max_evaluations: found '100', wanted a whole number above 0 or None; write 100 without quotes",
    ),
    "a count in quotes": (lambda: minimize(total, [1.0], 0.5, workers="2"), "write 2 without quotes"),
    "a bound in quotes": (
        lambda: fmnes.Real("0.1", 1),
        "Real: found lower='0.1', wanted a number; write 0.1 without quotes",
    ),
    "a value in quotes": (lambda: minimize(lambda p: "0.3", SPACE), "convert it with float()"),
    "no sigma0": (
        lambda: minimize(total, [1.0]),
        "sigma0: found none and no bounds, wanted sigma0=, or finite bounds= (sigma0 then defaults to a "
        "quarter of their width)",
    ),
    "no x0": (
        lambda: fmnes.Optimizer(),
        "x0: found none and no bounds, wanted x0=, or finite bounds= (x0 then defaults to their centre)",
    ),
    "half a bound": (
        lambda: minimize(total, [1.0], bounds=[(0, None)]),
        "sigma0: found none, and bounds [0, inf] at coordinate 0; wanted sigma0=, or finite bounds=",
    ),
    "no such run": (lambda: fmnes.read_run("nope.run"), "found nothing there, wanted a run directory"),
}


@through(("call", "said"), PYTHON.values())
def test_what_a_mistake_in_python_says(call, said):
    with pytest.raises(fmnes.FmnesError, match=re.escape(said)):
        call()


def test_functions_that_can_be_called_with_one_point_are_taken():
    class Simulation:
        def __call__(self, x, steps=3):
            return total(x)

        def run(self, x):
            return total(x)

    made = Simulation()
    for fun in (made, made.run, np.sum, sum, max, lambda *x: total(x[0]), lambda x, *, n=2: total(x) + n):
        assert minimize(fun, [1.0, 2.0], 0.5).nfev == 30
    assert minimize(lambda p, scale=2: scale * p["width"], SPACE).nfev == 30


def test_a_run_of_another_objective_names_both(tmp_path):
    minimize(total, [1.0], 0.5, run_dir=tmp_path / "r")
    said = "found a run of 'total', and 'three' here, which is another objective; pass the function"
    with pytest.raises(fmnes.RunError, match=re.escape(said)):
        fmnes.resume(tmp_path / "r", three, max_evaluations=50)


def test_a_budget_that_is_used_keeps_the_result(tmp_path):
    first = minimize(total, [1.0, 2.0], 0.5, run_dir=tmp_path / "r")
    said = "max_evaluations: found 10, but the run has used 30 evaluations already; wanted more than 30"
    with pytest.raises(fmnes.ArgumentError, match=said):
        fmnes.resume(tmp_path / "r", total, max_evaluations=10)
    assert fmnes.read_run(tmp_path / "r").result == first


def test_a_place_where_no_run_can_be_made_is_said_without_numbers_of_errors(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(fmnes.RunError, match="wanted a place you may write to") as caught:
        minimize(total, [1.0], 0.5, run_dir=tmp_path / "file" / "r")
    assert "Errno" not in str(caught.value)
    with pytest.raises(fmnes.RunError, match="found a file, wanted a run directory"):
        fmnes.read_run(tmp_path / "file")


# -- the command line -------------------------------------------------------------------------------------


HEAD = "command = ['./sim.sh', '{width}']\n"
WIDTH = "[parameters.width]\nlower = 0.1\nupper = 10.0\n"

#: a problem file, and the whole message after its name.
FILES = {
    "an unused parameter": (
        f"{HEAD}{WIDTH}\n[parameters.height]\nlower = 0.1\nupper = 10.0\n",
        ", line 6: parameters: found 'height' in no placeholder of command, wanted {height} somewhere, or "
        "{params}, the path of a JSON file with all of them",
    ),
    "a bound in quotes": (
        f'{HEAD}[parameters.width]\nlower = "0"\nupper = 10.0\n',
        ", line 3: width: found lower = '0', wanted a number; write 0 without quotes",
    ),
    "crossed bounds": (
        f"{HEAD}[parameters.width]\nlower = 10\nupper = 1\n",
        ", line 3: width: found lower = 10.0 and upper = 1.0 (crossed), wanted lower < upper",
    ),
    "no sigma": (
        f"{HEAD}[parameters.width]\nstart = 10\n",
        ", line 2: width: found no bounds and no sigma; wanted start and sigma, or lower and upper, from "
        "which they follow",
    ),
    "zero on a log scale": (
        f"{HEAD}[parameters.width]\nupper = 3\nlower = 0\nlog = true\n",
        ", line 4: width: found lower = 0.0 on a log scale, which has no place for it; wanted a positive "
        "number, or log = false",
    ),
    "a word for a flag": (
        f"{HEAD}[parameters.width]\nlower = 1\nupper = 3\nlog = 'yes'\n",
        ", line 5: width: found log = 'yes', wanted true or false",
    ),
    "a pipe": (
        f"command = ['./sim.sh', '{{width}}', '|', 'tail', '-1']\n{WIDTH}",
        ", line 1: command: found '|', which only a shell understands, and none is used; write a script with "
        "that line, or ['sh', '-c', \"'{here}/sim.sh' '{width}' | tail -1\"]",
    ),
    "a redirection": (
        f"command = ['./sim.sh', '{{width}}', '>', 'out']\n{WIDTH}",
        ", line 1: command: found '>', which only a shell understands",
    ),
    "one string for all": (
        f"command = ['./sim.sh {{width}} | tail']\n{WIDTH}",
        ", line 1: command: found {width} in the program's name, wanted it among the arguments, each of "
        "which is an element of the list",
    ),
    "a budget in quotes": (
        f"{HEAD}{WIDTH}\n[run]\nmax_evaluations = '3'\n",
        ", line 7: max_evaluations: found '3', wanted a whole number above 0; write 3 without quotes",
    ),
    "a word for a number": (
        f"{HEAD}{WIDTH}\n[run]\ntarget = 'low'\n",
        ", line 7: target: found 'low', wanted a number",
    ),
    "a negative seed": (
        f"{HEAD}{WIDTH}\n[run]\nseed = -1\n",
        ", line 7: seed: found -1, wanted a whole number of at least 0",
    ),
    "a word for a flag of the run": (
        f"{HEAD}{WIDTH}\n[run]\nevaluate_start = 'yes'\n",
        ", line 7: evaluate_start: found 'yes', wanted true or false",
    ),
    "a method": (
        f"{HEAD}{WIDTH}\n[run]\nmethod = 'cmaes'\n",
        ", line 7: method: found 'cmaes', wanted one of 'afm-nes', 'fm-nes', 'dx-nes-ic', 'xnes', 'cma-es', "
        "'cr-fm-nes'; did you mean 'cma-es'?",
    ),
    "no run to begin from": (
        f"{HEAD}{WIDTH}\n[run]\nwarm_start = 'nope.run'\n",
        ", line 7: warm_start: nope.run: found nothing there, wanted a run directory",
    ),
    "where the value is": (
        f"{HEAD}{WIDTH}\n[program]\nvalue = 'x'\n",
        ", line 7: value: found 'x', wanted such as { regex = 'CD =\\s*(\\S+)' } or { file = 'out.txt' }",
    ),
    "no TOML": (
        f"command = [./sim.sh]\n{WIDTH}",
        ", line 1: found what is not TOML (Invalid value), wanted TOML: key",
    ),
    "nothing": (
        "",
        ": found an empty file, wanted such as command = ['./simulate', '{params}']; to",
    ),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "sim.sh"
    program.write_text("#!/bin/sh\necho 1.5\n")
    program.chmod(0o755)
    return tmp_path


def refused(*words):
    """What the command says on standard error; it has to refuse."""
    command = [sys.executable, "-m", "fmnes", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=os.environ | {"COLUMNS": "200"}
    )
    assert done.returncode == 2, (words, done.stdout, done.stderr)
    return done.stderr


def test_what_a_mistake_in_a_problem_file_says(place):
    path = Path("problem.toml")
    for name, (text, said) in FILES.items():
        path.write_text(text)
        try:
            check_run(read_problem(path), path)
        except fmnes.FmnesError as error:
            assert str(error).startswith(f"problem.toml{said}"), name
        else:
            raise AssertionError(name)


#: A key that has another name here, or a mistake in it, with its line and the name that is meant.
KEYS = {
    f"{HEAD}{WIDTH}\n[run]\nrng = 1\n": (7, "'seed'"),
    f"{HEAD}{WIDTH}\n[run]\nrandom_state = 1\n": (7, "'seed'"),
    f"{HEAD}{WIDTH}\n[run]\nmaxiter = 100\n": (7, "'max_evaluations'"),
    f"{HEAD}[parameters]\nwidth = {{ lower = 0, uper = 1 }}\n": (3, "'upper'"),
    f"{HEAD}{WIDTH}uper = 1\n": (5, "'upper'"),
}


def test_a_wrong_key_is_shown_with_its_line_and_the_name_that_is_meant(place):
    path = Path("problem.toml")
    for text, (line, name) in KEYS.items():
        path.write_text(text)
        with pytest.raises(fmnes.ArgumentError) as refusal:
            read_problem(path)
        assert str(refusal.value).startswith(f"problem.toml, line {line}: "), text
        assert str(refusal.value).endswith(f"; did you mean {name}?"), text


def test_an_unknown_placeholder_is_shown_with_those_that_there_are(place):
    Path("problem.toml").write_text(f"command = ['./sim.sh', '{{q}}', '{{width}}']\n{WIDTH}")
    assert (
        "problem.toml, line 1: command: found the unknown placeholder {q}, wanted one of {params}, "
        "{results}, {here}, {width} (for a brace itself, write it twice)\n"
    ) in refused("check", "problem.toml")


def test_what_is_no_text_is_said_of_a_problem_file(place):
    Path("latin.toml").write_bytes(b"# a comment\ncommand = ['\xff']\n")
    Path("folder.toml").mkdir()
    assert "latin.toml: found a byte that is not UTF-8 in line 2, wanted" in refused("check", "latin.toml")
    said = refused("check", "folder.toml")
    assert "folder.toml: found a folder, wanted a problem file" in said and "Errno" not in said


def test_check_shows_the_seed_by_its_name(place):
    Path("problem.toml").write_text(f"{HEAD}{WIDTH}\n[run]\nseed = 3\n")
    command = [sys.executable, "-m", "fmnes", "check", "problem.toml"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    assert "seed: 3\n" in shown and "rng" not in shown
    asked = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(asked.stdout)["run"] == {"seed": 3}


#: What is typed after `fmnes minimize`, and what its message has to say.
OPTIONS = {
    ("problem.toml", "--max-evaluations", "0"): "--max-evaluations: found 0, wanted a whole number above 0\n",
    ("problem.toml", "--max-evaluations", "abc"): "'--max-evaluations': found 'abc', wanted a whole number",
    ("problem.toml", "--timeout", "ten"): "'--timeout': found 'ten', wanted a number",
    ("problem.toml", "--timeout", "0"): "--timeout: found 0.0, wanted a number above 0\n",
    ("problem.toml", "--population-size", "3"): "--population-size: found 3, wanted an even number",
    ("problem.toml", "--restarts", "-1"): "--restarts: found -1, wanted a whole number of at least 0",
    ("problem.toml", "--seed", "-1"): "--seed: found -1, wanted a whole number of at least 0",
    ("problem.toml", "--method", "cma"): "--method: found 'cma', wanted one of afm-nes",
    ("--param", "width", "--", "./sim.sh", "{width}"): "--param: found 'width', wanted name=lower..upper",
    ("--param", "width=2..1", "--", "./sim.sh"): "--param: width: found lower = 2.0 and upper = 1.0",
    (
        "--param",
        "width=0..1",
        "--",
        "./sim.sh",
        "{height}",
    ): "command: found the unknown placeholder",
    (
        "--param",
        "width=0..1",
        "--",
        "./sim.sh",
        "{width}",
        "|",
        "cat",
    ): "command: found '|', which only a",
}


def test_what_a_mistake_on_the_command_line_says(place):
    Path("problem.toml").write_text(HEAD + WIDTH)
    for words, said in OPTIONS.items():
        message = refused("minimize", *words)
        assert said in message, (words, message)
        assert not {"None", "argv", "Real", "True", "ArgumentError"} & set(re.findall(r"\w+", message)), (
            message
        )
    assert [entry.name for entry in sorted(place.iterdir())] == ["problem.toml", "sim.sh"]


#: A value of the wrong form, for the other commands.
VALUES = {
    ("watch", "a.run", "--port", "x"): "'--port': found 'x', wanted a port, from 1 to 65535",
    ("watch", "a.run", "--port", "65536"): "'--port': found '65536', wanted a port",
    ("stop", "a.run", "--wait", "-1"): "'--wait': found '-1', wanted a number of seconds, at least 0",
    ("worker", "queue", "--idle", "nan"): "'--idle': found 'nan', wanted a number of seconds, at least 0",
    ("export", "a.run", "--format", "xls"): "'--format': found 'xls', wanted one of csv, json, parquet",
    ("worker", "queue"): "worker: found neither a problem file nor --function, wanted one of them",
}


def test_what_a_mistake_in_an_option_of_the_other_commands_says(place):
    for words, said in VALUES.items():
        assert said in refused(*words), words


def test_a_pipe_may_be_given_to_a_shell(place):
    space = {"width": fmnes.Real(0.1, 1)}
    piped = fmnes.Command(["sh", "-c", "'{here}/sim.sh' '{width}' | tail -1"])
    assert fmnes.minimize(piped, space, max_evaluations=2, rng=0).fun == 1.5
