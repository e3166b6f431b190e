"""The models of the surrogate: values, edge of failures, Gaussian process, quasi-random points."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from fmnes.surrogate import edge_model, elsewhere, gaussian_process, kernels, quasi_random, value_model
from fmnes.surrogate.evaluated import Evaluated
from fmnes.surrogate.trust_region import Snap
from tests.reference import surrogate as reference


def cloud(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Normal points, nearest to the origin first."""
    z = np.random.default_rng([seed, n, d]).standard_normal((n, d))
    return z[np.argsort(np.square(z).sum(axis=1), kind="stable")]


def bowl(z: np.ndarray) -> np.ndarray:
    return np.square(z - 0.3) @ 10.0 ** np.linspace(0, 2, z.shape[1])


# -- normal distribution ----------------------------------------------------------------------------------


def test_normal_distribution_has_all_its_digits() -> None:
    special = pytest.importorskip("scipy.special")
    u = np.concatenate([-np.logspace(-3, 6, 400), np.logspace(-3, 1, 200), [0.0]])
    assert np.allclose(kernels.log_cdf(u), special.log_ndtr(u), rtol=1e-11, atol=0.0)
    near = u[np.abs(u) < 37]
    assert np.allclose(kernels.cdf(near), special.ndtr(near), rtol=1e-12, atol=0.0)
    p = np.concatenate([np.logspace(-300, -1, 200), np.linspace(0.1, 0.999, 50)])
    assert np.allclose(kernels.inverse_cdf(p), special.ndtri(p), rtol=1e-9, atol=1e-12)


def test_normal_distribution_agrees_with_the_standard_library() -> None:
    for u in (-5.0, -0.3, 0.0, 2.0):
        assert kernels.cdf(u) == pytest.approx(NormalDist().cdf(u), rel=1e-12)
        assert kernels.density(u) == pytest.approx(NormalDist().pdf(u), rel=1e-12)


# -- quasi-random points ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 7, 40, 200])
def test_points_fill_each_coordinate_and_can_be_continued(d: int) -> None:
    x = quasi_random.points(64, d, 5)
    assert x.shape == (64, d) and (x > 0).all() and (x < 1).all()
    assert np.array_equal(x[20:], quasi_random.points(44, d, 5, skip=20))
    assert not np.array_equal(x, quasi_random.points(64, d, 6))
    assert len(np.unique(np.floor(x[:, 0] * 64))) == 64
    if d > 1:
        assert len(np.unique(np.floor(x[:27, 1] * 27))) == 27


@pytest.mark.parametrize("d", [2, 5, 10])
def test_points_are_as_even_as_the_sequence_of_sobol(d: int) -> None:
    qmc = pytest.importorskip("scipy.stats").qmc
    own = [qmc.discrepancy(quasi_random.points(100, d, s)) for s in range(5)]
    sobol = [qmc.discrepancy(qmc.Sobol(d, rng=s).random(128)[:100]) for s in range(5)]
    uniform = [qmc.discrepancy(np.random.default_rng(s).random((100, d))) for s in range(5)]
    assert np.mean(own) < 1.4 * np.mean(sobol) and np.mean(own) < 0.7 * np.mean(uniform)


def test_normal_points_are_normal() -> None:
    z = quasi_random.normal_points(512, 3, 1)
    assert np.allclose(z.mean(axis=0), 0.0, atol=0.02) and np.allclose(z.std(axis=0), 1.0, atol=0.02)


# -- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 5])
def test_value_model_predicts_a_quadratic(d: int) -> None:
    z = cloud(6 * d + 20, d)
    model = value_model.fit(z, bowl(z), len(z))
    assert model is not None and model.tau > 0.97
    new = cloud(50, d, seed=1) * 0.5
    truth = value_model.transformed(model, bowl(new))
    inside = (bowl(new) > bowl(z).min()) & (bowl(new) < bowl(z).max())
    assert np.abs(value_model.predict(model, new) - truth)[inside].max() < 0.5
    assert np.allclose(
        value_model.transformed(model, bowl(z)), value_model.transform(bowl(z), model.kind), atol=1e-12
    )


