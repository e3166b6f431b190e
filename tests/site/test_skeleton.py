"""The skeleton of a strategy, filled in with what its page shows, is a strategy."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes.backends import NUMPY
from tests.site.pages import ROOT, blocks
from tests.updates import after_update

SKELETON = ROOT / "docs" / "skeleton" / "strategy.py"
[SHOWN] = [block.text for block in blocks(ROOT / "docs" / "add-a-strategy.md")]


def load(source: str) -> dict[str, Any]:
    module = sys.modules["filled_in"] = ModuleType("filled_in")  # where dataclasses look for their names
    exec(compile(source, "filled_in.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def functions(module: ast.Module, of: str) -> dict[str, ast.FunctionDef]:
    [found] = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == of]
    return {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}


def filled_in() -> str:
    """What is to be filled in has the bodies that the page shows; all else is the skeleton's own."""
    skeleton, page = ast.parse(SKELETON.read_text("utf-8")), ast.parse(SHOWN)
    shown = functions(page, "Method")
    for name, function in functions(skeleton, "Method").items():
        if isinstance(function.body[-1], ast.Raise):
            function.body = [function.body[0], *shown.pop(name).body]
    assert not shown  # the page fills in nothing else
    wanted = [node for node in page.body if isinstance(node, ast.Import | ast.ImportFrom)]
    skeleton.body[2:2] = wanted  # behind the docstring and the future
    return ast.unparse(ast.fix_missing_locations(skeleton))


def test_as_it_is_it_says_what_is_missing() -> None:
    method = load(SKELETON.read_text("utf-8"))["Method"]()
    with pytest.raises(NotImplementedError):
        fmnes.minimize(lambda x: float(x @ x), [1.0, 2.0], 0.5, method=method)


def fails_in_part(x: Any) -> float:
    return float(x @ x) if x[0] > -0.2 else float("nan")


@pytest.mark.parametrize("workers", [1, 2])
def test_filled_in_it_minimises(workers: int) -> None:
    method = load(filled_in())["Method"]()
    result = fmnes.minimize(
        fails_in_part, [1.0, 2.0, 3.0], 1.0, method=method, rng=1, target=1e-6, workers=workers
    )
    assert result.success and result.n_infeasible > 0


def test_filled_in_it_is_the_transcription() -> None:
    literal = load(SHOWN)["Literal"](np.full(4, 2.0), 1.5)
    method = load(filled_in())["Method"]()
    rng = np.random.default_rng(3)
    state = method.init(np.full(4, 2.0), np.float64(1.5), np.zeros(4), NUMPY)
    for _ in range(30):
        z = rng.standard_normal((9, 4))
        f = np.where(z[:, 0] > 1, np.nan, (method.sample(state, z) ** 2).sum(axis=1))
        state = after_update(method, state, z, f)
        literal.step(z, f)
        np.testing.assert_allclose(state.mean, literal.m, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.sigma * state.S, literal.sigma, rtol=1e-9)
    assert method.shape(state).axis_lengths.shape == (4,)
    np.testing.assert_allclose(np.diag(method.covariance(state)), literal.sigma**2, rtol=1e-9)


RUN = """
import os, signal, sys

fmnes.strategies.register(Method)
calls, last = 0, int(sys.argv[1])


def fun(x):
    global calls
    calls += 1
    if calls == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(x @ x) if x[0] > -0.2 else float("nan")


if sys.argv[2] == "begin":
    result = fmnes.minimize(fun, [1.0, 2.0], 1.0, method="name", rng=1, max_evaluations=200, run_dir="run")
else:
    result = fmnes.resume("run", fun)
print(result.x.tobytes().hex(), result.x_mean.tobytes().hex(), result.fun, result.nfev, result.n_infeasible)
"""


def test_a_registered_strategy_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    def run(at: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        at.mkdir(exist_ok=True)
        command = [sys.executable, str(tmp_path / "script.py"), *arguments]
        return subprocess.run(command, cwd=at, capture_output=True, text=True, check=False)

    (tmp_path / "script.py").write_text(filled_in() + RUN, "utf-8")
    whole = run(tmp_path / "whole", "0", "begin")
    assert whole.returncode == 0, whole.stderr
    assert run(tmp_path / "killed", "77", "begin").returncode == -signal.SIGKILL
    resumed = run(tmp_path / "killed", "0", "resume")
    assert resumed.stdout == whole.stdout, resumed.stderr


def test_a_run_of_a_strategy_that_is_not_registered_is_refused(tmp_path: Path) -> None:
    method = load(filled_in())["Method"]
    with pytest.raises(fmnes.ArgumentError, match=r"not registered.*fmnes\.strategies\.register"):
        fmnes.minimize(fails_in_part, [1.0, 2.0], 0.5, method=method(), run_dir=tmp_path / "run")
    fmnes.strategies.register(method)
    try:
        fmnes.minimize(
            fails_in_part, [1.0, 2.0], 0.5, method="name", rng=1, max_evaluations=20, run_dir=tmp_path
        )
    finally:
        del fmnes.strategies.METHODS["name"]
    with pytest.raises(fmnes.RunError, match=r"'name' is not registered: call fmnes\.strategies\.register"):
        fmnes.resume(tmp_path, fails_in_part, max_evaluations=40)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (object, "wanted a dataclass"),
        (fmnes.XNES(), "wanted a dataclass"),
        (type("XNES", (fmnes.XNES,), {}), "found 'xnes' in XNES, wanted a name that is not in use"),
    ],
)
def test_what_cannot_be_registered(cls: Any, words: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=words):
        fmnes.strategies.register(cls)
    assert fmnes.strategies.METHODS["xnes"] is fmnes.XNES
