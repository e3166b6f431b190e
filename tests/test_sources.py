"""What a program leaves: the value and further outputs, wherever they stand, and what counts as failed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import Command
from fmnes.evaluation.programs import answer, process
from fmnes.evaluation.programs.answer import read_number
from fmnes.evaluation.programs.command import ONE_THREAD, check_runnable, environment_of, read_environment
from fmnes.evaluation.programs.runner import run_once
from fmnes.outcome import Outcome
from tests.batches import task
from tests.rows import through

pytestmark = pytest.mark.usefixtures("own_directory")


def run(command: Command) -> Outcome:
    return run_once(command, task([2.0]))


def prints(text: str | bytes, **settings: Any) -> Command:
    """A program that prints just this."""
    Path("text").write_bytes(text if isinstance(text, bytes) else text.encode())
    return Command(["/bin/cat", "{here}/text"], keep="none", **settings)


def writes(text: str | bytes, name: str = "out.txt", **settings: Any) -> Command:
    """A program that writes just this to a file, and prints something else."""
    Path("text").write_bytes(text if isinstance(text, bytes) else text.encode())
    argv = ["/bin/sh", "-c", 'mkdir -p "$(dirname "$2")"; cp "$1" "$2"; echo 99', "sh", "{here}/text", name]
    return Command(argv, keep="none", **settings)


def python(code: str, **settings: Any) -> Command:
    code = code.replace("{", "{{").replace("}", "}}")
    return Command([sys.executable, "-I", "-S", "-c", code], keep="none", **settings)


REPORT = """
 iteration 1: CD =  0.0200
 iteration 2: CD =  1.25D-02    CL = 0.5
 mass  12.5
 elapsed 3.1 s
