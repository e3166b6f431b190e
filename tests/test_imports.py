"""What importing costs, which way imports go, and that the public names are what they claim to be."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import fmnes
from tests.rows import through

SOURCE = Path(fmnes.__file__).parent
#: Without what `fmnes init` writes, which is no part of ours.
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "templates" not in path.parts)


def in_fresh_interpreter(code: str) -> str:
    environment = {"PYTHONPATH": str(SOURCE.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_import_loads_numpy_and_the_standard_library_only() -> None:
    code = """
import json, sys
before = set(sys.modules)
import fmnes
assert "numpy" not in sys.modules  # a name is loaded when it is asked for
from fmnes import *
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""
    loaded = set(json.loads(in_fresh_interpreter(code)))
    assert {"fmnes", "numpy"} <= loaded
    assert loaded - set(sys.stdlib_module_names) - {"fmnes", "numpy"} == set()


def test_a_worker_loads_what_it_needs_and_no_more() -> None:
    code = """
import json, sys
import fmnes.evaluation.workers.messages
fmnes.Infeasible  # what an objective may ask for
print(json.dumps([name for name in sys.modules if name.startswith("fmnes.")]))
"""
    parts = {part_of(name) for name in json.loads(in_fresh_interpreter(code))}
    assert parts == {"errors", "evaluation", "outcome", "version"}


def test_a_command_loads_what_it_needs_and_no_more() -> None:
    pytest.importorskip("typer")
    code = """
import sys
from fmnes.__main__ import main
sys.argv[1:] = ["--version"]
try:
    main()
except SystemExit:
    assert "numpy" not in sys.modules and "rich" not in sys.modules
import fmnes.cli.show
assert "numpy" in sys.modules
assert not {"fmnes.search", "fmnes.plots", "fmnes.evaluation.queue"} & set(sys.modules)
"""
    assert in_fresh_interpreter(code) == f"{fmnes.__version__}\n"


def test_import_is_silent_and_touches_no_random_state() -> None:
    code = """
import numpy as np
np.random.seed(1)
before = np.random.get_state()[1].tobytes()
import fmnes
assert np.random.get_state()[1].tobytes() == before
"""
    assert in_fresh_interpreter(code) == ""


# -- direction --------------------------------------------------------------------------------------------

#: Which parts of ours a part may import. A part that is not listed stands on top and may import any.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "version": set(),
    "_text": set(),
    "_files": set(),
    "_equality": set(),
    "summary": {"_text"},  # of a result, which it knows by name only
    "result": {"errors", "_equality", "summary"},
    "outcome": {"errors"},
    "arguments": {"errors", "result"},
    "bounds": {"errors", "result", "arguments"},
    "constraints": {"errors", "outcome", "arguments", "_equality", "_text"},
    "parameters": {"errors", "arguments"},
    "space": {"errors", "result", "arguments", "bounds", "parameters"},
    "backends": {"errors"},
    "problems": {"errors", "arguments", "parameters"},
    "steps": {"errors", "result", "backends"},
    "surrogate": {"errors"},
    "strategies": {"errors", "result", "_equality", "arguments", "backends", "steps"},
    "storage": {"errors", "result", "outcome", "_files", "arguments"},
    "evaluation": {
        "constraints",
        "errors",
        "result",
        "outcome",
        "_files",
        "arguments",
        "space",
        "storage",
    },
    "evaluations": {"errors", "space", "storage"},
    "progress": {"result", "_text"},
    "search": {
        "constraints",
        "_text",
        "errors",
        "result",
        "outcome",
        "arguments",
        "bounds",
        "backends",
        "parameters",
        "space",
        "storage",
        "steps",
        "strategies",
        "surrogate",
    },
    "run": {
        "constraints",
        "errors",
        "result",
        "outcome",
        "_text",
        "arguments",
        "evaluation",
        "evaluations",
        "parameters",
        "progress",
        "search",
        "space",
        "storage",
        "strategies",
        "version",
    },
    "reading": {
        "constraints",
        "errors",
        "result",
        "outcome",
        "_text",
        "arguments",
        "evaluation",
        "evaluations",
        "parameters",
        "run",
        "space",
        "storage",
    },
    "analysis": {"_text", "reading", "surrogate"},
    "html": {"errors", "parameters", "result", "_text", "analysis", "plots", "reading", "storage"},
    "plots": {"errors", "result", "arguments", "parameters", "_text", "analysis", "evaluations", "reading"},
}


def part_of(module: str) -> str:
    """`fmnes.steps.sampling` belongs to `steps`; the package itself is ``."""
    return (module + ".").split(".")[1]


def imports(path: Path) -> set[str]:
    """Modules of ours that this file imports when it runs; imports for type checkers do not count."""
    package = ["fmnes", *path.relative_to(SOURCE).parts[:-1]]
    found: set[str] = set()

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if "TYPE_CHECKING" in ast.unparse(node.test):
                for statement in node.orelse:
                    self.visit(statement)
            else:
                self.generic_visit(node)

        def visit_Import(self, node: ast.Import) -> None:
            found.update(alias.name for alias in node.names)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            if module == "fmnes":
                found.update(f"fmnes.{alias.name}" for alias in node.names)
            else:
                found.add(module)

    Visitor().visit(ast.parse(path.read_text(encoding="utf-8")))
    return {name for name in found if name.split(".")[0] == "fmnes"}


