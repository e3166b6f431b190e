"""What a program is given: arguments, decks and standard input from templates, and files of the user's."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import Command
from fmnes.evaluation.programs import inputs as inputs_module
from fmnes.evaluation.programs.command import check_runnable
from fmnes.evaluation.programs.inputs import SomeNumber, parse_argument, parse_file
from fmnes.outcome import Outcome
from tests.batches import CommandEvaluator, task
from tests.rows import through

pytestmark = pytest.mark.usefixtures("own_directory")
POINT = {"width": 0.1 + 0.2, "layers": 7, "height": 1e-5}


def deck(text: str | bytes, name: str = "deck.inp.in") -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def evaluate(command: Command, point: dict[str, Any]) -> Outcome:
    check_runnable(command, names=point)
    evaluator = CommandEvaluator(command, named=lambda _: point)
    try:
        ((_, outcome),) = evaluator([task(np.zeros(len(point)))])
        return outcome
    finally:
        evaluator.close()


def seen_by_program(point: dict[str, Any] = POINT, what: str = "deck.inp", **settings: Any) -> bytes:
    """What a program finds under a name, byte for byte."""
    place = Path("../evaluations").absolute()
    settings = {"argv": ["/bin/sh", "-c", "echo 1"], "directory": place, "keep": "all", **settings}
    outcome = evaluate(Command(**settings), point)
    assert outcome.value == 1, outcome
    return max(place.glob("g*"), key=lambda path: path.stat().st_mtime_ns).joinpath(what).read_bytes()


# The language


@through(
    ("text", "filled"),
    [
        ("", ""),
        ("w = {width}", "w = 0.30000000000000004"),
        ("{layers}{height}", "71e-05"),
        ("|{width:12.5e}|", "| 3.00000e-01|"),
        ("|{layers:04d}|{layers:>6}|{layers:8.2f}|", "|0007|     7|    7.00|"),
        ("{width:+.3g}", "+0.3"),
        ("{{width}}", "{width}"),
        ("{{rval}} {{rval:x}} {{width:12.5e}}", "{rval} {rval:x} {width:12.5e}"),
        ("{{{layers}}}", "{7}"),
        ("{{{layers:3d}}}", "{  7}"),
        ("Line(1) = {1, 2};", "Line(1) = {1, 2};"),
        ("Point(1) = {{layers}, 0, 0};", "Point(1) = {7, 0, 0};"),
        ("Point(1) = {0, {layers}};", "Point(1) = {0, 7};"),
        ("Physical Curve(3) = { {layers} };", "Physical Curve(3) = { 7 };"),
        ('{"a": {"width": {layers}}, "b": {}}', '{"a": {"width": 7}, "b": {}}'),
        ("{{ }} {{}} {} { width } {{ width }} {1} {-x} {a b} {a.b} {a*2} {'rval'}", None),
        ("R1 a b {rval*2}\n.param x={1k}", None),
        ("{\nwidth\n}", None),
        ("{width:\n}", None),
        (r"100 % \n \\ %s %(width)s $width ${ width } \{ \} {", None),
        ("}{ }}{{ }}}{{{", None),
        ("tab\tand unicode: µ Ω 日本 \ufeff", None),
    ],
)
def test_a_deck_keeps_its_own_braces(text, filled):
    known = {**POINT, "here": "/h", "params": "/p", "results": "/r"}
    assert parse_file(text, "deck").fill(known) == (text if filled is None else filled)


def test_names_of_every_alphabet_are_placeholders():
    assert parse_file("{α} {größe_2:.1f}", "deck").fill({"α": 1, "größe_2": 2.0}) == "1 2.0"


def test_an_argument_has_all_other_braces_twice():
    def fill(text: str) -> str:
        return parse_argument(text).fill({**POINT, "b c": 2.5, "a:b": 3.5, "a": 4.5})

    assert fill("--w={width:.2f}") == "--w=0.30"
    assert fill("{{width}} {{1, 2}} {{{layers}}}") == "{width} {1, 2} {7}"
    assert fill("{b c} {b c:.2f} {a:b} {a:.2f}") == "2.5 2.50 3.5 4.50"


def test_values_are_put_in_literally():
    known = {"here": "/a {width} \\1 %s", "width": 1.0}
    assert parse_file("{here} {width}", "deck").fill(known) == "/a {width} \\1 %s 1.0"


@through("form", ["s", "d", "12.5q", "99999", ".99999f", "1000000000000d", "\x01"])
def test_a_format_that_does_not_fit(form):
    for text in (f"{{width:{form}}}", f"a\nb {{width:{form}}}"):
        with pytest.raises(
            fmnes.ArgumentError, match=r"does not fit.*wanted such as \{width:12.5e\}"
        ) as told:
            parse_file(text, "deck").fill({"width": 1.5})
        assert str(told.value).startswith(f"deck, line {1 + text.count(chr(10))}: found {{width:")
    with pytest.raises(fmnes.ArgumentError, match=r"^argv: found"):
        parse_argument(f"{{width:{form}}}").fill({"width": 1.5})


def test_whole_numbers_have_their_own_formats():
    assert parse_file("{n:d}|{n:x}|{n:5.1f}", "deck").fill({"n": 30}) == "30|1e| 30.0"
    assert parse_file("{n:d}|{n:5.1f}", "deck").fill({"n": SomeNumber()}) == "1|  1.5"  # nobody knows yet
    with pytest.raises(fmnes.ArgumentError, match=r"\{n:s\}, whose format does not fit a number"):
        parse_file("{n:s}", "deck").fill({"n": SomeNumber()})
    with pytest.raises(fmnes.ArgumentError, match=r"\{n:5d\}"):
        parse_file("{n:s}", "deck").fill({"n": 3})


# Decks and standard input


def test_a_deck_is_made_from_its_template():
    name = deck("* {{ }} {1, 2}\r\nw={width:8.4f}\r\nn={layers}\r\n\r\nh={height}")
    made = seen_by_program(templates=[name])
    assert made == b"* {{ }} {1, 2}\r\nw=  0.3000\r\nn=7\r\n\r\nh=1e-05"


def test_a_template_without_the_ending_and_one_below():
    one, two = deck("{width} {layers}", "deck.inp"), deck("{height}", "sub/folder/other.dat.in")
    assert seen_by_program(templates=[one, two]) == b"0.30000000000000004 7"
    assert seen_by_program(templates=[one, Path(two)], what="other.dat") == b"1e-05"
    assert seen_by_program(templates=[one, os.path.abspath(two)], what="other.dat") == b"1e-05"


def test_paths_start_where_the_command_was_made(monkeypatch):
    command = Command(
        ["/bin/sh", "-c", "cat deck.inp lib model/part"],
        templates=[deck("a {width} {layers} {height}\n")],
        copy=[deck("lib\n", "lib")],
        link=[str(Path(deck("2.5\n", "model/part")).parent)],
    )
    monkeypatch.chdir("/")
    assert evaluate(command, POINT).value == 2.5
    with pytest.raises(fmnes.ArgumentError, match=r"templates: found no file 'deck.inp.in' in /, wanted"):
        check_runnable(replace(command, here="/"))


def test_a_template_for_standard_input():
    name = deck("LOAD {here}/foil.dat\nALFA {width:.3f}\n{layers} {height}\n\nQUIT\n", "xfoil.in")
    command = ["/bin/sh", "-c", "cat > got; echo 1"]
    here = os.getcwd()
    got = seen_by_program(argv=command, stdin=name, what="got")
    assert got.decode() == f"LOAD {here}/foil.dat\nALFA 0.300\n7 1e-05\n\nQUIT\n"
    assert seen_by_program(argv=command, stdin=name, what="stdin.txt") == got
    said = json.loads(seen_by_program(argv=command, what="got"))  # without one it is the JSON
    assert said["x"] == list(POINT.values()) and said["params"] == POINT
    assert seen_by_program(argv=command, stdin=name, what="params.json")


def test_a_deck_may_name_the_files_of_an_evaluation():
    name = deck("{results}")
    outcome = evaluate(
        Command(["/bin/sh", "-c", 'echo 4.5 > "$(cat deck.inp)"; echo 9', "{params}"], templates=[name]),
        POINT,
    )
    assert outcome.value == 4.5


def test_a_script_from_a_template_may_be_run():
    name = deck("#!/bin/sh\necho {width} {layers} {height} > got\n", "run.sh.in")
    Path(name).chmod(0o755)
    got = seen_by_program(argv=["/bin/sh", "-c", "./run.sh; echo 1"], templates=[name], what="got")
    assert got == b"0.30000000000000004 7 1e-05\n"


def test_templates_are_read_once():
    command = Command(["/bin/cat", "deck.inp"], templates=[deck("{width}{layers}")])
    evaluator = CommandEvaluator(command, named=lambda _: {"width": 1, "layers": 2})
    Path("deck.inp.in").unlink()
    assert [outcome.value for _, outcome in evaluator([task(np.zeros(2))])] == [12]
    evaluator.close()


def test_points_without_names():
    command = Command(["/bin/cat", "deck.inp"], templates=[deck("{x0}\n{x1:.1f}\n")])
    check_runnable(command, 2)
    assert command([1.0, 2.25]) == 2.2
    with pytest.raises(
        fmnes.ArgumentError, match=r"deck.inp.in, line 2: found \{x1:.1f\}, but points have 1"
    ):
        check_runnable(command, 1)


def test_a_command_is_plain_data():
    command = Command(
        ["a"],
        templates=[Path("b.in")],
        stdin=Path("c"),
        copy=[Path("d")],
        link=["e"],
        value={"file": Path("f"), "regex": "g"},
        outputs={"mass": {"regex": "h"}},
        fail_if="i",
        memory_limit="2 GB",
        problem_file=Path("p.toml"),
    )
    kept = json.loads(json.dumps(asdict(command)))
    assert kept["memory_limit"] == 2e9 and kept["value"] == {"file": "f", "regex": "g"}
    assert kept["problem_file"] == os.path.abspath("p.toml") and kept["fail_if"] == ["i"]
    kept.pop("_", None)
    assert Command(**kept) == command and hash(Command(**kept)) == hash(command)
    assert " at 0x" not in repr(command)


# Placeholders and parameters that do not fit


@through(
    ("text", "message"),
    [
        (
            "a\n\nR1 {rval}",
            r"deck.inp.in, line 3: found the unknown placeholder \{rval\}.*write \{\{rval\}\}",
        ),
        ("{widht}", r"line 1: found the unknown placeholder \{widht\}; did you mean 'width'\?"),
        ("{width:s}", r"line 1: found \{width:s\}, whose format does not fit a number"),
        ("{x0}", r"found the unknown placeholder \{x0\}"),
        (
            "{width} {layers}",
            "parameters: found 'height' in no placeholder of argv, deck.inp.in, wanted {height}",
        ),
        ("nothing", "parameters: found 'width' in no placeholder"),
        ("{ width }", "parameters: found 'width' in no placeholder"),
        ("{{width}} {layers} {height}", "parameters: found 'width' in no placeholder"),
    ],
)
@through("argument", ["templates", "stdin"])
def test_a_deck_that_does_not_fit_the_parameters(text, message, argument):
    name = deck(text)
    command = Command(["/bin/echo", "1"], **{argument: [name] if argument == "templates" else name})
    with pytest.raises(fmnes.ArgumentError, match=message):
        check_runnable(command, names=list(POINT))
    with pytest.raises(fmnes.ArgumentError):
        fmnes.minimize(replace(command, names=list(POINT)), [1.0, 1.0, 1.0], 0.5, max_evaluations=2)


def test_whole_numbers_are_known_where_a_point_is():
    command = Command(["/bin/echo", "{layers:d}", "{width}", "{height}"])
    check_runnable(command, names=list(POINT))
    check_runnable(command, names=POINT)
    with pytest.raises(fmnes.ArgumentError, match=r"argv: found \{layers:d\}, whose format does not fit 7.5"):
        check_runnable(command, names={**POINT, "layers": 7.5})
    with pytest.raises(fmnes.ArgumentError, match=r"argv: found \{layers:s\}"):
        Command(["/bin/echo", "{layers:s}"], names=["layers"])


def test_all_parameters_at_once_need_no_placeholder():
    check_runnable(Command(["/bin/cat", "{params}"], templates=[deck("{width}")]), names=list(POINT))
    check_runnable(Command(["/bin/cat"], templates=[deck("{width} {params}")]), names=list(POINT))
    check_runnable(Command(["/bin/cat"]), names=list(POINT))  # the JSON on standard input
    with pytest.raises(fmnes.ArgumentError, match=r"'layers' in no placeholder of argv, wanted \{layers\}"):
        check_runnable(Command(["/bin/cat", "{width}", "{height}"]), names=list(POINT))


@pytest.mark.parametrize("name", ["a b", "wing.span", "2nd", "a-b"])
def test_a_name_that_is_no_identifier(name):
    """In a deck its braces are the deck's own; in an argument, or as {params}, it is found."""
    command = Command(["/bin/echo", "1"], templates=[deck(f"{{{name}}} {{width}}")])
    with pytest.raises(fmnes.ArgumentError) as told:
        check_runnable(command, names=["width", name])
    assert f"found {name!r} in no placeholder" in str(told.value)
    assert "wanted a name of letters, digits and _, or {params}" in str(told.value)
    check_runnable(Command(["/bin/echo", f"{{{name}}}"]), names=[name])
    check_runnable(replace(command, argv=["/bin/echo", "{params}"]), names=["width", name])