def test_value_model_needs_points_and_values() -> None:
    z = cloud(10, 2)
    assert value_model.fit(z[:3], bowl(z[:3]), 3) is None
    assert value_model.fit(z, np.ones(10), 10) is None
    assert value_model.fit(z, np.arange(10) % 2.0, 10) is None
    assert value_model.fit(z, np.arange(10) % 3.0, 10) is not None


def test_transforms_are_monotone_and_give_ties_one_value() -> None:
    y = np.array([3.0, -1e150, 3.0, 1e-150, 1e150, 0.0, -5.0, 3.0])
    order = np.argsort(y, kind="stable")
    for kind in value_model.TRANSFORMS:
        t = value_model.transform(y, kind)
        assert (np.diff(t[order]) >= 0).all() and t[0] == t[2] == t[7]
        assert t.mean() == pytest.approx(0, abs=1e-12) and t.std() == pytest.approx(1)
        assert not value_model.transform(np.full(5, 2.0), kind).any()


# -- edge -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 5])
def test_edge_model_bisects_a_half_space(d: int) -> None:
    z = cloud(40 * d, d)
    model = edge_model.fit(z, z.sum(axis=1) < 0.2)
    assert model.constant is None
    assert ((model.loo > 0) == (z.sum(axis=1) < 0.2)).mean() > 0.9
    below, above = z[z.sum(axis=1) < 0.2], z[z.sum(axis=1) >= 0.2]
    assert (edge_model.margin(model, below) > 0).all() and (edge_model.margin(model, above) < 0).all()


def test_edge_model_finds_a_corner() -> None:
    z = cloud(300, 3)
    worked = (z < 0.5).all(axis=1)
    new = cloud(1000, 3, seed=1)
    model = edge_model.fit(z, worked)
    assert ((edge_model.margin(model, new) > 0) == (new < 0.5).all(axis=1)).mean() > 0.93


def test_edge_model_without_an_edge() -> None:
    z = cloud(5, 2)
    for worked, constant in ((np.ones(5, bool), 1.0), (np.zeros(5, bool), -1.0)):
        model = edge_model.fit(z, worked)
        assert model.constant == constant and (model.loo == constant).all() and model.loss == 0.0
        assert (edge_model.margin(model, z) == constant).all()


# -- Gaussian process -------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 5])
def test_gaussian_process_predicts_its_points(d: int) -> None:
    z = cloud(20 + 10 * d, d) / 3
    y = gaussian_process.warp(bowl(z))
    gp = gaussian_process.fit(z, y)
    mean, sd = gaussian_process.predict(gp, z)
    assert np.abs(mean * gp.scale_y + gp.mean_y - y).max() < 0.1 * y.std()
    assert (sd < 0.2).all() and gp.best_y == pytest.approx((y.min() - gp.mean_y) / gp.scale_y)
    assert gaussian_process.predict(gp, np.full((1, d), 100.0))[1] > 3 * sd.max()
    assert np.array_equal(gaussian_process.fit(z, y, gp.theta, 0).theta, gp.theta)
    assert np.array_equal(gp.length_scales, np.exp(gp.theta[:d]))


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("n, d", [(7, 1), (30, 2), (40, 5), (60, 10)])
def test_the_fit_reaches_the_posterior_of_scipy(n: int, d: int, labels: bool) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    z = cloud(n, d) / 2
    y = np.where(z.sum(axis=1) < 0.3, 1.0, -1.0) if labels else gaussian_process.warp(bowl(z))
    options = {"noise": 1e-3, "length_prior": (np.log(0.7), 0.8)} if labels else {}
    gp = gaussian_process.fit(z, y, **options)
    standardised = (y - gp.mean_y) / gp.scale_y
    prior = gaussian_process.prior(d, options.get("length_prior", gaussian_process.LENGTH_PRIOR))

    def posterior(theta: np.ndarray) -> tuple[float, np.ndarray]:
        return gaussian_process.negative_log_posterior(z, standardised, theta, *prior)

    noise = np.log(options.get("noise", 1e-6))
    limits = [(np.log(0.01), np.log(20.0))] * d + [(-4.0, 4.0), (noise, np.log(0.3))]
    start = np.clip(prior[0], *np.transpose(limits))
    best = optimize.minimize(
        posterior, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 25}
    )
    assert posterior(gp.theta)[0] < best.fun + 0.02
    assert all(low <= t <= high for t, (low, high) in zip(gp.theta, limits, strict=True))