"""


# By a regular expression


@through(
    ("regex", "value"),
    [
        (r"CD =\s*(\S+)", 0.0125),  # the last match
        (r"(\d+\.\d+) s", 3.1),
        (r"12\.5", 12.5),  # without a group: all of it
        (r"^ mass\s+(.*)$", 12.5),  # a line's beginning and end
        (r"(?P<any>\d+): CD", 2.0),
        (r"CL = (\S+)\n mass  (\S+)", 0.5),  # over several lines; the first group
    ],
)
def test_a_value_by_a_regular_expression(regex, value):
    assert run(prints(REPORT, value={"regex": regex})) == Outcome("value", value)
    assert run(writes(REPORT, value={"file": "out.txt", "regex": regex})) == Outcome("value", value)
    assert (
        run(prints(REPORT.replace("\n", "\r\n"), value={"regex": regex.replace(r"\n", r"\r\n")})).value
        == value
    )


@through(
    ("text", "number"),
    [
        ("1.5D+03", 1500.0),
        ("-1.5d-3", -0.0015),
        ("0.123-104", 0.123e-104),
        ("-.5+100", -0.5e100),
        (" +7. ", 7.0),
        ("1e5", 1e5),
        ("-inf", -np.inf),
        ("1-2", None),
        ("5-100", None),
        ("*******", None),
        ("0x10", None),
        ("1_0", None),
        ("1,5", None),
        ("1.5 m", None),
        ("", None),
    ],
)
def test_numbers_as_fortran_writes_them(text, number):
    assert read_number(text) == number


@through(
    ("text", "reason"),
    [
        (
            "VISCAL: Convergence failed\n \x1b[2Jlast words\n\n",
            "the regular expression 'CD =\\s*(\\S+)' found nothing in the output; "
            "its last line: '?[2Jlast words'",
        ),
        ("", "the regular expression 'CD =\\s*(\\S+)' found nothing in the output; it is empty"),
        ("CD = *******", "found no number in the output by 'CD =\\s*(\\S+)': '*******'"),
        ("CD = 0.5,", "found no number in the output by 'CD =\\s*(\\S+)': '0.5,'"),
        ("CD = NaN", "returned NaN"),
        ("CD = -Infinity", "returned -inf"),
    ],
)
def test_a_regular_expression_without_a_number(text, reason):
    outcome = run(prints(text, value={"regex": r"CD =\s*(\S+)"}))
    assert (outcome.status, outcome.reason) == ("infeasible", reason)
    assert outcome.fault == ("" if reason.startswith("returned") else "garbled output")
    assert outcome.detail == text.strip().replace("\x1b", "?")
    wrote = run(writes(text, value={"file": "out.txt", "regex": r"CD =\s*(\S+)"}))
    assert wrote.reason == reason.replace("the output", "out.txt")
    if "found" in reason and text:
        assert wrote.detail == f"99\nout.txt ends with:\n{outcome.detail}"


def test_both_outputs_are_told_where_no_number_was_found():
    outcome = run(
        python("import sys; print('end of run'); print('a warning', file=sys.stderr)", value={"regex": "CD"})
    )
    assert outcome.detail == "end of run\na warning"


def test_a_group_that_took_no_part():
    outcome = run(prints("CD none", value={"regex": "CD (?:none|=(.*))"}))
    assert (
        outcome.reason == "the group of the regular expression 'CD (?:none|=(.*))' found nothing in 'CD none'"
    )


def test_a_value_far_above_the_end_of_the_output():
    """More than what is kept in memory; the number stands at its very beginning."""
    text = "CD = 1.5\n" + "y" * 50 + "\n" + "x\n" * process.TAIL
    assert run(prints(text, value={"regex": r"CD = (\S+)"})).value == 1.5
    assert run(writes(text, value={"file": "out.txt", "regex": r"CD = (\S+)"})).value == 1.5


def test_a_value_in_more_output_than_goes_to_disk(monkeypatch):
    """The last match may be in what was left out, so only the end counts; half a line is none of it."""
    monkeypatch.setattr(process, "OUTPUT_LIMIT", 100_000)
    found = {"regex": r"D = (\S+)"}
    many = "CD = 1.5\n" * 30_000
    assert run(prints(many + "CD = 2.5\n", value=found)).value == 2.5
    outcome = run(prints("CD = 1.5\n" + "x\n" * 100_000, value=found))
    assert outcome.reason.startswith(
        "the regular expression 'D = (\\S+)' found nothing in the last 65536 bytes of"
    )
    half = "9" + "0" * process.TAIL
    assert run(prints("x\n" * 100_000 + half, value={"regex": r"\d+"})).fault == "garbled output"


def test_a_file_larger_than_what_is_read(monkeypatch):
    monkeypatch.setattr(answer, "MAX_FILE", 1000)
    by_regex = {"file": "out.txt", "regex": r"v = (\S+)"}
    assert run(writes("v = 1\n" * 1000 + "v = 2\n", value=by_regex)).value == 2
    outcome = run(writes("v = 1\n" + "x\n" * 1000, value=by_regex))
    found_nothing = "the regular expression 'v = (\\S+)' found nothing in the last 1000 bytes of out.txt"
    assert outcome.reason == f"{found_nothing}; its last line: 'x'"
    by_path = {"file": "out.txt", "json": "a"}
    assert run(writes(json.dumps({"a": 1, "b": "x" * 2000}), value=by_path)).reason == (
        "out.txt has more than 1000 bytes, too much for JSON"
    )


def test_the_error_output_is_a_file_too():
    assert (
        run(
            python(
                "import sys; print('v = 3', file=sys.stderr)", value={"file": "stderr.txt", "regex": "= (.*)"}
            )
        ).value
        == 3
    )


# By a JSON path


DATA = {
    "drag": {"total": [1.5, {"cd": 2}], "a b": None},
    "ok": True,
    "n": 3,
    "text": "4.5",
    "big": 10**400,
    "list": [],
}


@pytest.mark.parametrize(
    ("path", "value"),
    [("drag.total[0]", 1.5), ("drag.total[1].cd", 2.0), ("drag.total[-1].cd", 2.0), ("n", 3.0)],
)
def test_a_value_by_a_json_path(path, value):
    source = {"file": "results/out.json", "json": path}
    assert run(writes(json.dumps(DATA), "results/out.json", value=source)) == Outcome("value", value)


def test_a_json_path_from_the_top_of_a_list():
    assert run(writes("[[1, 2], [3, 4.5]]", value={"file": "out.txt", "json": "[1][1]"})).value == 4.5


@through(
    ("path", "reason"),
    [
        ("drag.lift", "out.txt has no 'drag.lift'; instead of 'lift' there is {total, a b}"),
        ("drag.total[2]", "out.txt has no 'drag.total[2]'; instead of 2 there is a list of 2"),
        ("drag.total.x", "out.txt has no 'drag.total.x'; instead of 'x' there is a list of 2"),
        ("drag[0]", "out.txt has no 'drag[0]'; instead of 0 there is {total, a b}"),
        ("n.x", "out.txt has no 'n.x'; instead of 'x' there is 3"),
        ("list[-1]", "out.txt has no 'list[-1]'; instead of -1 there is a list of 0"),
        ("drag.a b", "found no number in out.txt at 'drag.a b': None"),
        ("drag", "found no number in out.txt at 'drag': {"),
        ("ok", "found no number in out.txt at 'ok': True"),
        ("big", "returned inf"),
    ],
)
def test_a_json_path_without_a_number(path, reason):
    outcome = run(writes(json.dumps(DATA), value={"file": "out.txt", "json": path}))
    assert outcome.status == "infeasible" and outcome.reason.startswith(reason)


def test_a_file_that_is_no_json():
    for text in ("{'a': 1}", "", "[" * 100_000, '{"a": 1', "\x00"):
        outcome = run(writes(text, value={"file": "out.txt", "json": "a"}))
        assert outcome.status == "infeasible" and outcome.reason.startswith("out.txt is no JSON (")
        assert len(outcome.reason) < 400


# A file, and one that is none


def test_the_last_line_of_a_file():
    source = {"file": "out.txt"}
    assert run(writes("# t v\n1 2\n2.5\n\n", value=source)).value == 2.5
    assert run(writes('{"f": 3.5}', value=source)).value == 3.5
    assert run(writes("FAIL no mesh", value=source)).reason == "no mesh"
    assert run(writes("1 2\n", value=source)).reason == "out.txt: wrote no number; last line: '1 2'"
    assert run(writes("", value=source)).reason == "out.txt: wrote no number; nothing at all"


@pytest.mark.parametrize("more", [{}, {"regex": "(.*)"}, {"json": "a"}])
def test_a_file_that_is_missing_or_no_plain_file(more):
    source = {"file": "out.txt", **more}
    outcome = run(prints("some words\n", value=source))
    assert (outcome.status, outcome.reason, outcome.fault) == (
        "infeasible",
        "wrote no file 'out.txt'",
        "garbled output",
    )
    assert outcome.detail == "some words"
    for script in ("mkfifo out.txt", "ln -s /etc/hostname out.txt", "mkdir out.txt"):
        outcome = run(Command(["/bin/sh", "-c", script], keep="none", value=source))
        assert outcome.reason.endswith("out.txt is no plain file")
    nested = {**source, "file": "a/out.txt"}
    assert run(prints("x", value=nested)).reason == "wrote no file 'a/out.txt'"


@through(
    ("source", "message"),
    [
        ({"regex": "CD = ("}, r"found 'CD = \(', which is no regular expression: missing \)"),
        ({"regex": "(?<!a*)b"}, "which is no regular expression"),
        ({"regex": "a{99999999999999}"}, "which is no regular expression"),
        ({"regex": ""}, "found regex = ''"),
        ({"regex": 3}, "found regex = 3"),
        ({}, r"found \{\}, wanted such as \{'regex'"),
        ("out.txt", "found 'out.txt', wanted such as"),
        ({"regexp": "a"}, "found the key 'regexp', wanted file, regex, json; did you mean 'regex'"),
        ({"json": "a"}, r"found json without file, wanted such as .*\(the output is the file stdout.txt\)"),
        ({"file": "a", "json": "a", "regex": "b"}, "found regex and json together"),
        ({"file": "/tmp/out"}, "found the file '/tmp/out', wanted one in the evaluation's directory"),
        ({"file": "../out"}, "wanted one in the evaluation's directory"),
        ({"file": "."}, "wanted one in the evaluation's directory"),
        ({"file": "a\0b"}, "wanted a path"),
        ({"file": "a", "json": "a..b"}, "found the JSON path 'a..b', unclear from '..b' on"),
        ({"file": "a", "json": "a[x]"}, r"unclear from '\[x\]' on"),
        ({"file": "a", "json": "a[0]b"}, "unclear from 'b' on"),
        ({"file": "a", "json": "a."}, "unclear from '.' on"),
        ({"file": "a", "json": "a[0"}, r"unclear from '\[0' on"),
    ],
)
def test_a_source_that_cannot_be_meant(source, message):
    with pytest.raises(fmnes.ArgumentError, match=f"^value(, file)?: .*{message}"):
        Command(["/bin/echo", "1"], value=source)
    with pytest.raises(fmnes.ArgumentError, match=f"^outputs, mass(, file)?: .*{message}"):
        Command(["/bin/echo", "1"], outputs={"mass": source})


@pytest.mark.parametrize(
    "outputs", [3, "mass", [("mass", {"regex": "a"})], {"": {"regex": "a"}}, {1: {"regex": "a"}}]
)
def test_outputs_that_cannot_be_meant(outputs):
    with pytest.raises(fmnes.ArgumentError, match=r"^outputs: found"):
        Command(["/bin/echo", "1"], outputs=outputs)


# Further outputs


def test_further_outputs_beside_the_value():
    """What is not found is None: the evaluation counts all the same."""
    Path("text").write_text(REPORT + "status: converged\x1b[1m\nlast nan\n")
    outputs = {
        "mass": {"regex": r"mass\s+(\S+)"},
        "status": {"regex": "status: (.*)"},
        "missing": {"regex": "no such thing (.*)"},
        "lift": {"file": "out.json", "json": "drag.total[0]"},
        "ok": {"file": "out.json", "json": "ok"},
        "table": {"file": "out.json", "json": "drag"},
        "big": {"file": "out.json", "json": "big"},
        "words": {"file": "out.json", "json": "text"},
        "no file": {"file": "gone.txt"},
        "nan": {"regex": "last (.*)"},
    }
    data = json.dumps(DATA).replace("'", "")
    argv = ["/bin/sh", "-c", 'cat "$1"; printf %s "$2" > out.json', "sh", "{here}/text"]
    argv.append(data.replace("{", "{{").replace("}", "}}"))
    outcome = run(Command(argv, value={"regex": r"CD =\s*(\S+)"}, outputs=outputs, keep="none"))
    assert outcome.value == 0.0125
    assert outcome.outputs == {
        "mass": 12.5,
        "status": "converged?[1m",
        "missing": None,
        "lift": 1.5,
        "ok": True,
        "table": None,
        "big": None,
        "words": 4.5,
        "no file": None,
        "nan": None,
    }
    assert json.loads(json.dumps(outcome.outputs, allow_nan=False)) == outcome.outputs
    assert run(
        prints("1.5\nx = 2", outputs={"x": {"regex": "x = (.*)"}}, value={"regex": r"^\S+$"})
    ).outputs == {"x": 2.0}
    assert run(prints("7", outputs={"x": {"regex": "(.*)"}})).outputs == {"x": 7.0}  # with the usual answer
    assert run(prints("FAIL", outputs={"x": {"regex": "(.*)"}})).outputs is None


# This text means failed


def test_a_text_that_means_failed():
    command = prints("a\nCONVERGENCE FAILED at 3\n1.5\n", fail_if="CONVERGENCE FAILED")
    outcome = run(command)
    assert (outcome.status, outcome.reason, outcome.fault) == ("infeasible", "CONVERGENCE FAILED", "")
    assert "at 3" in outcome.detail
    assert run(replace(command, fail_if=["convergence failed", "DIVERGED"])).value == 1.5
    assert run(replace(command, fail_if=("DIVERGED", "at 3"))).reason == "at 3"
    on_stderr = python("import sys; print('DIVERGED', file=sys.stderr); print(1)", fail_if="DIVERGED")
    assert run(on_stderr).reason == "DIVERGED"
    assert run(on_stderr).detail == "1\nDIVERGED"
    assert run(prints("größe µ\n1", fail_if="größe µ")).reason == "größe µ"
    assert run(replace(on_stderr, value={"regex": r"^\d+$"})).reason == "DIVERGED"


def test_a_text_across_the_pieces_that_are_read():
    """Byte by byte, and far beyond what is kept in memory or on disk: it is never missed."""
    code = """