def test_a_name_that_is_taken():
    for name in ("here", "params", "results"):
        with pytest.raises(fmnes.ArgumentError, match=f"parameters: found the name '{name}', which is taken"):
            check_runnable(Command(["/bin/echo", "1"]), names=["a", name])


# Templates that are none


def test_a_template_that_is_none(monkeypatch):
    os.mkdir("folder.in")
    os.mkfifo("pipe.in")
    deck(b"a\0b", "binary.in")
    deck("größe {width}".encode("latin-1"), "latin.in")
    deck(b"1" * 100, "large.in")
    os.symlink("nowhere", "dangling.in")
    monkeypatch.setattr(inputs_module, "MAX_TEMPLATE", 99)
    for name, message in {
        "missing.in": "found no file 'missing.in' in ",
        "dangling.in": "found no file 'dangling.in' in ",
        "binary.in/x.in": "found no file 'binary.in/x.in'",
        "folder.in": "found 'folder.in', which cannot be read: not a plain file",
        "pipe.in": "found 'pipe.in', which cannot be read: not a plain file",
        "binary.in": "found 'binary.in', a binary file",
        "latin.in": "found 'latin.in', which is not UTF-8 at byte 2",
        "large.in": "found 'large.in' of more than 99 bytes",
    }.items():
        for argument, given in (("templates", [name]), ("stdin", name)):
            command = Command(["/bin/echo", "1"], **{argument: given})
            for attempt in (check_runnable, lambda c: c([0.0]), CommandEvaluator):
                with pytest.raises(fmnes.ArgumentError, match=re.escape(f"{argument}: {message}")):
                    attempt(command)
    assert not os.listdir("../temporary")