def test_log_expected_improvement_in_both_tails() -> None:
    mpmath_values = {0.0: -0.9189385332046727, 3.0: 1.0987395, -5.0: -16.7443, -25.0: -319.8615}
    for u, expected in mpmath_values.items():
        value = gaussian_process.log_expected_improvement(np.array([0.0]), np.array([1.0]), u)
        assert value[0] == pytest.approx(expected, rel=1e-4)
    u = np.linspace(-25.001, -24.999, 9)
    value = gaussian_process.log_expected_improvement(-u, np.ones(9), 0.0)
    assert np.allclose(np.diff(value, 2), 0.0, atol=1e-6)
    assert gaussian_process.log_expected_improvement(np.array([1e6]), np.array([1e-3]), 0.0)[0] < -1e17


def test_probability_of_labels() -> None:
    z = cloud(80, 2)
    labels = np.where(z[:, 0] < 0.3, 1.0, -1.0)
    gp = gaussian_process.fit(z, labels, iterations=15, noise=1e-3, length_prior=(np.log(0.7), 0.8))
    p = np.exp(gaussian_process.probability_log(gp, np.array([[-1.0, 0.0], [1.5, 0.0], [30.0, 0.0]])))
    assert p[0] > 0.9 and p[1] < 0.1 and 0.2 < p[2] < 0.8


def test_warp_is_monotone_over_300_decades() -> None:
    y = np.concatenate([[0.0, 0.0], np.logspace(-150, 150, 61), -np.logspace(-150, 150, 20)])
    warped = gaussian_process.warp(y)
    assert np.isfinite(warped).all() and (np.diff(warped[np.argsort(y, kind="stable")]) >= 0).all()
    assert not gaussian_process.warp(np.full(4, 7.0)).any()
    plateau = gaussian_process.warp(np.array([1.0, 1.0, 1.0, 1.0, 3.0]))
    assert plateau[4] > 0 and not plateau[:4].any()


# -- the literal transcriptions ---------------------------------------------------------------------------


def test_value_model_is_that_of_the_transcription() -> None:
    for seed, (n, d, n_check) in enumerate([(6, 1, 6), (8, 2, 5), (12, 3, 8), (14, 2, 14), (5, 4, 5)]):
        z = cloud(n, d, seed)
        f = bowl(z) ** 2 + np.sin(5 * z).sum(axis=1)
        f[2] = f[4]
        model = value_model.fit(z, f, n_check)
        assert model is not None
        candidates = reference.value_candidates(z, f, n_check)
        _, tau, loo, predict = max(candidates, key=lambda each: each[0])
        assert model.tau == pytest.approx(tau, abs=1e-12)
        assert np.allclose(model.loo, loo, rtol=1e-4, atol=1e-4)
        new = cloud(9, d, seed + 100)
        assert np.allclose(value_model.predict(model, new), predict(new), rtol=1e-4, atol=1e-4)


