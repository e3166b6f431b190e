"""What came of a program's run: how it ended and what it has left, as an outcome."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fmnes.evaluation.deaths import outcome_of_death
from fmnes.evaluation.programs.answer import find_answer
from fmnes.evaluation.programs.inputs import Inputs, files_of, target_of
from fmnes.evaluation.programs.output import Text, printable, read_tail
from fmnes.evaluation.programs.process import TAIL, Ending
from fmnes.evaluation.programs.sources import Searches, find_output, find_value
from fmnes.outcome import DETAIL_LIMIT, Outcome, from_number, infeasible, lost
from fmnes.outputs import read_outputs

if TYPE_CHECKING:
    from fmnes.evaluation.programs.command import Command

#: Characters of the end of an output, or of a file, that has no value in it.
_END = 600


def outcome_of(command: Command, inputs: Inputs, ending: Ending, directory: Path) -> Searches[Outcome]:
    """What came of a run. Asks for the searches that this takes."""
    detail = printable((ending.stderr.strip() or ending.stdout.strip())[-DETAIL_LIMIT:], "\n\t")
    code = ending.code
    if ending.timed_out:
        return infeasible(f"timed out after {command.timeout:g} s", fault="timeout", detail=detail)
    if code in command.lost_exit_codes:
        return lost(f"exited with code {code}", detail=detail)
    death = None if code in command.success_exit_codes else outcome_of_death(code)
    if death is not None and code is None:
        death = replace(death, reason="its exit code was taken by another part of this process")
    if death is not None and death.status == "lost":
        return replace(death, detail=detail)
    if ending.said is not None:
        return infeasible(printable(" ".join(ending.said.split()))[:300], detail=both_ends(ending))
    if death is not None and (code is None or code < 0):
        return replace(death, detail=detail)
    if command.value is None:
        answer, problem = find_answer(ending, directory, inputs.name_results)
    elif death is None and _is_old(command.value, inputs, directory):
        answer, problem = None, f"did not write {command.value['file']!r}: it is still the one copied"
    elif death is None:
        answer, problem = yield from find_value(command.value, ending, directory)
    else:
        answer, problem = None, ""
    # A program may well say FAIL and exit with an error: that is its answer, in its own words.
    if isinstance(answer, Outcome):
        return replace(answer, detail=detail)
    if death is not None:
        return infeasible(death.reason, fault=death.fault, detail=detail + _hint(command))
    if answer is None:
        detail = both_ends(ending) + _end_of_file(command, directory) + _hint(command)
        return infeasible(problem, fault="garbled output", detail=detail)
    outcome = from_number(answer)
    if outcome.status != "value":
        return replace(outcome, detail=detail)
    if not command.outputs:
        return outcome
    outputs: dict[str, float | str | None] = {}
    for name, source in command.outputs.items():
        is_old = _is_old(source, inputs, directory)
        outputs[name] = None if is_old else (yield from find_output(source, ending, directory))
    try:
        return replace(outcome, outputs=read_outputs(outputs))
    except TypeError as error:
        return infeasible(f"the program left {error}", fault="garbled output", detail=both_ends(ending))


def _is_old(source: Mapping[str, str], inputs: Inputs, directory: Path) -> bool:
    return "file" in source and inputs.is_old(source["file"], directory)


def both_ends(ending: Ending) -> str:
    """Of both outputs: what it says of its errors may be about something else than what is missing."""
    ends = [ending.stdout.strip(), ending.stderr.strip()]
    return "\n".join(printable(end[-_END:], "\n\t") for end in ends if end)


def _end_of_file(command: Command, directory: Path) -> str:
    """What the file ends with in which the value should be."""
    name = (command.value or {}).get("file")
    read = None if name is None else read_tail(directory, name, TAIL)
    end = printable(read.text.strip()[-_END:], "\n\t") if isinstance(read, Text) else ""
    return f"\n{name} ends with:\n{end}" if end else ""


def _hint(command: Command) -> str:
    """The mistake everybody makes once: a relative path, for a program that runs elsewhere."""
    placed = {target_of(argument, path) for argument, path in files_of(command)}
    for element in command.argv[1:]:
        path = os.path.join(str(command.here), element)
        if element not in placed and not os.path.isabs(element) and os.path.isfile(path):
            return (
                f"\n{element!r} is a file in {command.here}, not where it ran; write '{{here}}/{element}', "
                f"or copy=[{element!r}]"
            )
    return ""
