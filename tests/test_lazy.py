"""What is computed lazily (axes, the ridge test) must not change the search; steps/shape.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.same_search import Case, evaluations, summary
from fmnes import FMNES, Optimizer, problems
from fmnes.backends import NUMPY
from fmnes.search.stopping import limit_reached
from fmnes.steps.shape import LEADING, Axes, _surely_on_ridge, decomposed, on_ridge, times, turned
from fmnes.strategies import fm_nes_state
from tests.rows import through


def exact(A: np.ndarray) -> float:
    values = np.linalg.svd(A, compute_uv=False)
    return float(values[0] / values[1])


def random_rotation(d: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


# -- the ridge test ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 10, 24])
def test_all_rows_give_the_exact_answer(d: int) -> None:
    rng = np.random.default_rng(d)
    for _ in range(50):
        A = rng.standard_normal((d, d))
        ratio = exact(A)
        assert on_ridge(A, ratio - 1e-9, NUMPY)
        assert not on_ridge(A, ratio + 1e-9, NUMPY)


@pytest.mark.parametrize("d", [25, 40, 200])
def test_a_few_rows_give_it_after_a_refresh(d: int) -> None:
    rng = np.random.default_rng(d)
    A = np.sort(rng.uniform(0.5, 3.0, d))[::-1, None] * random_rotation(d, rng)
    ratio = exact(A)
    assert on_ridge(A[:LEADING], ratio - 1e-9, NUMPY)
    assert not on_ridge(A[:LEADING], ratio + 1e-9, NUMPY)


def test_an_axis_that_lies_between_rows_is_found() -> None:
    """Five rows of one length that have come a little closer make an axis longer than any of them."""
    lengths = np.sqrt(np.r_[1.3**2, np.full(5, 0.92), np.full(34, 0.5)])
    common = np.r_[0.0, np.full(5, np.sqrt(0.08)), np.zeros(34)]
    A = np.c_[np.diag(lengths), common]
    assert exact(A) == pytest.approx(1.3 / np.sqrt(0.92 + 5 * 0.08), rel=1e-12)
    assert exact(A[:2]) == pytest.approx(1.3)
    assert not on_ridge(A[:LEADING], 1.2, NUMPY)


@pytest.mark.parametrize("threshold", [1.05, 1.2, 1.5, 3.0, 50.0])
def test_a_quick_answer_is_never_wrong(threshold: float) -> None:
    """Clusters of axes, ratios near the threshold and far from it, the longest row anywhere."""
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(1000):
        k = int(rng.integers(2, 25))
        ratio = 1 + (threshold - 1) * np.exp(rng.normal(0, rng.choice([0.003, 0.1, 2.0])))
        rest = np.where(rng.random(k - 1) < rng.random(), 1.0, rng.random(k - 1))
        lengths = np.r_[ratio * rest.max(), rest]
        rows = random_rotation(k, rng) * lengths @ random_rotation(k, rng)
        if rng.random() < 0.5:
            rows = (lengths[:, None] * random_rotation(k, rng))[rng.permutation(k)]
        with np.errstate(all="ignore"):
            surely = _surely_on_ridge(rows @ rows.T, threshold)
        if surely is not None:
            decided += 1
            assert surely == (ratio > threshold)
    assert decided > 300


def test_nonsense_is_not_decided_quickly() -> None:
    with np.errstate(all="ignore"):
        for gram in (np.zeros((4, 4)), np.full((4, 4), np.nan), np.diag([1e-300, 1.0, 1e300, 1.0])):
            assert _surely_on_ridge(gram, 1.2) is None
        assert _surely_on_ridge(np.diag([4.0, 1.0]), 1.001) is None  # no power is large enough
        assert _surely_on_ridge(np.diag([1e9, 1.0]), 1e5) is None  # nor small enough
        assert _surely_on_ridge(np.eye(200), 1.2) is None
        assert not on_ridge(np.full((4, 4), np.nan), 1.2, NUMPY)


@pytest.mark.parametrize(("name", "size"), [("ic-cigar", 40), ("ic-ellipsoid", 40), ("ic-sphere", 16)])
def test_the_ridge_test_decides_as_the_exact_one(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real run, where the matrix changes from one generation to the next."""
    estimated: list[bool] = []
    right: list[bool] = []
    lengthened = fm_nes_state._lengthened_on_ridges

    def estimating(rows: Any, threshold: float, backend: Any) -> Any:
        assert len(rows) == LEADING
        answer = on_ridge(rows, threshold, backend)
        estimated.append(bool(answer))
        return answer

    def watched(growth: Any, *rest: Any) -> Any:
        right.append(exact(times(growth.A, growth.factor, growth.row_scale)) > 1.2)
        return lengthened(growth, *rest)

    monkeypatch.setattr(fm_nes_state, "on_ridge", estimating)
    monkeypatch.setattr(fm_nes_state, "_lengthened_on_ridges", watched)
    problem = problems.get(name, d=40)
    settings: Any = {"method": "fm-nes", "population_size": size, "max_evaluations": 1000 * size}
    opt = Optimizer(problem.x0, problem.sigma0, rng=1, **settings)
    while not limit_reached(opt):
        opt.tell(problem.fun(opt.ask()))
    assert len(right) == len(estimated) > 900
    wrong = sum(a != b for a, b in zip(estimated, right, strict=True))
    assert wrong <= 0.02 * len(right)  # a few of a thousand; it depends on the processor


