"""Public docstrings follow numpydoc, name the parameters that there are, and their examples run."""

from __future__ import annotations

import ast
import doctest
import enum
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

import fmnes
from fmnes.strategies.base import Strategy

SECTIONS = ("Parameters", "Returns", "Yields", "Raises", "Attributes", "Examples")
MODULES = ("fmnes", "fmnes.plots", "fmnes.problems", "fmnes_bench.lens")
#: Each needs what its name says; `make test-jax` and `make test-clusters` install the rest.
NEEDS = {
    "fmnes.integrations.dask": None,
    "fmnes.integrations.ray": None,
    "fmnes.integrations.mpi": None,
    "fmnes.integrations.joblib": None,
    "fmnes.integrations.scipy": "scipy",
    "fmnes_bench.gene_network": "scipy",
    "fmnes.integrations.optuna": "optuna",
    "fmnes.integrations.ioh": "ioh",
    "fmnes.integrations.openmdao": "openmdao",
    "fmnes.integrations.jax": "jax",
}
#: Classes of results, and the types of their parts, that have no name in `fmnes`.
OTHERS = (
    "fmnes.analysis.effects:Importance",
    "fmnes.analysis.explanation:CommonFailure",
    "fmnes.analysis.explanation:Explanation",
    "fmnes.analysis.prediction:Prediction",
    "fmnes.analysis.rules:Condition",
    "fmnes.analysis.rules:Rule",
    "fmnes.constraints:ConstraintResult",
    "fmnes.pareto:TradeOff",
    "fmnes.result:Best",
    "fmnes.result:Columns",
    "fmnes.result:Noise",
    "fmnes.result:Stop",
    "fmnes.reading.run:Reason",
    "fmnes.search.counting:Point",
    "fmnes.strategies:register",
    "fmnes.strategies.base:Shape",
    "fmnes.strategies.base:Strategy",
)
#: They do not check their arguments.
NEVER_RAISE = (
    "fmnes:Bounds",
    "fmnes:MissingExtra",
    "fmnes.integrations.jax:batch_axes",
    "fmnes.integrations.jax:next_population_size",
)
#: Strategies are described once, in the protocol; Optuna describes what it calls of a sampler.
CALLED_BY_OTHERS = {name for name in vars(Strategy) if not name.startswith("_")}


def names_of(module: Any) -> list[str]:
    public = getattr(module, "__all__", None)
    if public is None:  # what it defines, or a package from its own parts
        public = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        ]
    return [
        name
        for name in public
        if inspect.isroutine(found := getattr(module, name)) or isinstance(found, type)
    ]


def names_in_source(module: str) -> list[str]:
    """Without importing it, where what it needs may be missing."""
    path = Path(fmnes.__file__).parents[1].joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if len(name) > 1]
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]


def public() -> list[str]:
    found = [f"{module}:{name}" for module in MODULES for name in names_of(importlib.import_module(module))]
    found += [f"{module}:{name}" for module in NEEDS for name in names_in_source(module)]
    return [*found, *OTHERS]


def load(where: str) -> Any:
    module, _, name = where.partition(":")
    if NEEDS.get(module):
        pytest.importorskip(NEEDS[module])
    return getattr(importlib.import_module(module), name)


def sections_of(docstring: str) -> dict[str, list[str]]:
    """The lines of each section, and those before the first one under ""."""
    lines = docstring.splitlines()
    found: dict[str, list[str]] = {"": []}
    current = found[""]
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if below and set(below) == {"-"} and len(below) == len(line):
            assert line in SECTIONS, line
            assert line not in found, line
            current = found[line] = []
        elif not (set(line) == {"-"} and current == []):
            current.append(line)
    order = [name for name in SECTIONS if name in found]
    assert [name for name in found if name] == order
    return found


def entries_of(lines: list[str]) -> list[str]:
    """The names in a section; each has a description."""
    names: list[str] = []
    filled = [line for line in lines if line.strip()]
    for line, below in zip(filled, [*filled[1:], ""], strict=False):
        if not line.startswith(" "):
            assert below.startswith("    "), line
            names += line.partition(" : ")[0].split(", ")
    return names


def own_docstring(found: Any) -> str:
    """Not one that is inherited."""
    return inspect.cleandoc(found.__doc__ or "")


def check_summary(lines: list[str]) -> None:
    assert lines and lines[0].endswith(".") and len(lines[0]) <= 106, lines[:1]
    assert lines[1:2] in ([], [""]), lines[:2]


def signature_names(called: Any) -> list[str]:
    signs = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(called).parameters.values()
    return [signs.get(p.kind, "") + p.name for p in parameters if p.name not in ("self", "cls", "_")]


def check_function(function: Any, docstring: str, *, is_method: bool = False) -> None:
    found = sections_of(docstring)
    check_summary(found[""])
    wanted = signature_names(function)
    assert entries_of(found.get("Parameters", [])) == wanted
    returned = inspect.signature(function).return_annotation
    if returned not in ("None", None):
        assert "Returns" in found or "Yields" in found
    if not is_method:
        assert "Examples" in found


