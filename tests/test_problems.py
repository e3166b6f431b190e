"""The test problems against Table I of the paper, written out as loops, and the promises of `Problem`."""

from __future__ import annotations

import doctest
import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fmnes import ArgumentError, problems
from tests.rows import through

# Table I and the two problems beside it, with i from 1 as printed: x[i - 1] is x_i.


def sphere(x: list[float]) -> float:
    total = 0.0
    for i in range(1, len(x) + 1):
        total += x[i - 1] ** 2
    return total


def ellipsoid(x: list[float]) -> float:
    d = len(x)
    total = 0.0
    for i in range(1, d + 1):
        exponent = (i - 1) / (d - 1) if d > 1 else 0.0
        total += (1000**exponent * x[i - 1]) ** 2
    return total


def rosenbrock(x: list[float]) -> float:
    total = 0.0
    for i in range(1, len(x)):
        total += 100 * (x[i] - x[i - 1] ** 2) ** 2 + (x[i - 1] - 1) ** 2
    return total


def cigar(x: list[float], coefficient: float = 1000) -> float:
    total = x[0] ** 2
    for i in range(2, len(x) + 1):
        total += (coefficient * x[i - 1]) ** 2
    return total


def k_tablet(x: list[float], k: int | None = None) -> float:
    total = 0.0
    for i in range(1, len(x) + 1):
        total += x[i - 1] ** 2 if i <= (len(x) // 4 if k is None else k) else (100 * x[i - 1]) ** 2
    return total


def shifted_sphere(x: list[float], active: int = 1) -> float:
    return sum((x_i + 1) ** 2 for x_i in x) - active


def all_feasible(x: list[float]) -> bool:
    return True


def not_negative(x: list[float]) -> bool:
    return all(x_i >= 0 for x_i in x)


def at_most_one(x: list[float]) -> bool:
    return all(x_i <= 1 for x_i in x)


def first_not_negative(x: list[float], active: int = 1) -> bool:
    return all(x_i >= 0 for x_i in x[:active])


# name: objective, region, optimum, x0, sigma0 (the vectors as the number in each coordinate)
TABLE: dict[str, tuple[Callable[..., float], Callable[..., bool], float | None, float, float]] = {
    "sphere": (sphere, all_feasible, 0, 20, 2),
    "ellipsoid": (ellipsoid, all_feasible, 0, 20, 2),
    "rosenbrock": (rosenbrock, all_feasible, 1, 0, 0.5),
    "cigar": (cigar, all_feasible, 0, 20, 2),
    "ic-sphere": (sphere, not_negative, 0, 20, 2),
    "ic-ellipsoid": (ellipsoid, not_negative, 0, 20, 2),
    "ic-rosenbrock": (rosenbrock, at_most_one, 1, 0, 0.5),
    "ic-cigar": (cigar, not_negative, 0, 20, 2),
    "k-tablet": (k_tablet, all_feasible, 0, 3, 2),
    "shifted-sphere-active": (shifted_sphere, first_not_negative, None, 3, 1),
}
PLAIN = [
    (name, d) for name, d in itertools.product(TABLE, (1, 2, 5, 40)) if "rosenbrock" not in name or d > 1
]
ALL = PLAIN + [(f"rotated-{name}", d) for name, d in PLAIN]
PARAMETERS: list[tuple[str, int, dict[str, Any]]] = [
    ("cigar", 5, {"coefficient": 100}),
    ("ic-cigar", 5, {"coefficient": 100}),
    ("k-tablet", 5, {"k": 0}),
    ("k-tablet", 5, {"k": 3}),
    ("k-tablet", 5, {"k": 5}),
    ("shifted-sphere-active", 5, {"active": 0}),
    ("shifted-sphere-active", 5, {"active": 3}),
    ("shifted-sphere-active", 40, {"active": 20}),
    ("shifted-sphere-active", 40, {"active": 40}),
]


def points(name: str, d: int, n: int = 60, gap: float = 0.0) -> np.ndarray:
    """(n, d) points around the boundary of the problem's region, feasible ones and others.

    The first of every three rows crosses in coordinate 1, the second in any one, the third in none. With no
    gap some coordinates lie on the boundary; otherwise all keep that distance from it.
    """
    rng = np.random.default_rng([d, len(name)])
    inward = gap + np.abs(rng.normal(size=(n, d)))
    if gap == 0:
        inward[rng.random((n, d)) < 0.1] = 0.0
    inward[0::3, 0] *= -1
    second = np.arange(1, n, 3)
    inward[second, rng.integers(d, size=len(second))] *= -1
    y = 1 - inward if "rosenbrock" in name else inward
    return y @ rotation(d) if name.startswith("rotated-") else y  # rows Rᵀy


def rotation(d: int, seed: int = 0) -> np.ndarray:
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))
    for j in range(d):
        if r[j, j] < 0:
            q[:, j] = -q[:, j]
    return q


