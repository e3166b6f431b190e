"""Models of several outputs, and the minimum of one of them under limits on the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fmnes.surrogate import constrained_step, output_models
from tests.reference import output_models as reference


def cloud(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Normal points, nearest to the origin first."""
    z = np.random.default_rng([seed, n, d]).standard_normal((n, d))
    return z[np.argsort(np.square(z).sum(axis=1), kind="stable")]


def outputs(z: np.ndarray) -> np.ndarray:
    """Linear, quadratic, wavy, constant, and all of one very small unit."""
    wave = np.sin(3 * z[:, 0]) + z[:, -1]
    return np.column_stack(
        [z @ np.arange(1.0, z.shape[1] + 1) - 1, (z * z).sum(axis=1), wave, 0 * wave + 3.0]
    )


@pytest.mark.parametrize(("n", "d"), [(5, 4), (12, 2), (40, 3)])
def test_models_are_those_of_the_literal_rule(n: int, d: int) -> None:
    z = cloud(n, d)
    y = outputs(z)
    models = output_models.fit(z, y, 2 * d + 1)
    assert models is not None
    new = cloud(7, d, seed=1)
    predicted, kernels = reference.predictions(z, y, 2 * d + 1, new)
    assert models.kernels == tuple(kernels)
    assert np.allclose(output_models.predict(models, new), predicted, rtol=1e-4, atol=1e-5)


def test_linear_and_quadratic_outputs_are_recognised() -> None:
    z = cloud(40, 3)
    models = output_models.fit(z, outputs(z), 10)
    assert models is not None
    linear, square, wave, constant = models.kernels
    assert not linear.quadratic and not linear.matern
    assert square.quadratic
    assert wave.matern or wave.quadratic
    assert not constant.quadratic
    new = cloud(20, 3, seed=2)
    found = output_models.predict(models, new)
    assert np.allclose(found[:, [0, 1, 3]], outputs(new)[:, [0, 1, 3]], rtol=1e-4, atol=1e-4)
    assert models.errors[0] < 1e-6 < models.errors[2]


@pytest.mark.parametrize("seed", range(3))
def test_slopes_and_curvature_are_derivatives(seed: int) -> None:
    z = cloud(30, 3, seed)
    models = output_models.fit(z, outputs(z) ** 3, 7)
    assert models is not None
    x, h = np.random.default_rng(seed).standard_normal(3) / 2, 1e-3
    values = [(output_models.predict(models, np.array([x + h * e, x - h * e]))) for e in np.eye(3)]
    slopes = np.array([(up - down) / (2 * h) for up, down in values]).T
    assert np.allclose(output_models.slopes(models, x), slopes, rtol=1e-3, atol=1e-4 * np.abs(slopes).max())
    shares = np.array([0.5, -1.0, 2.0, 1.0])
    rows = [
        shares @ (output_models.slopes(models, x + h * e) - output_models.slopes(models, x - h * e)) / (2 * h)
        for e in np.eye(3)
    ]
    found = output_models.curvature(models, x, shares)
    assert np.allclose(found, rows, rtol=1e-3, atol=1e-3 * np.abs(found).max())


def test_units_change_nothing_but_the_units() -> None:
    z = cloud(25, 3)
    y = outputs(z)
    units = np.array([2.0**30, 2.0**-40, 1.0, 2.0**7])
    one, other = output_models.fit(z, y, 7), output_models.fit(z, y * units, 7)
    assert one is not None and other is not None and one.kernels == other.kernels
    new = cloud(5, 3, seed=1)
    assert (output_models.predict(other, new) == output_models.predict(one, new) * units).all()
    assert (output_models.slopes(other, new[0]) == output_models.slopes(one, new[0]) * units[:, None]).all()


def test_too_few_points_and_huge_outputs() -> None:
    assert output_models.fit(np.zeros((1, 2)), np.ones((1, 1)), 1) is None
    z = cloud(12, 2)
    models = output_models.fit(z, 1e305 * outputs(z), 5)
    assert models is not None and np.isfinite(output_models.predict(models, z)).all()
    same = output_models.fit(np.zeros((5, 2)), outputs(z)[:5], 5)  # all at one point
    assert same is None or np.isfinite(output_models.predict(same, z)).all()


