"""Problem files: what they may say, what is wrong with them, and what `fmnes check` makes of them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import fmnes
from fmnes import ArgumentError, Integer, Optimizer, Real
from fmnes.cli import app
from fmnes.cli.problem_file import PROGRAM, RUN, TOP, make_problem, parse_parameter, read_problem
from fmnes.parameters import KEYS
from tests.rows import through

ROOT = Path(__file__).parents[1]


def written(folder: Path, text: str) -> Path:
    path = folder / "problem.toml"
    path.write_text(text, encoding="utf-8")
    return path


def command_line(*arguments: str) -> int:
    """The exit status; what a user would see as an error is raised."""
    return app(list(arguments), standalone_mode=False) or 0


WHOLE = """\
command = ["/bin/echo", "{width}", "{layers}"]

[parameters.width]
lower = 0.1
upper = 10
log = true

[parameters.layers]
lower = 1
upper = 12
integer = true

[program]
success_exit_codes = [0, 3]
keep = "all"
max_kept = 7
directory = "scratch"

[run]
max_evaluations = 400
seed = 5
bounds_as = "failure"
xtol = 1e-6
ftol = 1e-7
restarts = 2
warm_start = "earlier.run"
run_dir = "results"
"""


def test_a_file_becomes_a_command_a_space_and_the_arguments_of_minimize(tmp_path: Path) -> None:
    problem = read_problem(written(tmp_path, WHOLE))
    assert problem.space.parameters == {"width": Real(0.1, 10, log=True), "layers": Integer(1, 12)}
    command = problem.command
    assert command.argv == ("/bin/echo", "{width}", "{layers}") and command.here == str(tmp_path)
    assert (command.keep, command.max_kept, command.success_exit_codes) == ("all", 7, (0, 3))
    assert command.directory == str(tmp_path / "scratch")  # beside the file, wherever we are
    assert problem.run == {
        "max_evaluations": 400,
        "rng": 5,
        "bounds_as": "failure",
        "xtol": 1e-6,
        "ftol": 1e-7,
        "restarts": 2,
        "warm_start": tmp_path / "earlier.run",
        "run_dir": tmp_path / "results",
    }


def test_a_file_is_minimised_from_python(tmp_path: Path) -> None:
    program = "BEGIN { print (log(w) - 1)^2 + (n - 4)^2 }"
    path = written(
        tmp_path,
        f"""