@through(
    ("settings", "message"),
    [
        ({"templates": ["a/deck.in", "b/deck.in"]}, "templates: found 'b/deck.in' beside 'a/deck.in'"),
        ({"templates": ["deck.in"], "copy": ["x/deck"]}, "copy: found 'x/deck' beside 'deck.in'"),
        ({"copy": ["a"], "link": ["b/a/"]}, "link: found 'b/a/' beside 'a'"),
        ({"templates": ["params.json.in"]}, "params.json is taken"),
        ({"copy": ["stdout.txt"]}, "stdout.txt is taken"),
        ({"link": ["x/results.txt"]}, "results.txt is taken"),
        ({"templates": [".in"]}, "templates: found '.in', wanted a file with a name"),
        ({"copy": ["."]}, "copy: found '.', wanted a file"),
        ({"copy": [".."]}, "copy: found '..', wanted a file"),
        ({"link": ["/"]}, "link: found '/', wanted a file"),
        ({"templates": "deck.in"}, r"templates: found one string, wanted a list such as \['deck.in'\]"),
        ({"copy": [""]}, "copy: found '', wanted text"),
        ({"copy": [1]}, "copy: found"),
        ({"stdin": 3}, "stdin: found 3, wanted a path"),
        ({"link": ["out"], "value": {"file": "out/f.txt"}}, "link: found 'out'.*wanted copy="),
        ({"link": ["m"], "outputs": {"a": {"file": "m"}}}, "link: found 'm'.*wanted copy="),
    ],
)
def test_files_that_cannot_be_meant(settings, message):
    with pytest.raises(fmnes.ArgumentError, match=message):
        Command(["/bin/echo", "1"], **settings)