import sys, time
for c in "DIVERGED":
    sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.01)
print()
line = "x" * 99 + chr(10)
for _ in range(300_000): sys.stdout.write(line)
print(1.5)
"""
    assert run(python(code, fail_if="DIVERGED")).reason == "DIVERGED"
    late = code.replace(
        "range(300_000): sys.stdout.write(line)",
        "range(120_000): sys.stdout.write(line)\nprint('HERE')\nfor _ in range(2000): sys.stdout.write(line)",
    )
    assert run(python(late, fail_if="HERE")).reason == "HERE"
    assert run(python(late, fail_if="THERE")).value == 1.5


def test_a_text_and_another_ending():
    """What says more is the reason; a machine that failed is not the point's fault."""
    fails = {"fail_if": "DIVERGED", "keep": "none"}
    assert run(Command(["/bin/sh", "-c", "echo DIVERGED; exit 3"], **fails)).reason == "DIVERGED"
    assert run(Command(["/bin/sh", "-c", "echo DIVERGED; kill -SEGV $$"], **fails)).reason == "DIVERGED"
    assert run(Command(["/bin/sh", "-c", "echo DIVERGED; exit 75"], **fails)).status == "lost"
    assert run(Command(["/bin/sh", "-c", "echo DIVERGED; kill $$"], **fails)).status == "lost"
    hung = run(Command(["/bin/sh", "-c", "echo DIVERGED; sleep 60"], timeout=0.3, **fails))
    assert hung.reason == "timed out after 0.3 s"