def test_names_are_the_table_and_its_rotations() -> None:
    assert problems.names() == [*TABLE, *(f"rotated-{name}" for name in TABLE)]


@through(("name", "d", "parameters"), [(name, d, {}) for name, d in PLAIN] + PARAMETERS)
def test_values_and_region_are_those_of_the_table(name: str, d: int, parameters: dict[str, Any]) -> None:
    objective, region, *_ = TABLE[name]
    region_parameters = parameters if "active" in name else {}
    problem = problems.get(name, d, **parameters)
    X = points(name, d)
    feasible = [region(x, **region_parameters) for x in X.tolist()]
    wanted = [
        objective(x, **parameters) if ok else math.inf for x, ok in zip(X.tolist(), feasible, strict=True)
    ]
    assert any(feasible)
    np.testing.assert_array_equal(problem.is_feasible(X), feasible)
    # The loop for the active problem subtracts `active`: its own rounding is absolute.
    np.testing.assert_allclose(problem.fun(X), wanted, rtol=1e-13, atol=1e-13)


@through("prefix", ["", "rotated-"])
@through("name", [name for name in TABLE if TABLE[name][1] is not all_feasible])
def test_points_cover_both_sides(name: str, prefix: str) -> None:
    for n in (16, 60):
        feasible = problems.get(prefix + name, 40).is_feasible(points(prefix + name, 40, n, gap=1e-3))
        assert n / 4 < feasible.sum() < 3 * n / 4


@through(("name", "d"), PLAIN)
def test_starts_and_optima_are_those_of_the_table(name: str, d: int) -> None:
    _, _, optimum, x0, sigma0 = TABLE[name]
    problem = problems.get(name, d)
    assert (problem.name, problem.d, problem.sigma0, problem.minimum) == (name, d, sigma0, 0.0)
    np.testing.assert_array_equal(problem.x0, np.full(d, x0))
    wanted = [0.0] + [-1.0] * (d - 1) if optimum is None else np.full(d, optimum)
    np.testing.assert_array_equal(problem.optimum, wanted)


def test_the_default_dimension_is_that_of_the_paper() -> None:
    assert problems.get("sphere").d == 40


@through(
    ("name", "d", "parameters"),
    [(name, d, {}) for name, d in ALL]
    + PARAMETERS
    + [(f"rotated-{name}", d, parameters) for name, d, parameters in PARAMETERS]
    + [
        (f"rotated-{name}", d, {"rotation_seed": seed})
        for name in ("ic-rosenbrock", "shifted-sphere-active")
        for d in (2, 3, 40)
        for seed in range(1, 30)
    ],
)
def test_the_optimum_and_the_start_are_feasible(name: str, d: int, parameters: dict[str, Any]) -> None:
    problem = problems.get(name, d, **parameters)
    for x in (problem.optimum, problem.optimum[None], np.tile(problem.optimum, (16, 1))):
        assert np.all(problem.is_feasible(x))
        assert np.all(np.abs(problem.fun(x)) <= (1e-12 if name.startswith("rotated-") else 0.0))
    assert problem.is_feasible(problem.x0)
    assert 0 < problem.fun(problem.x0) < math.inf


@through(("name", "d"), ALL)
def test_a_batch_is_its_rows(name: str, d: int) -> None:
    problem = problems.get(name, d)
    X = points(name, d)
    rows = [problem.fun(x) for x in X]
    assert all(isinstance(f, float) for f in rows)
    assert all(isinstance(problem.is_feasible(x), np.bool_) for x in X)
    assert problem.fun(X).shape == problem.is_feasible(X).shape == (len(X),)
    # Bit for bit: a run must not depend on how its points were grouped.
    np.testing.assert_array_equal(problem.fun(X), rows)
    np.testing.assert_array_equal(problem.fun(X[:7]), rows[:7])
    np.testing.assert_array_equal(problem.is_feasible(X), [problem.is_feasible(x) for x in X])


@through(("name", "d"), [(name, d) for name, d in PLAIN if name.startswith("ic-")])
def test_the_boundary_is_feasible_and_the_next_number_is_not(name: str, d: int) -> None:
    problem = problems.get(name, d)
    edge, beyond = (1.0, math.inf) if "rosenbrock" in name else (0.0, -math.inf)
    for i in range(d):
        x = np.full(d, 0.5)
        x[i] = edge
        assert problem.is_feasible(x) and problem.fun(x) < math.inf
        x[i] = np.nextafter(edge, beyond)
        assert not problem.is_feasible(x) and problem.fun(x) == math.inf