def test_transforms_are_those_of_the_transcription() -> None:
    for n in (4, 5, 11, 30):
        f = np.random.default_rng(n).standard_normal(n)
        f[1] = f[3]
        for kind, expected in zip(value_model.TRANSFORMS, reference.transforms(f), strict=True):
            assert np.allclose(value_model.transform(f, kind), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_edge_model_is_that_of_the_transcription(seed: int) -> None:
    n, d = [(7, 1), (8, 2), (9, 3)][seed % 3]
    z = cloud(n, d, seed)
    worked = (z[:, 0] < 0.4) & (z[:, -1] > -0.6)
    model = edge_model.fit(z, worked)
    candidates = reference.edge_candidates(z, worked)
    if min(loss for loss, _, _ in candidates) > 0.02 and 1 < worked.sum() < n - 1:
        candidates.append(reference.polyhedron(z, worked, d))
    loss, loo, margin = min(candidates, key=lambda each: each[0])
    assert model.loss == pytest.approx(loss, abs=1e-6)
    assert np.allclose(model.loo, loo, rtol=1e-5, atol=1e-5)
    new = cloud(20, d, seed + 100)
    assert np.allclose(edge_model.margin(model, new), margin(new), rtol=1e-5, atol=1e-5)


def test_posterior_and_its_gradient_are_those_of_the_transcription() -> None:
    for seed, (n, d) in enumerate([(1, 1), (5, 1), (9, 2), (12, 4)]):
        x, rng = cloud(n, d, seed) / 2, np.random.default_rng(seed)
        y = rng.standard_normal(n)
        theta = np.concatenate([rng.uniform(-1, 1, d + 1), [-4.0]])
        limits = gaussian_process.prior(d, gaussian_process.LENGTH_PRIOR)
        value, gradient = gaussian_process.negative_log_posterior(x, y, theta, *limits)

        def literal(t: np.ndarray, x: np.ndarray = x, y: np.ndarray = y) -> float:
            return reference.negative_log_posterior(x, y, t, gaussian_process.LENGTH_PRIOR)

        assert value == pytest.approx(literal(theta), rel=1e-10)
        for i in range(d + 2):
            step = 1e-5 * (np.arange(d + 2) == i)
            slope = (literal(theta + step) - literal(theta - step)) / 2e-5
            assert gradient[i] == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_gaussian_process_is_that_of_the_transcription() -> None:
    for n, d in [(1, 1), (6, 1), (12, 2)]:
        x = cloud(n, d) / 2
        y = bowl(x)
        gp = gaussian_process.fit(x, y)
        standardised = (y - y.mean()) / (y.std() or 1.0)

        def literal(t: np.ndarray, x: np.ndarray = x, y: np.ndarray = standardised) -> float:
            return reference.negative_log_posterior(x, y, t, gaussian_process.LENGTH_PRIOR)

        lower = np.log([0.01] * d + [math.exp(-4), 1e-6])
        upper = np.log([20.0] * d + [math.exp(4), 0.3])
        start = gaussian_process.prior(d, gaussian_process.LENGTH_PRIOR)[0]
        assert literal(gp.theta) < reference.pattern_search(literal, start, lower, upper)[1] + 0.01
        new = cloud(7, d, seed=1)
        mean, sd = gaussian_process.predict(gp, new)
        expected = reference.conditional(x, standardised, gp.theta, new)
        assert np.allclose(mean, expected[0], rtol=1e-6, atol=1e-6)
        assert np.allclose(sd, expected[1], rtol=1e-5, atol=1e-5)


def test_expected_improvement_and_warp_are_those_of_the_transcription() -> None:
    for mean, sd, best in [(0.0, 1.0, 0.5), (1.0, 0.3, 0.9), (2.0, 0.4, 0.0), (0.0, 1.0, -6.0)]:
        value = gaussian_process.log_expected_improvement(np.array([mean]), np.array([sd]), best)
        literal = math.log(reference.expected_improvement(mean, sd, best))
        assert value[0] == pytest.approx(literal, abs=1e-5)
    f = np.random.default_rng(1).standard_normal(9)
    assert np.allclose(gaussian_process.warp(f), reference.warp(f), rtol=1e-12)


def test_points_are_those_of_the_transcription() -> None:
    table = quasi_random._permutations(6, 3)
    assert [base for base, _ in table] == [2, 3, 5, 7, 11, 13]
    literal = [[reference.halton(i, *row) for row in table] for i in range(4, 30)]
    assert np.allclose(quasi_random.points(26, 6, 3, skip=4), literal, rtol=0, atol=1e-15)


def test_the_quadratic_edge_is_the_same_by_kernel_and_by_features() -> None:
    z = cloud(60, 2)
    labels = np.where(np.square(z).sum(axis=1) + 0.3 * np.sin(9 * z[:, 0]) < 2.0, 1.0, -1.0)
    points = z / value_model.scale_of(z)
    gram = points @ points.T
    matrix = 1 + gram + 0.1 * gram**2
    ridge = edge_model.RIDGE * np.trace(matrix) / 60
    by_kernel = edge_model._machine(matrix, labels, ridge, np.zeros(60))
    by_features = edge_model._quadratic_machine(points, labels, np.zeros(3))
    assert by_kernel is not None
    assert np.allclose(matrix @ by_kernel[0], matrix @ by_features[0], rtol=1e-5, atol=1e-5)
    assert np.allclose(by_kernel[1], by_features[1], rtol=1e-4, atol=1e-4)


# -- other parts of the box -------------------------------------------------------------------------------


def evaluations(u: np.ndarray, y: np.ndarray) -> Evaluated:
    data = Evaluated(u.shape[1])
    for point, value in zip(u, y, strict=True):
        data.add(point, float(value))
    return data


def proposed(data: Evaluated, ended: np.ndarray, n: int = 12, snap: Snap | None = None) -> np.ndarray:
    low, high = np.zeros(data.d), np.ones(data.d)
    rngs = (np.random.default_rng(seed) for seed in range(n))
    return np.array([elsewhere.propose(data, ended, low, high, rng, snap) for rng in rngs])


def test_a_restart_keeps_away_from_where_searches_have_ended() -> None:
    u = quasi_random.points(30, 2, 1)
    y = np.square(u - 0.5).sum(axis=1)  # it would propose the middle
    none = np.empty((0, 2))
    assert (np.abs(proposed(evaluations(u, y), none) - 0.5) < 0.1).all(axis=1).mean() > 0.8
    away = proposed(evaluations(u, y), np.array([[0.5, 0.5]]))
    assert (np.abs(away - 0.5).max(axis=1) >= elsewhere.EXCLUDED).all()
    assert (away >= 0).all() and (away <= 1).all()


def test_a_restart_keeps_away_from_failures() -> None:
    u = quasi_random.points(40, 2, 1)
    y = np.where(u[:, 0] < 0.6, np.nan, u[:, 0])  # the values fall towards the part that fails
    assert (proposed(evaluations(u, y), np.empty((0, 2)))[:, 0] > 0.5).all()


def test_equal_values_lead_all_over_the_box() -> None:
    """Without a difference the expected improvement is largest at the corners of the box."""
    u = quasi_random.points(20, 3, 1)
    found = proposed(evaluations(u, np.ones(20)), np.empty((0, 3)), 40)
    assert (np.abs(found - 0.5) > 0.45).all(axis=1).mean() < 0.2
    assert ((found > 0.25) & (found < 0.75)).mean(axis=0).min() > 0.25


def test_a_restart_proposes_points_of_the_grid_that_are_not_known() -> None:
    def snap(u: np.ndarray) -> np.ndarray:
        return np.round(u * 4) / 4

    cells = np.stack(np.meshgrid(*[np.arange(5) / 4] * 2), axis=-1).reshape(-1, 2)[:-3]
    found = proposed(evaluations(cells, cells.sum(axis=1)), np.empty((0, 2)), 4, snap)
    assert {tuple(point) for point in found} <= {(0.5, 1.0), (0.75, 1.0), (1.0, 1.0)}