command = ["awk", "-v", "w={{width}}", "-v", "n={{layers}}", {json.dumps(program)}]
[parameters]
width = {{ lower = 0.1, upper = 10, log = true }}
layers = {{ lower = 1, upper = 12, integer = true }}
[run]
max_evaluations = 150
seed = 1
""".replace("{ print", "{{ print").replace("^2 }", "^2 }}"),
    )
    problem = read_problem(path)
    result = fmnes.minimize(problem.command, problem.space.parameters, **problem.run)
    assert result.x["layers"] == 4 and result.x["width"] == pytest.approx(math.e, rel=1e-2)


def test_resume_finds_the_file_again(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    assert read_problem(path).command.problem_file == str(path)


# -- what is wrong with a file ----------------------------------------------------------------------------

FILES = """\
command = ["/bin/sh", "{here}/simulate.sh"]
[parameters.width]
lower = 0.1
upper = 10
log = true
[parameters.height]
lower = 1
upper = 2
[program]
templates = ["deck.inp.in"]
value = { regex = 'CD\\s+(\\S+)' }
[run]
max_evaluations = 20
"""


def files(folder: Path, old: str = "", new: str = "") -> Path:
    """A file with a template, after one change."""
    assert old in FILES
    (folder / "simulate.sh").write_text("cat deck.inp; echo CD 1.5\n")
    (folder / "deck.inp.in").write_text("{width} {height:.3f} { braces } {1} {{model}}\n")
    return written(folder, FILES.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("lower = 0.1", "lower = 0", r"line \d: width: found lower = 0\.0 on a log scale"),
        ("lower = 0.1", "lower = 10", r"line \d: width: found lower = 10\.0 and upper = 10\.0 \(equal\)"),
        ("upper = 2", "upper = -2", r"line \d: height: found lower = 1\.0 and upper = -2\.0 \(crossed\)"),
        ("upper = 2", "upper = 2\nstart = 3", r"line 9: height: found start = 3\.0 outside of"),
        ("upper = 2\n", "", r"line 6: height: found \[1\.0, inf\] and no start and no sigma"),
        ("log = true", "log = 1.5", r"line \d: width: found log = 1\.5"),
        ("log = true", "values = [1, 2]", r"line 5: width: found the key 'values'.*choices = \["),
        ("log = true", "lgo = true", r"line 5: width: found the key 'lgo'.*did you mean 'log'\?"),
        ("log = true", "step = 0.1", r"line 5: width: found the key 'step'.*write sigma .* or multiple_of"),
        ("log = true", 'scale = "log"', r"line 5: width: found the key 'scale'.*write log = true"),
        ("log = true", "timeout = 5", r"line 5: width: found the key 'timeout'.*belongs in \[run\]"),
        ("[parameters.height]", "[parameters.width]", r"line 6: found two parameters of the name 'width'"),
        ("upper = 2", "upper = 2\nupper = 3", r"line 9: found a key for the second time, wanted it once"),
        ("max_evaluations", "max_evaluation", r"line 13: found the key 'max_evaluation'.*evaluations'\?"),
        ("templates", "template", r"line 10: found the key 'template' in \[program\].*mean 'templates'"),
        ("templates", "timeout = 5\ntemplates", r"line 10: found the key 'timeout'.*belongs in \[run\]"),
        ("[run]\n", "", r"line 12: found the key 'max_evaluations' in \[program\].*belongs in \[run\]"),
        ("[program]", "[programs]", r"line 9: found the key 'programs', wanted.*did you mean 'program'\?"),
        ("max_evaluations = 20", "seed = -1", r"line 13: seed: found -1, wanted a whole number of at least"),
        ('["/bin/sh", ', '["/bin/shh", ', r"line 1: command: found no program '/bin/shh'"),
        ("[run]", "[run", r"line 12: found what is not TOML"),
        # Of templates and values:
        ("deck.inp.in", "deck.in", r"line 10: templates: found .*deck\.in"),
        (r"CD\s+(", r"CD\s+((", r"line 11: value.*found"),
        ("regex", "regexp", r"line 11: value.*did you mean 'regex'\?"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, old: str, new: str, wanted: str) -> None:
    path = files(tmp_path, old, new)
    with pytest.raises(ArgumentError) as caught:
        read_problem(path)
    assert re.search(re.escape(str(path)) + ", " + wanted, str(caught.value)), caught.value
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{width} {height} {depth}", "depth"),  # a placeholder that no parameter has
        ("{width}", "height"),  # a parameter that no placeholder has
        (b"\x00\xff\xfe{width}{height}", r"templates: found .*deck\.inp\.in"),  # no text
        ("{width:6.2q} {height}", "width"),  # no such format
    ],
)
def test_a_template_that_does_not_fit_is_refused(tmp_path: Path, template: str | bytes, wanted: str) -> None:
    path = files(tmp_path)
    assert read_problem(path)
    deck = tmp_path / "deck.inp.in"
    deck.write_bytes(template if isinstance(template, bytes) else template.encode())
    with pytest.raises(ArgumentError, match=wanted) as caught:
        read_problem(path)
    assert str(caught.value).startswith(str(path))


def test_without_parameters_there_is_nothing_to_search(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"found no parameters, wanted .* \[parameters.width\]"):
        read_problem(written(tmp_path, 'command = ["/bin/echo"]\n'))
    for table in ("parameters = 5", "parameters = { a = 5 }", "[parameters]\na = [1, 2]"):
        with pytest.raises(ArgumentError, match="wanted a table such as"):
            read_problem(written(tmp_path, f'command = ["/bin/echo"]\n{table}\n'))


# -- parameters on the command line -----------------------------------------------------------------------


@through(
    ("text", "wanted"),
    [
        ("width=0.1..10,log", Real(0.1, 10, log=True)),
        ("width=-5..-1", Real(-5, -1)),
        ("width=1...5e1", Real(1, 5)),
        ("width=1..12,integer", Integer(1, 12)),
        ("width=2,0.5", Real(start=2, sigma=0.5)),
        ("width=2,0.5,-4,4", Real(-4, 4, start=2, sigma=0.5)),
        ("width=100,3,log", Real(start=100, sigma=3, log=True)),
        ("width=100,3,1,1000,log", Real(1, 1000, start=100, sigma=3, log=True)),
        ("width=3,1,1,12,integer", Integer(1, 12, start=3, sigma=1)),
        (" width = 2 , 0.5 , linear ", Real(start=2, sigma=0.5)),
    ],
)
def test_a_parameter_of_the_command_line(text: str, wanted: Any) -> None:
    assert parse_parameter(text) == ("width", wanted)


@through(
    "text",
    ["", "width", "=1..2", "width=", "width=1", "width=1..2,3", "width=1,2,3", "width=1..x", "width=1,2,k"],
)
def test_a_wrong_parameter_of_the_command_line(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"param: found .*, wanted name=lower\.\.upper"):
        parse_parameter(text)


def test_two_parameters_of_one_name_and_none_at_all() -> None:
    a = [parse_parameter("a=0..1"), parse_parameter("a=0..2")]
    with pytest.raises(ArgumentError, match="found two of the name 'a'"):
        make_problem(["/bin/echo"], a, {})
    with pytest.raises(ArgumentError, match="param: found none, wanted at least one, such as --param"):
        make_problem(["/bin/echo"], [], {})


# -- what is read ----------------------------------------------------------------------------------------

SIMULATION = """\
command = ["/bin/sh", "{here}/simulate.py", "{params}"]

[parameters.width]
start = 0.3
sigma = 0.1
lower = 0.01
upper = 1.0

