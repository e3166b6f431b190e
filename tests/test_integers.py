"""Whole numbers and steps: the grid, the margin, and searches on them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fmnes.errors import ArgumentError
from fmnes.search.integers import Grid, check_integers, grid_of
from fmnes.search.margin import margin
from tests.reference.margin import margin as literal_margin

# -- the grid ---------------------------------------------------------------------------------------------


def one(width: float, lower: float = -math.inf, upper: float = math.inf) -> Grid:
    return grid_of(np.array([width]), np.array([lower]), np.array([upper]))


def all_values(grid: Grid) -> list[float]:
    return [float(grid.value(np.array([k]))[0]) for k in range(int(grid.first[0]), int(grid.last[0]) + 1)]


@pytest.mark.parametrize(
    ("width", "lower", "upper", "values"),
    [
        (1, 0, 3, [0, 1, 2, 3]),
        (1, -1.5, 2.9, [-1, 0, 1, 2]),
        (0.1, 0, 0.3, [0, 0.1, 0.2, 0.3]),
        (0.1, 0.1, 0.7, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
        (0.25, 1.1, 2.0, [1.1, 1.35, 1.6, 1.85]),
        (2, 1, 8, [1, 3, 5, 7]),
        (0.3, -0.3, 0.9, [-0.3, 0.0, 0.3, 0.6, 0.9]),
        (1e-3, 2, 2.002, [2, 2.001, 2.002]),
        (math.pi, 0, 7, [0, math.pi, 2 * math.pi]),
    ],
)
def test_values_as_a_user_would_write_them(
    width: float, lower: float, upper: float, values: list[float]
) -> None:
    assert all_values(one(width, lower, upper)) == values


def test_steps_without_a_lower_bound_are_counted_from_zero() -> None:
    grid = one(0.25, upper=1.1)
    assert grid.nearest(np.array([[-3.13], [0.4], [99.0]])).tolist() == [[-3.25], [0.5], [1.0]]


finite = st.floats(-1e6, 1e6)
widths = st.one_of(st.just(1.0), st.sampled_from([0.1, 0.25, 0.5, 2.0, 10.0]), st.floats(1e-3, 1e3))


@given(x=st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3), width=widths, lower=finite, span=finite)
@settings(max_examples=300, deadline=None)
def test_every_point_is_on_the_grid_and_inside(
    x: list[float], width: float, lower: float, span: float
) -> None:
    try:
        grid = one(width, lower, lower + abs(span))
    except ArgumentError:
        assert abs(span) < 2 * width
        return
    nearest = grid.nearest(np.array(x)[:, None])[:, 0]
    assert (nearest >= lower).all()
    assert (nearest <= lower + abs(span)).all()
    steps = (nearest - (0.0 if width == 1 else lower)) / width
    assert_allclose(steps, np.rint(steps), atol=1e-6 * max(1.0, abs(lower) / width * 1e-6))
    if width == 1:
        assert (nearest == np.rint(nearest)).all()
    least, most = (float(grid.nearest(np.array([[far]]))[0, 0]) for far in (-1e12, 1e12))
    assert most - least > 0.99 * width
    assert least - lower <= width
    assert lower + abs(span) - most <= width * (1 + 1e-6)
    assert (np.abs(nearest - np.clip(x, least, most)) <= width * (0.5 + 1e-6)).all()
    # A grid point is its own nearest one, to the last bit: so points can be recognised.
    assert (grid.nearest(nearest[:, None])[:, 0] == nearest).all()
    assert not np.signbit(nearest[nearest == 0]).any()


def test_real_coordinates_are_untouched() -> None:
    x = np.random.default_rng(0).normal(size=(5, 4))
    grid = grid_of(np.array([0.0, 1.0, 0.0, 0.5]), np.full(4, -np.inf), np.full(4, np.inf))
    nearest = grid.nearest(x)
    assert (nearest[:, [0, 2]] == x[:, [0, 2]]).all()
    assert grid.real.tolist() == [0, 2]
    assert not grid.covers_all


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, None),
        ([False, False], None),
        ([0, None], None),
        ([True, False], [1, 0]),
        (np.array([True, True]), [1, 1]),
        ([1, 0.25], [1, 0.25]),
        (np.array([2, 0]), [2, 0]),
        (True, [1, 1]),
        (0.5, [0.5, 0.5]),
        ((None, True), [0, 1]),
    ],
)
def test_integers_argument(given: Any, wanted: Any) -> None:
    found = check_integers(given, 2)
    assert (None if found is None else found.tolist()) == wanted


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([True], "1 entries"),
        ([1, 0, 1], "3 entries"),
        ([1, -1], "-1 at coordinate 1"),
        ([math.nan, 1], "nan at coordinate 0"),
        ([1, math.inf], "inf at coordinate 1"),
        ([1, "1"], "'1' at coordinate 1"),
        ("11", "'11'"),
        ({0: 1, 1: 1}, "{0: 1, 1: 1}"),
        (object, "object"),
        (np.ones((2, 2)), "at coordinate 0"),
    ],
)
def test_integers_that_make_no_sense(given: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=r"integers: found .*wanted") as caught:
        check_integers(given, 2)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("width", "lower", "upper", "says"),
    [
        (1, 0.5, 1.5, "one whole number only, 1"),
        (1, 0.2, 0.8, "no room for one whole number"),
        (0.25, 0, 0.1, "no room for one step of 0.25"),
    ],
)
def test_bounds_too_narrow_for_the_grid(width: float, lower: float, upper: float, says: str) -> None:
    with pytest.raises(ArgumentError, match=r"bounds: found .* at coordinate 0") as caught:
        one(width, lower, upper)
    assert says in str(caught.value)


# -- the margin -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1 / 8, 1 / 80, 1 / 4000])
@pytest.mark.parametrize(("width", "lower", "upper"), [(1, 0, 1), (1, -2, 3), (0.25, 0, 2), (3, -6, 6)])
def test_margin_is_the_papers(width: float, lower: float, upper: float, alpha: float) -> None:
    rng = np.random.default_rng(3)
    n = 400
    grid = grid_of(np.full(n, width), np.full(n, lower), np.full(n, upper))
    mean = rng.uniform(lower - width, upper + width, n)
    factor, deviation = rng.uniform(0.5, 2, n), width * 10 ** rng.uniform(-4, 1, n)
    z = all_values(one(width, lower, upper))
    wanted = [literal_margin(z, m, A, s, alpha) for m, A, s in zip(mean, factor, deviation, strict=True)]
    found = margin(grid, mean, factor * deviation, alpha)
    assert found is not None
    assert_allclose(found[0], [m for m, _ in wanted], rtol=1e-7, atol=1e-9 * width)
    assert_allclose(found[1] / deviation, [A for _, A in wanted], rtol=1e-7)


def test_margin_leaves_what_is_likely_enough() -> None:
    grid = grid_of(np.ones(3), np.array([0.0, -np.inf, -5.0]), np.array([1.0, np.inf, np.inf]))
    assert margin(grid, np.array([0.4, 7.1, -4.9]), np.array([0.5, 1.0, 2.0]), 1 / 60) is None


def test_both_sides_of_a_cell_are_drawn_as_often_as_promised() -> None:
    grid = one(1)
    corrected = margin(grid, np.array([3.2]), np.array([1e-9]), 1 / 50)
    assert corrected is not None
    x = np.random.default_rng(1).normal(corrected[0], corrected[1], 400_000)
    assert np.mean(x < 2.5) == pytest.approx(1 / 100, rel=0.05)
    assert np.mean(x > 3.5) == pytest.approx(1 / 100, rel=0.05)