@through("texts", ["", "  ", [""], ["a", 3], 3, "x" * 1001, [" "]])
def test_texts_that_cannot_be_meant(texts):
    with pytest.raises(fmnes.ArgumentError, match=r"^fail_if: found"):
        Command(["/bin/echo", "1"], fail_if=texts)


# Exit codes and signals


def test_a_program_that_answers_and_dies_of_a_signal():
    """As Debian's XFOIL does, of SIGFPE."""
    code = "import os, signal; print('CD = 0.0125', flush=True); os.kill(os.getpid(), signal.SIGFPE)"
    dies = python(code, value={"regex": "CD = (.*)"})
    assert run(dies).reason == "died: SIGFPE"
    assert run(replace(dies, success_exit_codes=[0, -8])) == Outcome("value", 0.0125)
    assert run(replace(dies, success_exit_codes=[0, -signal.SIGSEGV])).reason == "died: SIGFPE"
    assert run(python(code + "\n", success_exit_codes=[-8])).reason.startswith(
        "printed no number; last line: 'CD"
    )
    silent = python("import os; os.kill(os.getpid(), 8)", success_exit_codes=[0, -8], value={"regex": "CD"})
    assert run(silent).reason == "the regular expression 'CD' found nothing in the output; it is empty"


@through("codes", [[-65], [256], [0, -1.0], ["-8"], [True], -8])
def test_exit_codes_that_cannot_be_meant(codes):
    with pytest.raises(
        fmnes.ArgumentError, match=r"success_exit_codes: found .*or from -1 to -64 for signals"
    ):
        Command(["/bin/echo", "1"], success_exit_codes=codes)
    with pytest.raises(fmnes.ArgumentError, match=r"wanted a list of exit codes from 0 to 255$"):
        Command(["/bin/echo", "1"], lost_exit_codes=codes)