[parameters.density]
start = 1000.0
sigma = 3.0
lower = 100.0
upper = 20000.0
log = true

[run]
max_evaluations = 400
workers = 2
timeout = 20
retries = 2
"""


def test_a_problem_file_is_read(tmp_path: Path) -> None:
    problem = read_problem(written(tmp_path, SIMULATION))
    assert problem.command.argv == ("/bin/sh", "{here}/simulate.py", "{params}")
    assert problem.space.names == ("width", "density")
    start = problem.space.start()
    assert start["x0"] == [0.3, math.log(1000)]
    assert start["sigma0"] == [0.1, math.log(3)]
    bounds = start["bounds"]
    assert bounds.lower == [0.01, math.log(100)] and bounds.upper == [1.0, math.log(20000)]
    assert problem.run == {"max_evaluations": 400, "workers": 2, "timeout": 20, "retries": 2}


def test_bounds_of_a_problem_file_are_mapped_unless_it_says_otherwise(tmp_path: Path) -> None:
    for line, inside in (("", True), ('bounds_as = "failure"\n', False)):
        problem = read_problem(written(tmp_path, SIMULATION.replace("[run]\n", f"[run]\n{line}")))
        bounds_as = {key: value for key, value in problem.run.items() if key == "bounds_as"}
        points = Optimizer(problem.space.parameters, **bounds_as, rng=1, population_size=200).ask()
        assert (len(points) == 200) == inside
        assert all(0.01 <= p["width"] <= 1 and 100 <= p["density"] <= 20000 for p in points)


# -- fmnes check ------------------------------------------------------------------------------------------


def test_check_says_what_a_file_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = files(tmp_path)
    assert command_line("check", str(path)) == 0
    shown = capsys.readouterr().out
    for word in ("/bin/sh", "width", "0.1 to 10, log", "× 3.162", "1.5", "0.25", "deck.inp.in"):
        assert word in shown
    assert "max_evaluations: 20" in shown
    assert command_line("check", str(path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True and found["program"] == "/bin/sh"
    assert found["parameters"]["width"] == {"lower": 0.1, "upper": 10.0, "log": True}
    assert found["start"] == {"width": 1.0, "height": 1.5}
    assert "deck.inp.in" in json.dumps(found["templates"]) and found["run"] == {"max_evaluations": 20}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deck.inp.in", "problem.toml", "simulate.sh"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("max_evaluations = 0", "max_evaluations: found 0"),
        ("workers = 0", "workers: found 0"),
        ('method = "fm"', "method: found 'fm'"),
        ('restarts = "often"', "restarts: found 'often'"),
        ('restart_from = "uniform"', "restart_from: found 'uniform' and not all bounds finite"),
        ("timeout = -1", "timeout: found -1"),
    ],
)
def test_check_refuses_what_minimize_would_refuse(
    tmp_path: Path, line: str, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        tmp_path,
        f'command = ["/bin/echo", "{{a}}"]\n[parameters.a]\nstart = 1\nsigma = 1\n[run]\n{line}\n',
    )
    for command in ("check", "minimize", "try"):
        with pytest.raises(ArgumentError, match=re.escape(wanted)):
            command_line(command, str(path))
    assert command_line("check", str(path), "--json") == 2
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False and wanted in found["error"]
    assert [p.name for p in tmp_path.iterdir()] == ["problem.toml"]


# -- docs/problem-files.md --------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "problem-files.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(1, len(BLOCKS) + 1))
def test_every_example_of_the_page_is_a_problem_file(block: str, tmp_path: Path) -> None:
    """With a program and the files that it names; an example of one part gets the other parts."""
    if "command = " not in block:
        block = f'command = ["solver", "{{params}}"]\n{block}'
    if "[parameters." not in block:
        block += "[parameters.width]\nlower = 0.1\nupper = 10\n"
    for name in ("ngspice", "solver", "simulate"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    names = re.findall(r"^\[parameters\.(\w+)\]", block, re.MULTILINE)
    for name in ("amp.cir.in", "deck.inp.in", "answers.txt", "materials.lib", "mesh.msh"):
        (tmp_path / name).write_text(" ".join(f"{{{n}}}" for n in names))
    (tmp_path / "tables").mkdir()
    block = re.sub(r'command = \["(\w)', r'command = ["./\1', block)  # they are not on the PATH
    path = written(tmp_path, block)
    problem = read_problem(path)
    assert problem.space.names == tuple(names)
    assert command_line("check", str(path), "--json") == 0


def test_the_page_has_every_key() -> None:
    keys = {*TOP, *KEYS, *PROGRAM, *RUN} - {"parameters", "constraints", "program", "run"}
    assert not [key for key in keys if f"`{key}`" not in PAGE and f"`{key} =" not in PAGE]
    examples = "".join(BLOCKS)
    options = {"method", "population_size", "ftol", "bounds_as", "restart_from", "second_look", "surrogate"}
    options |= {"evaluate_start", "warm_start", "outputs", "noise"}
    assert not [key for key in keys - options if not re.search(rf"^{key} =", examples, re.MULTILINE)]
