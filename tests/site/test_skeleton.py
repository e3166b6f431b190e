"""The skeleton of a strategy, filled in with what its page shows, is a strategy."""

from __future__ import annotations

import ast
import sys
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