@pytest.mark.parametrize("seed", [0, 7])
@through(("name", "d"), PLAIN)
def test_a_rotated_problem_is_the_plain_one_at_rx(name: str, d: int, seed: int) -> None:
    plain = problems.get(name, d)
    rotated = problems.get(f"rotated-{name}", d, rotation_seed=seed)
    R = rotation(d, seed)
    np.testing.assert_allclose(R @ R.T, np.eye(d), atol=1e-13)
    Y = points(name, d, gap=1e-6)  # on the boundary rounding decides
    X = Y @ R  # rows Rᵀy
    np.testing.assert_allclose(rotated.fun(X), plain.fun(Y), rtol=1e-10)
    np.testing.assert_array_equal(rotated.is_feasible(X), plain.is_feasible(Y))
    np.testing.assert_allclose(R @ rotated.x0, plain.x0, atol=1e-12)
    np.testing.assert_allclose(R @ rotated.optimum, plain.optimum, atol=1e-13)
    assert rotated.sigma0 == plain.sigma0


def test_rotations_are_uniform_and_follow_the_seed() -> None:
    starts = np.array([problems.get("rotated-sphere", 2, rotation_seed=s).x0 for s in range(400)]) / 20
    # Each coordinate is the sum of a random unit vector: mean 0, standard deviation 1. Without the sign fix
    # the first has mean −0.64 or 0.64, as the first entry of R always has the same sign.
    assert np.all(np.abs(starts.mean(axis=0)) < 0.2)
    assert np.all(np.abs(starts.std(axis=0) - 1) < 0.2)
    assert len(np.unique(starts[:, 0])) == 400
    default = problems.get("rotated-sphere", 2).x0
    np.testing.assert_array_equal(default, starts[0] * 20)


@through("prefix", ["", "rotated-"])
@through("active", [0, 1, 3, 8])
def test_the_active_optimum_is_the_constrained_minimum(active: int, prefix: str) -> None:
    d = 8
    problem = problems.get(f"{prefix}shifted-sphere-active", d, active=active)
    rng = np.random.default_rng(active)
    steps = rng.normal(size=(4000, d)) * 10.0 ** rng.uniform(-6, 1, size=(4000, 1))
    R = rotation(d) if prefix else np.eye(d)
    if active:  # half of the points are made feasible, or few would be with many constraints
        steps[::2, :active] = np.abs(steps[::2, :active])
    X = problem.optimum + steps @ R
    f = problem.fun(X)
    assert np.isfinite(f).sum() > 1000
    assert f.min() > problem.fun(problem.optimum)
    for i in range(d):
        # The formula without the region, a small step each way along a coordinate of its own.
        y = np.concatenate([np.zeros(active), -np.ones(d - active)])
        across, inside = y.copy(), y.copy()
        across[i] -= 1e-3
        inside[i] += 1e-3
        assert shifted_sphere(inside.tolist(), active) > 0
        assert problem.fun(inside @ R) > 0
        if i < active:
            assert shifted_sphere(across.tolist(), active) < -1e-3  # the objective wants to cross
            assert problem.fun(across @ R) == math.inf
        else:
            assert shifted_sphere(across.tolist(), active) > 0


def test_the_active_formula_goes_on_falling_across_the_boundary() -> None:
    # With no active constraint the same sphere, less the constant, is what lies beyond the boundary.
    free = problems.get("shifted-sphere-active", 3, active=0)
    held = problems.get("shifted-sphere-active", 3, active=2)
    X = np.abs(np.random.default_rng(0).normal(size=(20, 3)))
    np.testing.assert_allclose(held.fun(X), free.fun(X) - 2, rtol=1e-13)
    assert free.fun(held.optimum - [1e-3, 0, 0]) < free.fun(held.optimum)


@through(("name", "d"), [(name, d) for name, d in ALL if d == 5])
def test_nothing_is_modified(name: str, d: int) -> None:
    problem = problems.get(name, d)
    X = points(name, d)
    before = X.copy()
    X.flags.writeable = False
    problem.fun(X)
    problem.is_feasible(X)
    np.testing.assert_array_equal(X, before)
    for vector in (problem.x0, problem.optimum):
        assert vector.dtype == np.float64 and vector.shape == (d,)
        with pytest.raises(ValueError, match="read-only"):
            vector[0] = 1.0
    with pytest.raises(AttributeError):
        problem.d = 3  # type: ignore[misc]


