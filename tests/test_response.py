"""The response surface of noisy values: what it finds, what it leaves alone, and how it is saved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fmnes
from fmnes import Optimizer, SnapshotError
from fmnes.search import response
from fmnes.search.distribution import Distribution
from fmnes.search.response import Record, fit_surface, shape_factor
from fmnes.search.start import Start

Floats = Any


def distribution(d: int, bounds: Any = None, mean: float = 0.0, sigma: float = 1.0) -> Distribution:
    start = Start.of(np.full(d, mean), sigma, "afm-nes", None, bounds, "map", None)
    return Distribution(start, np.random.default_rng(1))


def record(f: Any, d: int, n: int, noise: float, seed: int = 1, spread: float = 1.0) -> Record:
    rng = np.random.default_rng([seed, d])
    x = spread * rng.standard_normal((n, d))
    found = Record()
    found.add(x, np.array([f(p) for p in x]) + noise * rng.standard_normal(n))
    return found


@pytest.mark.parametrize("d", [1, 2, 6])
def test_without_noise_it_is_the_quadratic_function_itself(d: int) -> None:
    rng = np.random.default_rng(d)
    A = rng.standard_normal((d, d))
    H, optimum = A @ A.T + np.eye(d), 0.3 * rng.standard_normal(d)
    points = record(lambda x: 0.5 * (x - optimum) @ H @ (x - optimum) - 7, d, 200, 0.0)
    surface = fit_surface(points, distribution(d))
    assert surface is not None
    assert_allclose(surface.x, optimum, atol=1e-4)
    assert_allclose(surface.fit.hessian * surface.scale, H, rtol=1e-3, atol=1e-3)
    assert surface.minimum.share > 0.999


def test_the_loss_is_what_the_minimum_loses() -> None:
    d, gains, losses, values, shares = 4, [], [], [], []
    for seed in range(60):
        surface = fit_surface(record(lambda x: x @ x, d, 600, 3.0, seed), distribution(d))
        assert surface is not None
        z = surface.minimum.z
        gains.append(surface.minimum.gain * surface.scale)
        losses.append(surface.minimum.loss * surface.scale)
        values.append(float(z @ z))
        shares.append(surface.minimum.share)
    # The mean is the optimum here: all that is gained is by chance, and as much is lost.
    assert 0.5 < np.median(values) / np.median(losses) < 1.6
    assert 0.5 < np.median(gains) / np.median(losses) < 1.6
    assert np.median(shares) < 0.3


def test_the_point_is_better_than_the_mean_and_than_the_predicted_minimum() -> None:
    d, at_mean, at_minimum, at_x = 6, [], [], []
    for seed in range(40):
        optimum = np.full(d, 0.15)
        points = record(lambda x: (x - optimum) @ (x - optimum), d, 700, 4.0, seed)  # noqa: B023
        surface = fit_surface(points, distribution(d))
        assert surface is not None
        for x, found in ((surface.mean, at_mean), (surface.minimum.z, at_minimum), (surface.x, at_x)):
            found.append(float((x - optimum) @ (x - optimum)))
    assert np.mean(at_x) < 0.95 * min(np.mean(at_mean), np.mean(at_minimum))


def test_pure_noise_moves_nothing_and_shapes_nothing() -> None:
    moves = []
    for seed in range(20):
        surface = fit_surface(record(lambda x: 0.0, 5, 2000, 1.0, seed), distribution(5))
        assert surface is not None
        moves.append(float(np.linalg.norm(surface.minimum.share * surface.minimum.z)))
    assert np.median(moves) < 1.0
    assert shape_factor(-np.eye(3)) is None


def test_the_shape_factor_makes_it_rounder_and_has_determinant_one() -> None:
    H = np.diag([1.0, 2.0, 3.0])
    M = shape_factor(H)
    assert M is not None
    assert_allclose(np.linalg.det(M), 1.0)
    round = M @ H @ M
    assert_allclose(round, round[0, 0] * np.eye(3), atol=1e-12)
    long = shape_factor(np.diag([1.0, 1.0, 1e-9, -1.0, 1e9]))
    assert long is not None
    lengths = np.linalg.eigvalsh(long)
    assert lengths.max() / lengths.min() < 4.001


def test_points_that_another_function_fits_are_left_out() -> None:
    d = 3
    points = record(lambda x: 50 + 20 * x[0], d, 500, 0.1, 1)  # far away once
    rng = np.random.default_rng(2)
    x = rng.standard_normal((500, d))
    points.add(x, np.einsum("ij,ij->i", x - 0.4, x - 0.4) + 0.1 * rng.standard_normal(500))
    surface = fit_surface(points, distribution(d))
    assert surface is not None
    assert len(surface.fit.values) <= 500
    assert_allclose(surface.x, 0.4, atol=0.05)


def test_noise_that_grows_with_the_value_gets_smaller_weights() -> None:
    d, equal, weighted = 4, [], []
    for seed in range(30):
        rng = np.random.default_rng([seed, 8])
        z = 2 * rng.standard_normal((800, d))
        f = np.einsum("ij,ij->i", z - 0.5, z - 0.5) * (1 + 0.5 * rng.standard_normal(800))
        first = response._fit(response._features(z), d, f, np.ones(800))
        second = response._weighted_fit(z, f)
        assert second.weights.min() < 0.3
        for fit, errors in ((first, equal), (second, weighted)):
            errors.append(float(np.linalg.norm(-np.linalg.solve(fit.hessian, fit.gradient) - 0.5)))
    assert np.mean(weighted) < 0.9 * np.mean(equal)


def test_the_minimum_stays_within_the_bounds() -> None:
    optimum = np.array([3.0, 0.2, -0.4])

    def f(x: Floats) -> float:
        y = x - optimum
        return float(y @ y + 1.5 * y[0] * y[1])

    start = distribution(3, bounds=[(-2.0, 0.5), (-2.0, 5.0), (-2.0, 5.0)], sigma=0.5)
    surface = fit_surface(record(f, 3, 2000, 0.05, spread=0.4), start)
    assert surface is not None
    x = surface.x
    assert x[0] <= 0.5 + 1e-6
    if surface.minimum.share > 0.99 and np.linalg.norm(surface.minimum.z) < 1.7:
        # At the bound the other coordinates have their own minimum.
        assert_allclose(x[1], 0.2 + 0.75 * 2.5, atol=0.2)


def test_it_does_not_lead_where_most_points_failed() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1000, 2))
    f = np.einsum("ij,ij->i", x - [1.2, 0.0], x - [1.2, 0.0])
    points = Record()
    points.add(x, np.where(x[:, 0] > 0.8, np.nan, f))
    surface = fit_surface(points, distribution(2))
    assert surface is not None and surface.minimum.share == 0.0


@pytest.mark.parametrize("values", ["equal", "huge", "few", "failed"])
def test_what_cannot_be_fitted_moves_nothing(values: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 3))
    f = {
        "equal": np.zeros(300),
        "huge": np.where(rng.random(300) < 0.5, 1.7e308, -1.7e308),
        "few": np.where(np.arange(300) < 280, np.nan, 1.0),
        "failed": np.full(300, np.nan),
    }[values]
    points, start = Record(), distribution(3)
    points.add(x, f)
    surface = fit_surface(points, start)
    assert surface is None or np.isfinite(surface.x).all()
    response.step(points, start)
    assert np.isfinite(start.mean).all() and points.next_fit > 300


def test_a_record_keeps_the_last_points_and_is_restored() -> None:
    whole, parts = Record(), Record()
    rng = np.random.default_rng(3)
    for i in range(80):
        x = rng.standard_normal((500, 2))
        whole.add(x, x[:, 0])
        parts.add(x, x[:, 0])
        if i % 7 == 0:
            parts = Record.restore(*parts.dump())
    assert whole.total == parts.total == 40_000
    np.testing.assert_array_equal(whole.table, parts.table)
    assert len(whole.table) <= 1.5 * response.MOST_POINTS
    with pytest.raises(SnapshotError):
        Record.restore([0, 3], np.zeros((4, 2)))
    with pytest.raises(SnapshotError):
        Record.restore([0, 9], np.full((4, 2), np.nan))


def test_a_noisy_search_follows_it() -> None:
    def last(noise: float, f: Any, seed: int) -> float:
        chance = np.random.default_rng([seed, 9])
        result = fmnes.minimize(
            lambda x: f(x) + noise * chance.standard_normal(),
            [3.0] * 6,
            2.0,
            rng=seed,
            max_evaluations=5000,
            noise=True,
            surrogate=False,
        )
        return float(f(result.x))

    def cigar(x: Floats) -> float:
        return float(x[0] ** 2 + 1e4 * (x[1:] @ x[1:]))

    assert np.median([last(1.0, cigar, seed) for seed in range(3)]) < 0.1


def test_a_search_is_the_same_after_it_was_saved(tmp_path: Any) -> None:
    def values(opt: Optimizer, first: int) -> None:
        for i in range(first, first + 40):
            chance = np.random.default_rng([i, 4])
            X = opt.ask()
            opt.tell([float(x @ x) + chance.standard_normal() for x in X])

    whole = Optimizer([3.0, 2.0], 1.0, rng=1, noise=True)
    parts = Optimizer([3.0, 2.0], 1.0, rng=1, noise=True)
    for i in range(6):
        values(whole, 40 * i)
        values(parts, 40 * i)
        parts.save(tmp_path / "search.npz")
        parts = Optimizer.load(tmp_path / "search.npz")
    assert whole.noise is not None and whole.noise.record.next_fit > 0
    np.testing.assert_array_equal(whole.ask(), parts.ask())
    assert math.isfinite(whole.sigma)