# Support files


def test_copies_and_links(tmp_path):
    deck("one", "models/one.lib")
    deck("two", "models/deep/two.lib")
    Path("models/deep/two.lib").chmod(0o640)
    os.symlink("two.lib", "models/deep/alias")
    deck("mesh", "mesh.msh")
    script = """
ls -l mesh.msh models | cat > listing
cat models/one.lib models/deep/two.lib models/deep/alias mesh.msh > got
echo changed > models/one.lib
echo 1
"""
    settings: dict[str, Any] = {"argv": ["/bin/sh", "-c", script], "copy": ["models/"], "link": ["mesh.msh"]}
    assert seen_by_program(**settings, what="got") == b"onetwotwomesh"
    assert (
        f"mesh.msh -> {os.path.abspath('mesh.msh')}" in seen_by_program(**settings, what="listing").decode()
    )
    assert Path("models/one.lib").read_text() == "one"  # theirs is untouched
    (made, *_) = Path("../evaluations").glob("g*/models/deep/two.lib")
    assert stat.S_IMODE(made.stat().st_mode) == 0o640
    evaluate(Command(settings["argv"], copy=["models"], link=["mesh.msh"], keep="none"), POINT)
    assert Path("mesh.msh").read_text() == "mesh" and Path("models/deep/alias").is_symlink()