def test_an_exit_code_comes_before_a_missing_value():
    outcome = run(
        Command(["/bin/sh", "-c", "echo no licence >&2; exit 3"], value={"regex": "a"}, keep="none")
    )
    assert (outcome.reason, outcome.fault, outcome.detail) == ("exited with code 3", "exit 3", "no licence")


# Memory and threads


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_memory_is_limited():
    code = "import time; time.sleep(0.2); data = bytearray(10**9); print(len(data))"
    hungry = python(code, memory_limit="200 MB")
    outcome = run(hungry)
    assert outcome.reason == "exited with code 1" and outcome.detail.endswith("MemoryError")
    assert run(replace(hungry, memory_limit=None)).value == 1e9
    assert run(replace(hungry, memory_limit="3 GB")).value == 1e9


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_the_memory_of_all_its_processes_is_limited():
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])"
    limited = Command(
        ["/bin/sh", "-c", 'sleep 0.2; exec "$0" -c "$1"', sys.executable, code],
        memory_limit="1.5 GiB",
        keep="none",
    )
    assert run(limited).value == 1.5 * 2**30
    assert (
        run(Command(["/bin/true"], memory_limit="1 GB", keep="none")).fault == "garbled output"
    )  # ended at once


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_a_limit_that_cannot_be_set_ends_the_program(monkeypatch):
    """As for a program that runs as another user: it does not go on without the limit."""

    def refuse(pid: int, *_: Any) -> None:
        started.append(pid)
        raise PermissionError(1, "Operation not permitted")

    started: list[int] = []
    monkeypatch.setattr("resource.prlimit", refuse)
    outcome = run(Command(["/bin/sleep", "60"], memory_limit="1 GB"))
    assert (outcome.status, outcome.reason) == (
        "lost",
        "could not start the program: Operation not permitted",
    )
    assert not Path(f"/proc/{started[0]}").exists() and not os.listdir("../temporary")