@through(("name", "d"), [(name, d) for name, d in ALL if d == 5])
def test_lists_whole_numbers_and_float32(name: str, d: int) -> None:
    problem = problems.get(name, d)
    wanted = problem.fun(np.array([[1.0, 0, 1, 0, 1]] * 2))
    np.testing.assert_array_equal(problem.fun([[1, 0, 1, 0, 1]] * 2), wanted)
    np.testing.assert_array_equal(problem.fun(np.array([[1, 0, 1, 0, 1]] * 2)), wanted)
    single = problem.fun(problem.x0.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, problem.fun(problem.x0), rtol=1e-5)


def test_whole_numbers_do_not_overflow() -> None:
    assert problems.get("sphere", 1).fun(np.array([2**40])) == 2.0**80


@through("name", problems.names())
def test_problems_can_be_sent_to_a_worker(name: str) -> None:
    problem = problems.get(name, 5)
    X = points(name, 5)
    copy = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(copy.fun(X), problem.fun(X))
    np.testing.assert_array_equal(copy.is_feasible(X), problem.is_feasible(X))


@pytest.mark.parametrize(
    ("name", "close"),
    [("spere", "sphere"), ("IC-Sphere", "ic-sphere"), ("rotated-elipsoid", "rotated-ellipsoid")],
)
def test_an_unknown_name_names_the_nearest_and_the_list(name: str, close: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        problems.get(name)
    message = str(caught.value)
    assert repr(name) in message and f"did you mean {close!r}" in message
    assert all(known in message for known in problems.names())


@through("name", ["", "rotated-", "rotated-rotated-sphere", None, 3, ["sphere"]])
def test_what_is_not_a_name_is_refused(name: Any) -> None:
    with pytest.raises(ArgumentError, match="unknown problem"):
        problems.get(name)


@through(
    ("name", "parameters", "pattern"),
    [
        ("cigar", {"coeficient": 100}, "coeficient.*did you mean 'coefficient'"),
        ("rotated-sphere", {"rotation_sed": 1}, "rotation_sed.*did you mean 'rotation_seed'"),
        ("sphere", {"coefficient": 100}, "'sphere' has no parameter 'coefficient'; it has none"),
        ("sphere", {"rotation_seed": 1}, "'sphere' has no parameter 'rotation_seed'"),
        ("sphere", {"d": 0}, "d = 0: wanted an integer >= 1"),
        ("sphere", {"d": -3}, "d = -3"),
        ("sphere", {"d": 2.5}, "d = 2.5"),
        ("sphere", {"d": True}, "d = True"),
        ("sphere", {"d": "4"}, "d = '4'"),
        ("rosenbrock", {"d": 1}, "d >= 2"),
        ("rotated-ic-rosenbrock", {"d": 1}, "d >= 2"),
        ("cigar", {"coefficient": 0}, "coefficient = 0: wanted a positive"),
        ("cigar", {"coefficient": math.nan}, "coefficient = nan"),
        ("cigar", {"coefficient": math.inf}, "coefficient = inf"),
        ("cigar", {"coefficient": "100"}, "coefficient = '100'"),
        ("ic-cigar", {"coefficient": None}, "coefficient = None"),
        ("k-tablet", {"d": 4, "k": 5}, "k = 5: wanted an integer from 0 to 4"),
        ("k-tablet", {"d": 4, "k": -1}, "k = -1"),
        ("shifted-sphere-active", {"d": 4, "active": 5}, "active = 5: wanted an integer from 0 to 4"),
        ("shifted-sphere-active", {"d": 4, "active": 1.0}, "active = 1.0"),
        ("rotated-sphere", {"rotation_seed": -1}, "rotation_seed = -1: wanted an integer >= 0"),
    ],
)
def test_wrong_arguments_are_named(name: str, parameters: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ArgumentError, match=pattern):
        problems.get(name, **parameters)


@pytest.mark.parametrize("name", ["sphere", "rotated-ic-cigar"])
def test_points_of_another_dimension_are_refused(name: str) -> None:
    problem = problems.get(name, 4)
    for call in (problem.fun, problem.is_feasible):
        for x in (np.zeros(3), np.zeros((4, 5)), 1.0, np.array(1.0)):
            with pytest.raises(ArgumentError, match=r"wanted \(4,\) or \(n, 4\)"):
                call(x)


def test_the_example_in_the_docstring() -> None:
    result = doctest.testmod(problems)
    assert result.attempted > 0 and result.failed == 0
