"""What is computed lazily (axes, the ridge test) must not change the search; steps/ridge.py by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.same_search import Case, evaluations, summary
from fmnes import FMNES, Optimizer, problems
from fmnes.backends import NUMPY
from fmnes.steps.ridge import BLOCK, axis_ratio, leading_block, start_block
from fmnes.strategies import fm_nes


def exact(A: np.ndarray) -> float:
    values = np.linalg.svd(A, compute_uv=False)
    return float(values[0] / values[1])


def random_rotation(d: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def check_orthonormal(block: np.ndarray) -> None:
    np.testing.assert_allclose(block.T @ block, np.eye(BLOCK), atol=1e-3)


@pytest.mark.parametrize("d", [2, 3, 10, 24])
def test_the_ratio_without_a_block_is_exact(d: int) -> None:
    A = np.random.default_rng(d).standard_normal((d, d))
    ratio, block = axis_ratio(A, None, NUMPY)
    assert ratio == pytest.approx(exact(A), rel=1e-10) and block is None


@pytest.mark.parametrize("d", [25, 40, 200])
def test_a_leading_block_gives_the_ratio_at_once(d: int) -> None:
    rng = np.random.default_rng(d)
    A = np.sort(rng.uniform(0.5, 3.0, d))[::-1, None] * random_rotation(d, rng)
    ratio, block = axis_ratio(A, leading_block(d, float, np), NUMPY)
    assert ratio == pytest.approx(exact(A), rel=1e-12)
    check_orthonormal(block)


@pytest.mark.parametrize("condition", [1.3, 10.0, 1e3, 1e7])
def test_a_ridge_nothing_is_known_of_is_found(condition: float) -> None:
    """One long axis anywhere, and a block that has never seen it."""
    d = 40
    rng = np.random.default_rng(1)
    lengths = np.ones(d)
    lengths[17] = condition
    A = random_rotation(d, rng) @ (lengths[:, None] * random_rotation(d, rng))
    block = start_block(d, float, np)
    for _ in range(30):
        ratio, block = axis_ratio(A, block, NUMPY)
        check_orthonormal(block)
    assert ratio == pytest.approx(condition, rel=1e-3)


def test_a_block_that_became_useless_recovers() -> None:
    """All its vectors fall onto one axis at once: the series cannot orthonormalise them, and must not try."""
    d = 40
    rng = np.random.default_rng(2)
    lengths = np.linspace(1.0, 2.0, d)
    A = random_rotation(d, rng) @ (lengths[:, None] * random_rotation(d, rng))
    _, block = axis_ratio(A, start_block(d, float, np), NUMPY)
    longer = 1e4 * np.outer(A @ np.ones(d), np.ones(d)) / d + A
    for _ in range(40):
        ratio, block = axis_ratio(longer, block, NUMPY)
        check_orthonormal(block)
    assert ratio == pytest.approx(exact(longer), rel=0.05)


@pytest.mark.parametrize(("name", "size"), [("ic-cigar", 40), ("ic-ellipsoid", 40), ("ic-sphere", 16)])
def test_the_ridge_test_decides_as_the_exact_one(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real run, where the matrix changes from one generation to the next."""
    decisions: list[tuple[bool, bool]] = []

    def watched(A: Any, block: Any, backend: Any) -> Any:
        ratio, block = axis_ratio(A, block, backend)
        decisions.append((ratio > 1.2, exact(A) > 1.2))
        return ratio, block

    monkeypatch.setattr(fm_nes, "axis_ratio", watched)
    problem = problems.get(name, d=40)
    opt = Optimizer(problem.x0, problem.sigma0, population_size=size, rng=1, max_evaluations=1000 * size)
    while not opt.limit_reached():
        opt.tell(problem.fun(opt.ask()))
    assert len(decisions) > 900
    wrong = sum(estimated != right for estimated, right in decisions)
    assert wrong <= 0.02 * len(decisions)  # five of a thousand here; it depends on the processor


@pytest.mark.parametrize(
    "problem", ["sphere", "rotated-ellipsoid", "rosenbrock", "rotated-cigar", "ic-sphere"]
)
def test_the_default_refresh_searches_like_the_literal_one(problem: str) -> None:
    """A few seeds at d = 10; benchmarks/same_search.py does it at 10, 40 and 100 on all problems."""

    def cell(refresh: int | None) -> tuple[float, float, int]:
        return summary([evaluations(Case("fm-nes", problem, 10, 20, refresh, seed)) for seed in range(12)])

    lazy, lazy_error, solved = cell(None)
    literal, literal_error, literally_solved = cell(1)
    assert solved >= 10 and literally_solved >= 10  # Rosenbrock has a second optimum
    assert abs(lazy - literal) < 4 * np.hypot(lazy_error, literal_error)


@pytest.mark.parametrize("d", [2, 10, 40, 100])
def test_drift_is_bounded(d: int) -> None:
    """A⁻¹ stays the inverse of A, and F orthogonal, over thousands of generations and many refreshes."""
    problem = problems.get("rotated-ellipsoid", d=d)
    opt = Optimizer(problem.x0, problem.sigma0, method=FMNES(), rng=1)
    worst = 0.0
    for generation in range(3000):
        opt.tell(problem.fun(opt.ask()))
        if generation % 97 == 0:
            F, A, inverse = (getattr(opt._state, name) for name in ("F", "A", "A_inverse"))
            worst = max(worst, np.abs(A @ inverse - np.eye(d)).max(), np.abs(F.T @ F - np.eye(d)).max())
    assert worst < 1e-9