@through(
    ("said", "size"),
    [
        ("2 GB", 2e9),
        ("500MB", 5e8),
        ("1.5 gib", 1.5 * 2**30),
        (3_000_000, 3e6),
        (2e9, 2e9),
        ("4000000", 4e6),
        ("2 T", None),
    ]
    + [
        (bad, None)
        for bad in ("", "GB", "-1 GB", "2 XB", "0", 0, -5, 1000, float("inf"), True, [2], "9" * 30, "1 IB")
    ],
)
def test_a_limit_of_memory_in_words(said, size):
    if size is None:
        with pytest.raises(fmnes.ArgumentError, match=r"memory_limit: found .*wanted a number of bytes"):
            Command(["/bin/echo", "1"], memory_limit=said)
    else:
        assert Command(["/bin/echo", "1"], memory_limit=said).memory_limit == size


def test_a_limit_of_memory_elsewhere(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(
        fmnes.ArgumentError, match="memory_limit: found 2000000000, wanted None: it needs Linux"
    ):
        check_runnable(Command(["/bin/echo", "1"], memory_limit="2 GB"))


def test_a_program_has_one_thread_unless_told(monkeypatch):
    code = f"import json, os; print(json.dumps([os.environ.get(n) for n in {ONE_THREAD}])); print(1)"

    def seen(**settings: Any) -> dict[str, str | None]:
        command = replace(python(code), keep="all", directory=os.path.abspath("seen"), **settings)
        assert run(command).value == 1
        (made,) = Path("seen").iterdir()
        found = json.loads((made / "stdout.txt").read_text().splitlines()[0])
        os.rename(made, f"../{time.monotonic_ns()}")
        return dict(zip(ONE_THREAD, found, strict=True))

    for name in ONE_THREAD:
        monkeypatch.delenv(name, raising=False)
    assert set(seen().values()) == {"1"}
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    changed = seen(environment={"OMP_NUM_THREADS": "4", "OMP_THREAD_LIMIT": None})
    assert changed.pop("MKL_NUM_THREADS") == "3"
    assert changed.pop("OMP_NUM_THREADS") == "4"
    assert changed.pop("OMP_THREAD_LIMIT") is None
    assert set(changed.values()) == {"1"}
    four = seen(environment={"OMP_NUM_THREADS": "4"})
    assert four["OMP_THREAD_LIMIT"] == "4"  # or it would be held to one
    nested = seen(environment={"OMP_NUM_THREADS": "4,2"})
    assert nested["OMP_THREAD_LIMIT"] is None
    assert seen(environment={"OMP_NUM_THREADS": None})["OMP_THREAD_LIMIT"] is None


# The environment of a problem file


def test_the_environment_of_a_problem_file(tmp_path):
    path = tmp_path / "problem.toml"
    path.write_text(
        'command = ["a"]\r\n[program]\r\nenvironment = { KEY = "sécret", OMP_NUM_THREADS = "4" }\n',
        "utf-8-sig",
    )
    assert read_environment(path) == read_environment(str(path)) == {"KEY": "sécret", "OMP_NUM_THREADS": "4"}
    for text in ("", "[program]\n", "[program]\nenvironment = {}\n"):
        path.write_text(text)
        assert read_environment(path) == {}
    assert environment_of({"program": {"environment": {"A": "1"}}}) == {"A": "1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[program]\nenvironment = 3", "environment: found 3, wanted a table"),
        (
            "[program]\nenvironment = { A = 98765 }",
            "environment: found A of type int, wanted text such as '4'",
        ),
        ("[program]\nenvironment = { 'A=B' = '1' }", "environment: found 'A=B'"),
        ("[program", "wanted TOML"),
        ("a = \xff".encode("latin-1"), "found a byte that is not UTF-8"),
        ("a = " + "[" * 100_000, "wanted TOML"),
    ],
)
def test_an_environment_that_cannot_be_meant(text, message, tmp_path):
    path = tmp_path / "problem.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(fmnes.ArgumentError) as told:
        read_environment(path)
    assert str(told.value).startswith(f"{path}: ") and message in str(told.value)
    assert "98765" not in str(told.value)  # it may be a secret