def check_class(cls: type, docstring: str) -> None:
    found = sections_of(docstring)
    check_summary(found[""])
    if issubclass(cls, enum.Enum) or cls is Strategy:
        return
    if issubclass(cls, BaseException) and "__init__" not in vars(cls):
        return
    if "Parameters" not in found and "Attributes" in found:
        assert entries_of(found["Attributes"]) == fields_of(cls)
    else:
        names = signature_names(cls)
        assert entries_of(found.get("Parameters", [])) == names and names


def fields_of(cls: type) -> list[str]:
    fields = getattr(cls, "__dataclass_fields__", None) if is_dataclass(cls) else cls.__annotations__
    assert fields is not None
    return [name for name in fields if not name.startswith("_")]


def members_of(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of ours."""
    seen = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("fmnes"):
            continue
        for name, member in vars(base).items():
            if (name == "__call__" or not name.startswith("_")) and name not in seen:
                seen.add(name)
                yield name, member


@pytest.mark.parametrize("where", [where for where in public() if not where.endswith("Executor")])
def test_a_public_docstring_has_the_sections_that_apply(where: str) -> None:
    found = load(where)
    docstring = (
        inspect.getdoc(found) if not isinstance(found, type) else inspect.cleandoc(found.__doc__ or "")
    )
    assert docstring
    if "Parameters" in sections_of(docstring):
        assert "Raises" in sections_of(docstring) or where in NEVER_RAISE
    if not isinstance(found, type):
        return check_function(found, docstring)
    check_class(found, docstring)
    if found is not Strategy:
        assert "Examples" in sections_of(docstring)
    for name, member in members_of(found):
        try:
            check_member(found, name, member)
        except AssertionError as error:
            raise AssertionError(f"{where}.{name}: {error}") from None
    return None


def check_member(cls: type, name: str, member: Any) -> None:
    if isinstance(member, property | functools.cached_property):
        function = member.fget if isinstance(member, property) else member.func
        return check_summary(own_docstring(function).splitlines())
    function = getattr(member, "__func__", member)
    if not inspect.isfunction(function):
        return None
    docstring = own_docstring(function)
    described_elsewhere = name in CALLED_BY_OTHERS or docstring.startswith("Called by Optuna")
    if described_elsewhere and cls is not Strategy and "Parameters" not in docstring:
        return check_summary(docstring.splitlines())
    return check_function(function, docstring, is_method=True)


def test_every_function_of_the_protocol_is_described_in_full() -> None:
    for name in ("init", "sample", "update", "shape", "covariance"):
        check_function(getattr(Strategy, name), own_docstring(getattr(Strategy, name)), is_method=True)


def described(parameters: str) -> str:
    return f"Do it.\n\nParameters\n----------\n{parameters}"


@pytest.mark.parametrize(
    ("docstring", "is_right"),
    [
        (described("a : int\n    One.\nb : int\n    Two."), True),
        (described("a, b : int\n    Both."), True),
        (described("a : int\n    One."), False),
        (described("a : int\n    One.\nc : int\n    Two."), False),
        (described("b : int\n    Two.\na : int\n    One."), False),
        (described("a : int\n    One.\nb : int"), False),
        (described("a, b : int\n    Both.\n\nReturn\n------\nint\n    It."), False),
        (described("a, b : int\n    Both.").replace("it.", "it"), False),
        ("Do it.", False),
    ],
)
def test_these_checks_see_what_is_wrong(docstring: str, is_right: bool) -> None:
    def function(a: int, b: int) -> None: ...

    if is_right:
        return check_function(function, docstring, is_method=True)
    with pytest.raises(AssertionError):
        check_function(function, docstring, is_method=True)
    return None


def test_what_is_returned_has_to_be_described() -> None:
    def function() -> int:
        return 1

    with pytest.raises(AssertionError):
        check_function(function, "Do it.", is_method=True)
    check_function(function, "Do it.\n\nReturns\n-------\nint\n    One.", is_method=True)


@pytest.mark.parametrize("where", public())
def test_examples_run(where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = load(where)
    monkeypatch.chdir(tmp_path)  # OpenMDAO writes its reports there
    # An example registers a strategy.
    monkeypatch.setattr(fmnes.strategies, "METHODS", dict(fmnes.strategies.METHODS))
    runner = doctest.DocTestRunner()
    said: list[str] = []
    for test in doctest.DocTestFinder().find(found, where, globs={}):
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_every_name_of_the_reference_is_checked() -> None:
    pages = (Path(__file__).parents[1] / "docs" / "api").glob("*.md")
    shown = re.findall(
        r"auto(?:function|class|exception):: (?:[\w.]+\.)?(\w+)", "".join(p.read_text("utf-8") for p in pages)
    )
    checked = {where.partition(":")[2] for where in public()}
    states = {name for name in shown if name.endswith("State")}  # tests/site checks their fields
    assert len(shown) > 50 and set(shown) - checked - states == set()