def test_support_files_that_are_not_there():
    os.mkfifo("pipe")
    for argument in ("copy", "link"):
        for name, message in (("gone", "No such file"), ("pipe", "wanted a plain file or a folder")):
            with pytest.raises(fmnes.ArgumentError, match=f"{argument}: found .*{name}.*{message}"):
                check_runnable(Command(["/bin/echo", "1"], **{argument: [name]}))


def test_a_support_file_that_disappears_loses_the_evaluation():
    """The machine failed, not the point; what could not be given to the program is not run without it."""
    deck("x", "lib")
    deck("x", "folder/file")
    for name in ("lib", "folder"):
        evaluator = CommandEvaluator(Command(["/bin/echo", "1"], copy=[name]))
        os.rename(name, "elsewhere")
        ((_, outcome),) = evaluator([task(np.zeros(1))])
        evaluator.close()
        os.rename("elsewhere", name)
        path = os.path.abspath(name)
        assert outcome.reason == f"could not start the program: copy of {path!r}: No such file or directory"
        assert outcome.status == "lost" and not os.listdir("../temporary")


def test_a_folder_is_not_copied_into_itself():
    os.makedirs("case/work")
    with pytest.raises(fmnes.ArgumentError, match=r"copy: found the folder .*case', in which the"):
        check_runnable(Command(["/bin/echo", "1"], copy=["case"], directory="case/work"))
    with pytest.raises(fmnes.ArgumentError, match="in which the evaluations"):
        check_runnable(Command(["/bin/echo", "1"], copy=["../temporary"]))