def test_a_problem_file_that_is_gone(tmp_path):
    with pytest.raises(fmnes.ArgumentError, match=r"found no problem file, wanted it for the program's env"):
        read_environment(tmp_path / "gone.toml")
    with pytest.raises(fmnes.ArgumentError, match="not a plain file"):
        read_environment(tmp_path)


# Outputs that are refused as those of a function are


def test_more_outputs_than_are_kept_fail_the_evaluation():
    long = {f"n{i}": {"regex": rf"n{i}=(\w+)"} for i in range(300)}
    text = "1.5\n" + "\n".join(f"n{i}={'a' * 200}" for i in range(300)) + "\n1.5"
    outcome = run(prints(text, outputs=long))
    assert (outcome.status, outcome.fault) == ("infeasible", "garbled output")
    assert "the program left outputs of" in outcome.reason and "wanted at most 50000" in outcome.reason


@through(
    "outputs",
    [
        {str(i): {"regex": "a"} for i in range(1001)},
        {" ": {"regex": "a"}},
        {3: {"regex": "a"}},
        {"a\0": {"regex": "a"}},
    ],
)
def test_names_of_outputs_that_cannot_be_kept(outputs):
    with pytest.raises(fmnes.ArgumentError, match=r"^outputs: found"):
        prints("1", outputs=outputs)
