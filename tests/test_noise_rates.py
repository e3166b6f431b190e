"""The learning rates under noise against a literal transcription, and what they must do."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fmnes import AFMNES
from fmnes.search.noise import Gaussian, Rates, first_rates, next_rates, signal_to_noise, slowed, step_between
from fmnes.strategies.base import Strategy
from tests.reference.noise import Adaptation


def random_step(before: Gaussian, rng: np.random.Generator, drift: float) -> Gaussian:
    """A proposal with a drift and with chance in each part."""
    d = len(before.mean)
    change = np.eye(d) + 0.2 * rng.standard_normal((d, d)) / d
    B = before.shape @ change
    scale = abs(np.linalg.det(B)) ** (1 / d)
    step = before.sigma * before.shape @ (drift * np.ones(d) + rng.standard_normal(d))
    return Gaussian(
        before.mean + step, before.sigma * scale * float(np.exp(0.1 * rng.standard_normal())), B / scale
    )


@pytest.mark.parametrize("drift", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_rule_is_that_of_the_transcription(d: int, drift: float) -> None:
    rng = np.random.default_rng([d, 7])
    now = Gaussian(rng.standard_normal(d), 0.5, np.eye(d))
    rates, literal = first_rates(d), Adaptation(d)
    for _ in range(80):
        proposal = random_step(now, rng, drift)
        Sigma = proposal.sigma**2 * proposal.shape @ proposal.shape.T
        m, wanted = literal(now.mean, now.sigma * now.shape, proposal.mean, Sigma)
        step = step_between(now, proposal)
        old, rates = rates.mean, next_rates(rates, step)
        now = slowed(now, proposal, step, rates, old)
        assert_allclose([rates.mean, rates.shape], [literal.m_rate.eta, literal.s_rate.eta], rtol=1e-9)
        assert_allclose(now.mean, m, rtol=1e-9, atol=1e-12)
        assert_allclose(now.sigma**2 * now.shape @ now.shape.T, wanted, rtol=1e-8, atol=1e-12 * wanted.max())
        assert_allclose(abs(np.linalg.det(now.shape)), 1.0, rtol=1e-9)
    assert rates.shape < 1


def test_a_signal_keeps_the_rates_and_chance_lowers_them() -> None:
    def last(drift: float) -> Rates:
        rng = np.random.default_rng(3)
        now, rates = Gaussian(np.zeros(4), 1.0, np.eye(4)), first_rates(4)
        for _ in range(300):
            proposal = Gaussian(now.mean + drift + rng.standard_normal(4), 1.0, np.eye(4))
            rates = next_rates(rates, step_between(now, proposal))
        return rates

    assert last(5.0).mean == 1.0
    assert last(0.0).mean < 0.1


def test_the_ratio_of_steps_without_noise_is_huge_and_of_pure_noise_is_zero() -> None:
    step = np.array([3.0, 4.0])
    assert signal_to_noise(step, 25.0, 0.1) > 1e100
    assert signal_to_noise(np.zeros(2), 25.0, 0.1) == pytest.approx(-0.1 / 1.9)


def test_many_coordinates_have_no_rate_of_the_shape() -> None:
    rates = first_rates(301)
    assert rates.shape_step.size == 0
    now = Gaussian(np.zeros(301), 1.0, np.eye(301))
    proposal = Gaussian(np.ones(301), 0.9, np.eye(301))
    step = step_between(now, proposal)
    rates = next_rates(rates, step)
    assert rates.shape == 1.0
    assert slowed(now, proposal, step, rates, 1.0).shape is proposal.shape


@pytest.mark.parametrize("d", [1, 2, 6])
def test_a_state_takes_another_distribution_and_samples_from_it(d: int) -> None:
    rng = np.random.default_rng(d)
    strategy: Strategy = AFMNES()
    state = strategy.init(rng.standard_normal(d), np.float64(0.7), np.zeros(d))
    B = np.eye(d) + 0.3 * rng.standard_normal((d, d))
    B /= abs(np.linalg.det(B)) ** (1 / d)
    mean = rng.standard_normal(d)
    state = strategy.with_shape(state, mean, 0.4, B)
    z = rng.standard_normal((3, d))
    steps = strategy.sample(state, z)[0::2] - mean
    assert_allclose(steps, 0.4 * z @ B.T, rtol=1e-10, atol=1e-12)
    assert_allclose(strategy.shape_matrix(state), B, rtol=1e-10, atol=1e-12)
    assert_allclose(strategy.coordinates(state, strategy.sample(state, z))[0::2], z, rtol=1e-8, atol=1e-10)


def test_the_path_keeps_its_direction_in_space() -> None:
    rng = np.random.default_rng(1)
    strategy = AFMNES()
    state = strategy.init(np.full(3, 2.0), np.float64(0.7), np.zeros(3))
    for _ in range(5):
        z = rng.standard_normal((4, 3))
        f = (strategy.sample(state, z) ** 2).sum(axis=1)
        state = strategy.update(state, z, np.argsort(f, kind="stable"), len(f))
    B = strategy.shape_matrix(state) @ np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]])
    after = strategy.with_shape(state, state.mean, state.sigma, B)
    assert_allclose(after.F @ after.p_c, state.F @ state.p_c, rtol=1e-10)
    assert np.linalg.norm(state.p_c) > 0.1