def test_an_old_result_that_was_copied_is_not_the_answer():
    deck("12.5\n", "case/out.txt")
    deck("3", "mass.txt")
    settings: dict[str, Any] = {"copy": ["case", "mass.txt"], "value": {"file": "case/out.txt"}}
    outcome = evaluate(Command(["/bin/echo", "done"], **settings), POINT)
    assert outcome.reason == "did not write 'case/out.txt': it is still the one copied"
    writes = Command(["/bin/sh", "-c", "echo 7.5 > case/out.txt"], **settings)
    assert evaluate(writes, POINT).value == 7.5
    same = replace(writes, argv=["/bin/sh", "-c", "echo 12.5 > case/out.txt"])
    assert evaluate(same, POINT).value == 12.5  # the same text, but written
    both = replace(writes, outputs={"mass": {"file": "mass.txt"}})
    assert evaluate(both, POINT).outputs == {"mass": None}


def test_a_whole_simulation_without_a_wrapper():
    """A deck from a template, a library beside it, the value from its report: no script of the user's."""
    solver = deck(
        """
import re, sys
deck = dict(re.findall(r"(\\w+) = (\\S+)", open(sys.argv[1]).read()))
scale = float(open("scale.lib").read())
w, n = float(deck["width"]), int(deck["layers"])
print("solving {1, 2} ...")
print(f" TOTAL = {scale * ((w - 2) ** 2 + (n - 5) ** 2 + 1):.10E}".replace("E", "D"))
print("mass:", w * n)
""",
        "solver.py",
    )
    command = Command(
        [sys.executable, "-ISc", f"exec(open({os.path.abspath(solver)!r}).read())", "deck.inp"],
        templates=[deck("{1, 2}\nwidth = {width:.12e}\nlayers = {layers:d}\n")],
        copy=[deck("10", "scale.lib")],
        value={"regex": r"TOTAL =\s*(\S+)"},
        outputs={"mass": {"regex": r"^mass: (.*)$"}},
    )
    assert command({"width": 2.5, "layers": 4}) == 22.5
    outcome = evaluate(command, {"width": 2.5, "layers": 4})
    assert outcome.outputs == {"mass": 10.0}


def test_a_run_directory_remembers_the_templates(tmp_path, monkeypatch):
    """A resume fills them as they are then; one that is gone is an error before anything is run."""
    command = Command(
        ["/bin/sh", "-c", 'echo "f = $(cat deck.inp)"'],
        names=["a", "b"],
        templates=[deck("{a:.6f} {b:.6f}")],
        value={"regex": r"f = (\S+)"},
        outputs={"b": {"regex": r"(\S+)$"}},
        fail_if=["DIVERGED"],
        success_exit_codes=[0, -8],
        memory_limit="1 GB",
        max_kept=5,
    )
    run_dir = tmp_path / "run"
    fmnes.minimize(command, [1.0, 1.0], 0.5, rng=1, max_evaluations=4, run_dir=run_dir)
    monkeypatch.chdir("/")
    assert fmnes.resume(run_dir, max_evaluations=8).nfev == 8
    template = Path(str(command.here), "deck.inp.in")
    template.write_text("DIVERGED {a} {b}")
    result = fmnes.resume(run_dir, max_evaluations=12)
    assert [(failure.reason, failure.count) for failure in result.failures] == [("DIVERGED", 4)]
    template.unlink()
    with pytest.raises(fmnes.ArgumentError, match=r"templates: found no file 'deck.inp.in'"):
        fmnes.resume(run_dir, max_evaluations=16)