# -- the minimum under limits


def problem(d: int, m: int, seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng([d, m, seed])
    target, weights = rng.standard_normal(d), 10 ** np.linspace(0, 3, d)
    normals, room = rng.standard_normal((m, d)), np.abs(rng.standard_normal(m)) * 0.3 + 0.05

    def f(x: np.ndarray) -> Any:
        return np.square(x - target) @ weights

    z = cloud((d + 1) * (d + 2), d, seed)
    models = output_models.fit(z, np.column_stack([f(z), z @ normals.T - room]), 2 * d + 1)
    return models, f, lambda x: room - normals @ x


@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 3), (5, 9), (10, 54)])
def test_the_minimum_is_that_of_scipy(d: int, m: int) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    for seed in range(3):
        models, f, room = problem(d, m, seed)
        found = constrained_step.minimise(
            models, np.zeros(d), -np.ones(d), np.ones(d), np.zeros(m, dtype=bool), np.zeros(m)
        )
        best = optimize.minimize(
            f,
            np.zeros(d),
            bounds=[(-1, 1)] * d,
            constraints={"type": "ineq", "fun": room},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        assert (np.abs(found.z) <= 1).all() and room(found.z).min() > -1e-6
        assert f(found.z) == pytest.approx(best.fun, rel=1e-4, abs=1e-4)
        slope = output_models.slopes(models, found.z)
        inside = np.abs(found.z) < 1 - 1e-9
        residual = slope[0] + found.multipliers @ slope[1:]
        assert np.abs(residual[inside]).max(initial=0.0) <= 1e-3 * np.abs(models.unit[0])
        assert (found.multipliers >= 0).all()


def test_an_equality_is_met_from_both_sides() -> None:
    for target in (0.4, -0.4):
        z = cloud(20, 2)
        y = np.column_stack([(z - 0.5) ** 2 @ np.ones(2), z.sum(axis=1) - target])
        models = output_models.fit(z, y, 5)
        assert models is not None
        found = constrained_step.minimise(
            models, np.zeros(2), -np.ones(2), np.ones(2), np.array([True]), np.array([1e-3])
        )
        assert abs(found.z.sum() - target) <= 1e-3 + 1e-6
        assert found.z[0] == pytest.approx(target / 2, abs=1e-3)


def test_where_no_point_satisfies_the_limits_the_violation_is_small() -> None:
    z = cloud(20, 2)
    y = np.column_stack([z[:, 0] ** 2 + z[:, 1] ** 2, z[:, 0] + 0.5, 0.5 - z[:, 0]])  # x ≤ −.5 and x ≥ .5
    models = output_models.fit(z, y, 5)
    assert models is not None
    found = constrained_step.minimise(
        models, np.array([0.9, 0.9]), -np.ones(2), np.ones(2), np.zeros(2, dtype=bool), np.zeros(2)
    )
    assert np.abs(found.z[0]) < 0.51 and np.isfinite(found.z).all()


def test_a_margin_is_kept_and_units_do_not_matter() -> None:
    z = cloud(20, 2)
    y = np.column_stack([z @ np.ones(2), -(z @ np.ones(2)) - 0.3])
    rows = []
    for units in (np.ones(2), np.array([2.0**20, 2.0**-20])):
        models = output_models.fit(z, y * units, 5)
        assert models is not None
        slack = np.array([-0.1]) * units[1]
        rows.append(
            constrained_step.minimise(
                models, np.zeros(2), -np.ones(2), np.ones(2), np.zeros(1, dtype=bool), slack
            )
        )
    assert rows[0].z.sum() == pytest.approx(-0.2, abs=1e-6)
    assert (rows[0].z == rows[1].z).all()
    assert rows[0].multipliers[0] == pytest.approx(1.0, rel=1e-3)


def test_a_thousand_limits() -> None:
    models, f, room = problem(4, 1000, 0)
    found = constrained_step.minimise(
        models, np.zeros(4), -np.ones(4), np.ones(4), np.zeros(1000, dtype=bool), np.zeros(1000)
    )
    assert room(found.z).min() > -1e-6 and f(found.z) < f(np.zeros(4))