def test_the_reader_of_imports_sees_them() -> None:
    parts = {part_of(name) for name in imports(SOURCE / "search" / "optimizer.py")}
    assert {"strategies", "search", "errors", "result"} <= parts
    assert part_of("fmnes.steps.sampling") == "steps" and part_of("fmnes") == ""


def test_imports_go_one_way() -> None:
    wrong = {}
    for path in MODULES:
        relative = path.relative_to(SOURCE)
        part = relative.parts[0].removesuffix(".py")
        if part in ALLOWED and (found := {part_of(name) for name in imports(path)} - {part} - ALLOWED[part]):
            wrong[str(relative)] = sorted(found)
    assert not wrong


def test_the_direction_has_no_circle() -> None:
    runtime = {part: set() for part in ALLOWED}
    for path in MODULES:
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part in runtime:
            runtime[part] |= {part_of(name) for name in imports(path)} - {part}
    order: list[str] = []
    while len(order) < len(runtime):
        free = [part for part in runtime if part not in order and runtime[part] <= set(order)]
        assert free, f"a circle among {sorted(set(runtime) - set(order))}"
        order += free


@pytest.mark.parametrize("part", ["evaluation", "storage", "progress", "problems", "steps", "surrogate"])
def test_these_parts_know_neither_strategies_nor_the_optimizer(part: str) -> None:
    code = f"""
import importlib, json, pkgutil, sys, types
package = types.ModuleType("fmnes"); package.__path__ = [{str(SOURCE)!r}]
sys.modules["fmnes"] = package  # the package without what its __init__ imports
top = importlib.import_module("fmnes.{part}")
for module in pkgutil.walk_packages(getattr(top, "__path__", []), top.__name__ + "."):
    try:
        importlib.import_module(module.name)
    except ImportError:
        pass  # an extra that is not installed
print(json.dumps([name for name in sys.modules if name.startswith("fmnes.")]))
"""
    loaded = json.loads(in_fresh_interpreter(code))
    assert any(name.startswith(f"fmnes.{part}") for name in loaded)
    for name in ("fmnes.strategies", "fmnes.search.optimizer", "fmnes.minimize", "fmnes.run.loop"):
        assert name not in loaded


# -- public names -----------------------------------------------------------------------------------------


def test_all_is_exactly_the_public_names() -> None:
    """Each is listed three times: for `*`, for type checkers, and where it is."""
    assert len(fmnes.__all__) == len(set(fmnes.__all__))
    assert {name for name in dir(fmnes) if not name.startswith("_")} == set(fmnes.__all__)
    tree = ast.parse(Path(fmnes.__file__).read_text(encoding="utf-8"))
    blocks = (node.body for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module
        for node in next(blocks)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(typed) == set(fmnes.__all__)
    for name, module in typed.items():
        assert getattr(fmnes, name) is getattr(importlib.import_module(str(module)), name)
    assert callable(fmnes.minimize)
    with pytest.raises(AttributeError, match="module 'fmnes' has no attribute 'minimise'"):
        fmnes.minimise  # noqa: B018


def test_no_module_is_hidden_by_a_name_of_its_package() -> None:
    hidden = []
    for path in MODULES:
        name = ".".join(["fmnes", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        package, _, last = name.rpartition(".")
        if package and last != "__main__":
            try:
                module = importlib.import_module(name)
            except ImportError:
                continue  # an extra that is not installed
            if getattr(importlib.import_module(package), last) is not module:
                hidden.append(name)
    assert not hidden


def test_the_contract_names_are_there() -> None:
    contract = "minimize Optimizer Result StopReason problems FMNES DXNESIC XNES CMAES Resampling"
    assert {*contract.split(), "Infeasible", "Lost", "LOST"} <= set(fmnes.__all__)


@through("name", fmnes.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(fmnes, name)
    doc = inspect.getdoc(value)
    assert doc and len(doc) > 10
    if inspect.isclass(value):
        assert value.__doc__ and value.__doc__ != value.__mro__[1].__doc__
        assert not value.__doc__.startswith(f"{name}("), "the docstring that a dataclass makes itself"
        assert value.__module__.startswith("fmnes.")


def test_every_module_has_a_docstring() -> None:
    docs = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in MODULES}
    assert not [path for path, doc in docs.items() if not doc or len(doc) <= 10]


def test_types_are_shipped() -> None:
    assert (SOURCE / "py.typed").is_file()


def test_the_version_is_a_version() -> None:
    assert all(part.isdigit() for part in fmnes.__version__.split(".")[:2])


def test_errors_form_the_documented_tree() -> None:
    for error in (fmnes.ArgumentError, fmnes.UsageError, fmnes.ObjectiveError, fmnes.SnapshotError):
        assert issubclass(error, fmnes.FmnesError)
    assert issubclass(fmnes.ArgumentError, ValueError) and issubclass(fmnes.UsageError, RuntimeError)
    assert issubclass(fmnes.MissingExtra, ImportError)
    assert not issubclass(fmnes.Infeasible, fmnes.FmnesError)
    assert not issubclass(fmnes.Lost, fmnes.FmnesError)
    assert 'pip install "fmnes[plot]"' in str(fmnes.MissingExtra("plots", "plot"))
