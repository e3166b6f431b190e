"""Searches that begin with a known shape, and runs that begin where another one ended."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import FMNES, XNES, ArgumentError, Optimizer, Resampling, minimize
from tests.rows import through

ROTATION = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 4)))[0]
SCALES = np.array([1.0, 3.0, 30.0, 100.0])
#: The shape that suits `valley`.
COVARIANCE = (ROTATION / SCALES**2) @ ROTATION.T


def valley(x: Any, at: float = 0.0) -> float:
    y = SCALES * (ROTATION.T @ (x - at))
    return float(y @ y)


@pytest.mark.parametrize("method", ["fm-nes", "dx-nes-ic", "xnes", Resampling(XNES())])
def test_the_first_points_have_the_covariance(method: Any) -> None:
    opt = Optimizer(np.zeros(4), method=method, rng=1, population_size=20_000, covariance=COVARIANCE)
    x = opt.ask()
    ratio = np.linalg.solve(COVARIANCE, np.cov(x.T, bias=True))
    np.testing.assert_allclose(ratio, np.eye(4), atol=0.05 * SCALES.max() / SCALES.min())
    np.testing.assert_allclose(np.linalg.eigvals(ratio), np.ones(4), atol=0.1)
    np.testing.assert_allclose(opt.covariance, COVARIANCE, rtol=1e-10, atol=1e-14)


def test_with_sigma0_it_gives_the_shape_only() -> None:
    opt = Optimizer(np.zeros(4), 0.5, covariance=COVARIANCE)
    assert np.linalg.det(opt.covariance) ** (1 / 8) == pytest.approx(0.5)
    ratio = opt.covariance / COVARIANCE
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-8)
    assert opt.sigma == pytest.approx(0.5)


def test_a_good_shape_saves_evaluations_and_is_saved(tmp_path: Path) -> None:
    settings: Any = {"rng": 1, "target": 1e-10, "method": "fm-nes"}
    plain = minimize(valley, np.ones(4), 0.5, **settings)
    shaped = minimize(valley, np.ones(4), 0.5, covariance=COVARIANCE, **settings)
    assert plain.success and shaped.success and shaped.nfev < 0.7 * plain.nfev
    opt = Optimizer(np.ones(4), rng=1, covariance=COVARIANCE)
    opt.save(tmp_path / "saved.npz")
    np.testing.assert_array_equal(Optimizer.load(tmp_path / "saved.npz").ask(), opt.ask())


@through(
    ("settings", "words"),
    [
        ({"covariance": np.eye(3)}, r"covariance: found shape \(3, 3\)"),
        ({"covariance": "text"}, "covariance: found 'text'"),
        ({"covariance": np.full((2, 2), np.nan)}, "covariance: found NaN"),
        ({"covariance": [[1.0, 0.5], [0.0, 1.0]]}, "not symmetric"),
        ({"covariance": [[1.0, 2.0], [2.0, 1.0]]}, "found eigenvalues from -1 to 3"),
        ({"covariance": [[1.0, 1.0], [1.0, 1.0]]}, "found eigenvalues"),
        ({"covariance": np.zeros((2, 2))}, "found eigenvalues"),
        ({"covariance": np.eye(2), "sigma0": [1.0, 2.0]}, "sigma0: found one for each coordinate"),
        ({"covariance": np.eye(2), "method": "cma-es"}, "covariance: found it together with 'cma-es'"),
        ({"covariance": np.eye(2), "method": "cr-fm-nes"}, "covariance: .*'cr-fm-nes'"),
        ({"covariance": np.eye(2), "method": FMNES(B0=np.eye(2))}, "covariance: .*B0"),
        ({}, "sigma0: found none"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Optimizer([1.0, 2.0], **settings)
    with pytest.raises(ArgumentError, match=words):
        minimize(lambda x: 1 / 0, [1.0, 2.0], **settings)


# -- warm_start -------------------------------------------------------------------------------------------


def shifted(x: Any) -> float:
    return valley(x, 0.02)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("method", ["fm-nes", "cma-es"])
def test_a_similar_problem_is_solved_sooner(kept: bool, method: str, tmp_path: Path) -> None:
    settings: Any = {"target": 1e-8, "method": method}
    run = tmp_path / "run" if kept else None
    before = minimize(valley, np.ones(4), 0.5, rng=1, run_dir=run, **settings)
    cold = minimize(shifted, np.ones(4), 0.5, rng=2, **settings)
    points: list[Any] = []
    warm = minimize(lambda x: points.append(x) or shifted(x), warm_start=run or before, rng=2, **settings)
    np.testing.assert_array_equal(points[0], before.x)  # evaluated anew: the objective is another
    assert cold.success and warm.success and warm.nfev < cold.nfev
    assert warm.nfev < (0.6 if method == "fm-nes" else 0.9) * cold.nfev


def test_the_steps_are_wider_than_the_last_and_not_far_below_the_first() -> None:
    converged = minimize(valley, np.ones(4), 0.5, rng=1)
    cut = minimize(valley, np.ones(4), 0.5, rng=1, max_evaluations=100, surrogate=False)
    assert converged.sigma0 == cut.sigma0 == 0.5
    size = np.linalg.det(cut.covariance) ** (1 / 8)  # type: ignore[arg-type]
    for before, wanted in ((converged, 0.05), (cut, 2 * size)):
        seen: list[fmnes.View] = []
        minimize(valley, warm_start=before, rng=1, max_evaluations=10, surrogate=False, callback=seen.append)
        assert seen[0].sigma == pytest.approx(wanted, rel=0.3)


def test_what_is_given_wins() -> None:
    before = minimize(valley, np.ones(4), 0.5, rng=1, max_evaluations=500)
    points: list[Any] = []

    def fun(x: Any) -> float:
        points.append(x)
        return valley(x)

    minimize(fun, [7.0] * 4, 1e-3, warm_start=before, max_evaluations=20)
    np.testing.assert_array_equal(points[0], [7.0] * 4)
    assert 1e-5 < np.abs(np.array(points[1:]) - 7.0).max() < 0.1
    for each in ([1e-3] * 4, None):
        minimize(
            fun, sigma0=each, covariance=None if each else np.eye(4), warm_start=before, max_evaluations=9
        )


def test_a_run_without_a_feasible_point_gives_its_mean() -> None:
    before = minimize(lambda x: math.nan, [1.0, 2.0], 0.5, rng=1, max_evaluations=30)
    result = minimize(lambda x: float(x @ x), warm_start=before, rng=1)
    assert before.x is None and result.success


def test_many_coordinates_have_no_covariance() -> None:
    before = minimize(lambda x: float(x @ x), np.ones(301), 0.5, method="cr-fm-nes", max_evaluations=50)
    assert before.covariance is None
    after = minimize(lambda x: float(x @ x), warm_start=before, method="cr-fm-nes", max_evaluations=50)
    assert after.fun <= before.fun


def test_what_is_nothing_to_begin_from_is_refused(tmp_path: Path) -> None:
    before = minimize(lambda x: float(x @ x), [1.0, 2.0], 0.5, max_evaluations=10)
    for found, words in (
        (3, "found 3"),
        (tmp_path, "no config.json"),
        (tmp_path / "none", "found nothing there"),
    ):
        with pytest.raises(ArgumentError, match=f"warm_start: .*{words}"):
            minimize(lambda x: 1 / 0, warm_start=found)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="x0: found 3 coordinates, wanted 2"):
        minimize(lambda x: 1 / 0, [1.0, 2.0, 3.0], warm_start=before)
    with pytest.raises(ArgumentError, match="x0: found none"):
        minimize(lambda x: 1 / 0)
