"""The map onto the box between the bounds: inside, smooth, with an inverse, whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fmnes import Bounds
from fmnes.bounds import read_bounds
from fmnes.search.box import LAYER, START_INSIDE, Box
from tests.rows import through

INF = np.inf
MAX = np.finfo(float).max
#: (lower, upper, step of the coordinate)
INTERVALS = {
    "unit": (0.0, 1.0, 0.3),
    "off zero": (2.0, 5.0, 1.0),
    "far from zero": (1e9, 1e9 + 7.0, 1.0),
    "negative": (-3e5, -1e5, 1e5),
    "below zero": (-1e10, 0.0, 1.0),
    "tiny": (0.0, 1e-300, 1e-300),
    "subnormal": (-1e-310, 2e-310, 1e-120),
    "a few floats": (1e17, 1e17 + 64, 100.0),
    "two floats": (1.0, np.nextafter(1.0, 2.0), 1.0),
    "huge": (-1e308, 1e308, 1e307),
    "the largest": (-MAX, MAX, 1e308),
    "lower": (1.0, INF, 0.5),
    "upper": (-INF, 1.0, 0.5),
    "lower huge": (-1e308, INF, 1e307),
    "upper huge": (-INF, 1.7e308, 1e308),
    "lower far": (-1e300, INF, 1.0),
    "open": (-INF, INF, 1.0),
}
#: Those whose layers are many floats wide, and whose mirrors are numbers.
INVERTIBLE = [
    name
    for name in INTERVALS
    if name not in ("a few floats", "two floats", "lower far", "the largest", "upper huge", "open")
]


def box_of(*intervals: tuple[float, float, float]) -> Box:
    lower, upper, steps = np.array(intervals).T
    box = Box.of(Bounds(lower, upper), steps)
    assert box is not None
    return box


def layer_of(lower: float, upper: float, step: float) -> float:
    return LAYER * (upper - lower) if np.isfinite([lower, upper]).all() else step


def literal(y: float, lower: float, upper: float, step: float) -> float:
    """The map as its definition reads, one number at a time."""
    a = layer_of(lower, upper, step)
    while y < lower - a or y > upper + a:
        y = 2 * (lower - a) - y if y < lower - a else 2 * (upper + a) - y
    if y < lower + a:
        return lower + (y - (lower - a)) ** 2 / (4 * a)
    if y > upper - a:
        return upper - ((upper + a) - y) ** 2 / (4 * a)
    return y


@pytest.mark.parametrize("interval", [(0.0, 1.0, 0.3), (-7.0, 3.0, 9.0), (1.0, INF, 0.5), (-INF, 1.0, 0.5)])
def test_the_map_is_its_definition(interval: tuple[float, float, float]) -> None:
    y = np.linspace(-31.7, 29.3, 4001)
    wanted = [literal(float(number), *interval) for number in y]
    assert_allclose(box_of(interval).onto(y[:, None])[:, 0], wanted, rtol=1e-12, atol=1e-12)


floats = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=100, deadline=None)
@given(st.lists(floats, min_size=1, max_size=20))
def test_every_y_is_mapped_inside(numbers: list[float]) -> None:
    box = box_of(*INTERVALS.values())
    lower, upper, steps = np.array(list(INTERVALS.values())).T
    y = np.repeat(np.array(numbers)[:, None], len(INTERVALS), axis=1)
    # The numbers as they are, and such as lie about the bounds.
    near = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper, 0.0))
    with np.errstate(over="ignore"):
        about = near + steps * np.arctan(y)
    for points in (y, np.where(np.isfinite(about), about, 0.0)):
        before = points.copy()
        x = box.onto(points)
        assert (x >= lower).all() and (x <= upper).all() and np.isfinite(x).all()
        assert_array_equal(points, before)
        linear = (points >= box.first) & (points <= box.last)
        assert_array_equal(x[linear], points[linear])
        for row, image in zip(points, x, strict=True):  # one point at a time is the same
            assert_array_equal(box.onto(row), image)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(INVERTIBLE), st.floats(0, 1))
def test_every_x_inside_has_a_preimage_and_one_on_a_bound_is_moved_in(name: str, t: float) -> None:
    """By a thousandth of the layer."""
    lower, upper, step = INTERVALS[name]
    if np.isfinite(lower):
        x = lower * (1 - t) + upper * t if np.isfinite(upper) else lower + 9 * t * step
    else:
        x = upper - 9 * t * step
    box, layer = box_of((lower, upper, step)), layer_of(upper=upper / 2, lower=lower / 2, step=step / 2) * 2
    y = box.start(np.array([x]))
    assert lower - layer < y[0] < upper + layer
    wanted = min(max(x, lower + START_INSIDE * layer), upper - START_INSIDE * layer)
    size = max(abs(number) for number in (lower, upper, step) if np.isfinite(number))
    assert_allclose(box.onto(y), [wanted], rtol=1e-9, atol=1e-14 * size)


@through("name", ["unit", "off zero", "negative", "tiny", "lower", "upper"])
def test_the_map_and_its_slope_are_continuous(name: str) -> None:
    interval = INTERVALS[name]
    a = layer_of(*interval)
    near = interval[0] if np.isfinite(interval[0]) else interval[1]
    y = near + a * np.linspace(-30, 30, 60001)
    slopes = np.diff(box_of(interval).onto(y[:, None])[:, 0]) / np.diff(y)
    assert np.abs(slopes).max() < 1 + 1e-6
    assert np.abs(np.diff(slopes)).max() < 1e-3  # h/(2a) of a parabola, with h = a/1000
    ends = {"lower": 1, "upper": 1}.get(name, 5)
    assert (np.diff(np.sign(slopes)) != 0).sum() >= ends  # mirrors


def test_slope_and_value_at_the_ends_of_the_layers() -> None:
    box = box_of((0.0, 1.0, 9.0), (1.0, INF, 0.5), (-INF, 1.0, 0.5))
    bounds = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    mirrors = np.array([[-0.1, 0.5, 1.5], [1.1, 0.5, 1.5]])
    assert_array_equal(box.onto(mirrors), bounds)
    assert_allclose(box.onto(bounds), [[0.025, 1.125, 0.875], [0.975, 1.125, 0.875]], rtol=1e-14)
    assert_allclose(box.onto(np.array([-1.1, -3.0, 5.0])), [0.9, 4.0, -2.0], rtol=1e-13)
    assert_allclose(box.onto(np.array([0.5 + 2.4e6, 2.0, -1.0])), [0.5, 2.0, -1.0], rtol=1e-9)


def test_points_that_are_not_finite_stay_so() -> None:
    box = box_of((0.0, 1.0, 1.0), (1.0, INF, 1.0), (-INF, INF, 1.0))
    with np.errstate(all="raise"):
        x = box.onto(np.array([[INF, 2.0, 0.0], [0.5, -INF, 0.0], [0.5, 2.0, INF], [0.5, 2.0, 3.0]]))
    assert_array_equal(np.isfinite(x).all(axis=1), [False, False, False, True])


def test_without_a_bound_nothing_is_mapped() -> None:
    assert Box.of(read_bounds((None, None), 3), 1.0) is None
    box = box_of((0.0, 1.0, 1.0), (-INF, INF, 1.0))
    y = np.array([[0.5, 1e300], [0.8, -1.0]])
    assert box.onto(y) is y


@through("name", [name for name in INTERVALS if name != "open"])
def test_a_start_on_a_bound_is_inside_and_can_move(name: str) -> None:
    box = box_of(INTERVALS[name])
    for bound in INTERVALS[name][:2]:
        if np.isfinite(bound):
            y = box.start(np.array([bound]))
            assert np.isfinite(y).all()
            x = box.onto(y)
            assert (x >= box.lower).all() and (x <= box.upper).all()
            if name in INVERTIBLE:
                assert box.onto(y + 0.1 * box.table[4] / box.table[0]) != x


@through("mean", [0.5, 0.05, -0.1, -0.4, 1.13, 7.2])
@through("deviation", [1e-3, 0.05, 0.3, 1.0])
def test_the_covariance_is_that_of_samples(mean: float, deviation: float) -> None:
    box = box_of((0.0, 1.0, 0.3), (0.0, INF, 0.3), (-INF, 1.0, 0.3), (-INF, INF, 1.0))
    correlations = 0.2 * np.ones((4, 4)) + 0.8 * np.eye(4)
    z = np.random.default_rng(1).standard_normal((200_000, 4)) @ np.linalg.cholesky(correlations).T
    found = box.covariance(np.full(4, mean), deviation**2 * correlations)
    wanted = np.cov(box.onto(mean + deviation * z).T)
    assert_allclose(np.diag(found), np.diag(wanted), rtol=0.05)
    assert_allclose(found[3], wanted[3], rtol=0.05, atol=0.01 * deviation * np.sqrt(np.diag(wanted)).max())
    sizes = np.sqrt(np.diag(wanted))
    assert_allclose(found / np.outer(sizes, sizes), wanted / np.outer(sizes, sizes), atol=0.06)
    assert (np.linalg.eigvalsh(found) > 0).all()


def test_far_from_the_bounds_the_covariance_is_that_of_y() -> None:
    box = box_of((0.0, 1.0, 0.3), (0.0, INF, 0.3))
    covariance = np.array([[1e-4, 1e-5], [1e-5, 1e-2]])
    assert box.covariance(np.array([0.5, 3.0]), covariance) is covariance
    bent = box.covariance(np.array([0.5, 0.3]), covariance)
    assert bent[0, 0] == covariance[0, 0] and bent[1, 1] < covariance[1, 1]