# -- the axes ---------------------------------------------------------------------------------------------


def nearly_orthogonal(lengths: np.ndarray, off: float, rng: np.random.Generator) -> Axes:
    """Axes of these lengths after a few generations: turned by about `off`, and no longer orthogonal."""
    d = len(lengths)
    A = lengths[:, None] * (random_rotation(d, rng) @ (np.eye(d) + off * rng.standard_normal((d, d)) / d))
    return Axes(random_rotation(d, rng), A, np.linalg.inv(A), rng.standard_normal(d))


def off_diagonal(A: np.ndarray) -> float:
    """The largest cosine between two rows whose lengths differ by a tenth at least."""
    lengths = np.linalg.norm(A, axis=1)
    rows = A / lengths[:, None]
    return float(np.abs(rows @ rows.T)[np.abs(np.log(lengths[:, None] / lengths)) > 0.1].max(initial=0.0))


LENGTHS = {
    "far apart": np.geomspace(30.0, 0.03, 30),
    "one long": np.r_[50.0, np.ones(29)],
    "equal": np.ones(30),
    "condition 1e14": np.geomspace(1e3, 1e-4, 30),
}


@through("refresh", [turned, decomposed])
@through("kind", LENGTHS)
def test_a_refresh_changes_the_axes_and_nothing_else(kind: str, refresh: Any) -> None:
    rng = np.random.default_rng(3)
    axes = nearly_orthogonal(LENGTHS[kind], 0.1, rng)
    new = refresh(axes, NUMPY)
    B = axes.F @ axes.A
    np.testing.assert_allclose(new.F @ new.A, B, rtol=0, atol=1e-13 * np.abs(B).max())
    np.testing.assert_allclose(new.F.T @ new.F, np.eye(30), atol=1e-13)
    np.testing.assert_allclose(new.A @ new.A_inverse, np.eye(30), atol=1e-7 if "1e14" in kind else 1e-11)
    np.testing.assert_allclose(new.F @ new.p_c, axes.F @ axes.p_c, atol=1e-12)
    before, after = off_diagonal(axes.A), off_diagonal(new.A)
    assert after <= (1e-8 if refresh is decomposed else 0.5 * before)
    without = refresh(axes._replace(A_inverse=None), NUMPY)
    assert without.A_inverse is None
    np.testing.assert_array_equal(without.A, new.A)


def test_turning_again_and_again_decomposes() -> None:
    """Where lengths differ, each turn squares what the last one left, and the longest stands first."""
    axes = nearly_orthogonal(np.geomspace(0.03, 30.0, 30), 0.1, np.random.default_rng(5))
    left = [off_diagonal(axes.A)]
    for _ in range(6):
        axes = turned(axes, NUMPY)
        left.append(off_diagonal(axes.A))
    assert left[-1] < 1e-13
    assert (np.diff(np.linalg.norm(axes.A, axis=1)) < 0).all()


@pytest.mark.parametrize("A", [np.eye(30), np.zeros((30, 30)), np.full((30, 30), np.nan)])
def test_a_turn_of_nothing_or_of_nonsense_raises_nothing(A: np.ndarray) -> None:
    eye = np.eye(30)
    with np.errstate(all="ignore"):
        new = turned(Axes(eye, A, A, np.ones(30)), NUMPY)
    assert np.isnan(A).any() or np.array_equal(new.F, eye)


@pytest.mark.parametrize("problem", ["rotated-ellipsoid", "rosenbrock", "ic-sphere"])
def test_the_default_refresh_searches_like_the_literal_one(problem: str) -> None:
    """A few seeds at d = 10; benchmarks/same_search.py does it at 10, 40 and 100 on all problems."""

    def cell(refresh: int | None) -> tuple[float, float, int]:
        return summary([evaluations(Case("fm-nes", problem, 10, 20, refresh, seed)) for seed in range(6)])

    lazy, lazy_error, solved = cell(None)
    literal, literal_error, literally_solved = cell(1)
    assert solved >= 4 and literally_solved >= 4  # Rosenbrock has a second optimum
    assert abs(lazy - literal) < 4 * np.hypot(lazy_error, literal_error)


@pytest.mark.parametrize("d", [2, 40])
def test_drift_is_bounded(d: int) -> None:
    """A⁻¹ stays the inverse of A, and F orthogonal, over thousands of generations and many refreshes."""
    problem = problems.get("rotated-ellipsoid", d=d)
    opt = Optimizer(problem.x0, problem.sigma0, method=FMNES(), rng=1)
    worst = 0.0
    for generation in range(3000):
        opt.tell(problem.fun(opt.ask()))
        if generation % 97 == 0:
            F, A, inverse = (getattr(opt._distribution.state, name) for name in ("F", "A", "A_inverse"))
            worst = max(worst, np.abs(A @ inverse - np.eye(d)).max(), np.abs(F.T @ F - np.eye(d)).max())
    assert worst < 1e-9
