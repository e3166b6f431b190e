"""Lens design: every ray against optiland's, every way to fail, one lens and many, the pictures."""

from __future__ import annotations

import doctest
import json
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError
from fmnes_bench import lens
from fmnes_bench.lens import drawing, optics
from fmnes_bench.lens.optics import REASONS, Floats, Lenses, Rays, trace
from tests.rows import through

RAYS = Path(__file__).parent / "data" / "lens-rays.npz"
BOTH = pytest.mark.parametrize("make", [lens.triplet, lens.double_gauss])


class Reference:
    """What optiland has traced of one of its lenses (benchmarks/lens_rays.py)."""

    def __init__(self, name: str) -> None:
        with np.load(RAYS) as arrays:
            data = {key.removeprefix(f"{name}_"): arrays[key] for key in arrays if key.startswith(name)}
        self.rays, self.spots, self.pupil = data["rays"], data["spots"], data["pupil"]
        self.entrance, self.focal_length = float(data["entrance_pupil"]), float(data["focal_length"])
        self.stop, self.distance = int(data["stop"]), float(data["thicknesses"][-1])
        self.lenses = Lenses(data["curvatures"][None], data["thicknesses"][None, :-1], data["indices"][None])
        self.wanted = lens.Specification(
            focal_length=self.focal_length,
            f_number=self.focal_length / float(data["diameter"]),
            fields=data["fields"].tolist(),
            wavelengths=data["wavelengths"].tolist(),
        )

    def solved(self) -> optics.Paraxial:
        primary = self.lenses.indices[..., self.wanted.primary]
        return optics.solve(
            self.lenses.curvatures[:, :-1], self.lenses.thicknesses, primary, self.stop - 1, self.focal_length
        )

    def traced(self, x: Floats, y: Floats) -> list[Rays]:
        """On each surface, and in the image plane."""
        start = optics.launch(self.solved().pupil, x, y, self.wanted)
        found = [passage.rays for passage in trace(self.lenses, start)]
        last = found[-1]
        along = (self.distance - last.z) / last.m
        image = last._replace(x=last.x + along * last.k, y=last.y + along * last.l, z=np.zeros_like(last.z))
        return [*found, image]


REFERENCES = pytest.mark.parametrize("name", ["triplet", "double_gauss"])


# -- rays -------------------------------------------------------------------------------------------------


@REFERENCES
def test_every_ray_is_where_optiland_has_it(name: str) -> None:
    reference = Reference(name)
    fields, wavelengths, points, surfaces, _ = reference.rays.shape
    assert (fields, wavelengths, points) == (3, 3, 5) and surfaces == {"triplet": 7, "double_gauss": 12}[name]
    found = reference.traced(*reference.pupil.T)
    assert len(found) == surfaces
    for surface, rays in enumerate(found):
        for axis, ours in enumerate(rays):
            theirs = reference.rays[..., surface, axis].transpose(1, 0, 2).reshape(wavelengths, -1)
            assert np.abs(ours[0] - theirs).max() < 1e-9, (surface, axis)
    # Off the axis, and out of the meridional plane.
    assert np.abs(reference.rays[..., -1, 1]).max() > 15 and np.abs(reference.rays[..., 0, 0]).max() > 3


@REFERENCES
def test_focal_length_and_entrance_pupil_are_those_of_optiland(name: str) -> None:
    reference = Reference(name)
    solved = reference.solved()
    assert solved.last_curvature[0] == pytest.approx(reference.lenses.curvatures[0, -1], abs=1e-9)
    assert solved.pupil[0] == pytest.approx(reference.entrance, abs=1e-9)


@REFERENCES
def test_spots_are_as_large_as_optiland_says(name: str) -> None:
    reference = Reference(name)
    rings = [(0.0, 0.0)] + [
        (i / 6 * np.cos(angle), i / 6 * np.sin(angle))
        for i in range(1, 7)
        for angle in np.arange(6 * i) * 2 * np.pi / (6 * i)
    ]
    image = reference.traced(*np.array(rings).T)[-1]
    x, y = (values[0].reshape(3, 3, -1).swapaxes(0, 1) for values in (image.x, image.y))
    # Around the middle of the spot of the primary wavelength.
    x, y = (values - values[:, 1:2].mean(-1, keepdims=True) for values in (x, y))
    ours = np.sqrt((x**2 + y**2).mean(-1))
    assert np.abs(ours - reference.spots).max() < 1e-9
    if name == "triplet":  # 4 to 19 µm, as it is known
        assert 3.5e-3 < ours.min() < 4e-3 and 19e-3 < ours.max() < 20e-3


def test_rays_obey_the_law_of_refraction_at_every_surface() -> None:
    reference = Reference("double_gauss")
    rng = np.random.default_rng(1)
    many = Lenses(*(np.repeat(array, 20, axis=0) for array in reference.lenses))
    many = many._replace(curvatures=many.curvatures * rng.uniform(0.6, 1.1, many.curvatures.shape))
    start = optics.launch(np.full(20, 50.0), *reference.pupil.T, reference.wanted)
    came = np.stack([start.k, start.l, start.m])
    checked = 0
    for surface, (rays, *_) in enumerate(trace(many, start)):
        c = many.curvatures[:, surface, None, None]
        normal = np.stack([-c * rays.x, -c * rays.y, 1 - c * rays.z])
        goes = np.stack([rays.k, rays.l, rays.m])
        good = ~np.isnan(goes[2])
        assert np.abs(((normal**2).sum(0) - 1)[good]).max() < 1e-9  # so the ray is on the sphere
        assert np.abs(((goes**2).sum(0) - 1)[good]).max() < 1e-12
        before, behind = many.indices[:, surface, :, None], many.indices[:, surface + 1, :, None]
        sines = [np.cross(way, normal, axis=0) for way in (came, goes)]
        assert np.abs((before * sines[0] - behind * sines[1])[:, good]).max() < 1e-12
        came = goes
        checked += int(good.sum())
    assert checked > 2000


@pytest.mark.parametrize(
    ("y", "l", "m", "missed"),
    [
        (15.0, -0.6, 0.8, False),  # it meets the sphere of radius 10 at y = 9.6, z = 7.2
        (19.5, -0.6, 0.8, True),  # at z = 13.52, on the half that faces away
        (21.0, -0.6, 0.8, True),  # it passes by
        (30.0, 0.995, -np.sqrt(1 - 0.995**2), True),  # it has met it, and goes back
    ],
)
def test_a_surface_is_the_near_half_of_its_sphere(y: float, l: float, m: float, missed: bool) -> None:  # noqa: E741
    ball = Lenses(np.array([[0.1]]), np.empty((1, 0)), np.array([[[1.0], [1.5]]]))
    start = Rays(*(np.full((1, 1, 1), value) for value in (0.0, y, 0.0, 0.0, l, m)))
    (passage,) = trace(ball, start)
    assert passage.missed.tolist() == [missed] and not passage.reflected.any()
    if not missed:
        assert (passage.rays.y.item(), passage.rays.z.item()) == pytest.approx((9.6, 7.2))


def test_the_reference_rays_can_be_made_anew(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.lens_rays", "--out", str(tmp_path / "rays.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=RAYS.parents[2])
    try:
        import optiland  # noqa: F401
    except ModuleNotFoundError:
        assert done.returncode == 1 and 'pip install "fmnes[real]"' in done.stderr
        assert "Traceback" not in done.stderr
    else:
        with np.load(RAYS) as kept, np.load(tmp_path / "rays.npz") as new:
            assert set(kept) == set(new)
            assert all(np.allclose(kept[key], new[key], rtol=0, atol=1e-10) for key in kept)


# -- glass ------------------------------------------------------------------------------------------------

#: n_d and the Abbe number, as SCHOTT prints them.
PRINTED = {
    "N-PK52A": (1.49700, 81.61),
    "N-FK5": (1.48749, 70.41),
    "N-BK7": (1.51680, 64.17),
    "N-SK16": (1.62041, 60.32),
    "N-SK2": (1.60738, 56.65),
    "N-LAK9": (1.69100, 54.71),
    "N-SSK2": (1.62229, 53.27),
    "N-LASF44": (1.80420, 46.50),
    "F5": (1.60342, 38.03),
    "F2": (1.62004, 36.37),
    "SF5": (1.67270, 32.21),
    "SF6": (1.80518, 25.43),
}


def test_glasses_refract_as_their_maker_prints() -> None:
    assert set(optics.NAMES) == set(PRINTED)
    for name, (index, abbe) in PRINTED.items():
        assert optics.refractive_indices([name], [optics.D])[0, 0] == pytest.approx(index, abs=5.1e-6)
        assert optics.abbe_number(name) == pytest.approx(abbe, abs=5.1e-3)


def test_the_catalogue_goes_from_little_dispersion_to_much() -> None:
    numbers = [optics.abbe_number(name) for name in optics.NAMES]
    assert numbers == sorted(numbers, reverse=True)


def test_glasses_are_those_of_optiland() -> None:
    reference = Reference("double_gauss")
    media = lens.double_gauss().form.media
    ours = optics.refractive_indices(["air", *media, "air"], reference.wanted.wavelengths)
    assert np.abs(ours - reference.lenses.indices[0]).max() < 1e-12
    reference = Reference("triplet")
    flint = optics.refractive_indices(["F2"], reference.wanted.wavelengths)
    assert np.abs(flint - reference.lenses.indices[0, 3]).max() < 1e-12


# -- merit ------------------------------------------------------------------------------------------------


def some_lenses(problem: lens.LensProblem, n: int = 1000) -> Floats:
    bounds = np.array([(p.lower, p.upper) for p in problem.parameters.values()], dtype=float)
    return np.random.default_rng(0).uniform(*bounds.T, (n, len(bounds)))


def test_the_known_designs_are_good_and_the_starts_are_not() -> None:
    triplet, gauss = lens.triplet(), lens.double_gauss()
    assert triplet.fun(triplet.known) == pytest.approx(11.468, abs=1e-3)
    assert gauss.fun(gauss.known) == pytest.approx(12.438, abs=1e-3)
    for problem in (triplet, gauss):
        assert problem.fun(problem.start) > 7 * problem.fun(problem.known)
        assert all(p.lower <= problem.known[name] <= p.upper for name, p in problem.parameters.items())
    # The last curvature and the focus are solved, and are nearly those of the design.
    known = triplet.lens(triplet.known)
    assert 1 / known.curvatures[-1] == pytest.approx(-18.39533, abs=0.01)
    assert known.thicknesses[-1] == pytest.approx(42.20778, abs=0.02)


@BOTH
def test_the_merit_is_that_of_very_many_rays_at_the_best_focus(make: Any) -> None:
    problem = make()
    points = some_lenses(problem, 500)
    good = points[np.isfinite(problem.fun(points))][:6]
    for point in [*good, list(problem.known.values())]:
        design = problem.lens(point)
        # A dense square grid over the whole pupil, a spot at a time.
        side = np.linspace(-1, 1, 41)
        x, y = (values.ravel() for values in np.meshgrid(side, side))
        inside = x**2 + y**2 < 1
        last = drawing.paths(design, x[inside], y[inside])[-1]
        shape = (3, 3, int(inside.sum()))

        def size(shift: float, last: Rays = last, shape: tuple[int, ...] = shape) -> Floats:
            x = (last.x + shift * last.k / last.m).reshape(shape)
            y = (last.y + shift * last.l / last.m).reshape(shape)
            y = y - y.mean(axis=(0, 2), keepdims=True)
            return 1000 * np.sqrt((x**2 + y**2).mean(axis=(0, 2)))

        total = [np.sqrt((size(shift) ** 2).mean()) for shift in (-0.01, 0, 0.01)]
        assert size(0.0) == pytest.approx(design.spots, rel=0.03)
        assert total[1] == pytest.approx(design.spot, rel=0.02)
        assert total[1] < min(total[0], total[2]) * (1 + 1e-3)


def test_the_edge_is_where_the_larger_of_two_surfaces_ends() -> None:
    # Spheres of radius 5 have a sag of 1 at height 3 and of 2 at height 4.
    lenses = Lenses(np.array([[0.2, -0.2, 0.0]]), np.array([[7.0, 3.0]]), np.ones((1, 4, 1)))
    for heights, edges in (((3, 4, 1), (3, 5)), ((4, 3, 4), (3, 5)), ((3, 3, 4), (5, 5)), ((3, 6, 0), None)):
        found = optics.edges(lenses, np.array([heights], dtype=float))[0]
        assert np.isnan(found).all() if edges is None else found == pytest.approx(edges)


def test_a_larger_lens_has_larger_spots_and_no_other_difference() -> None:
    small = lens.triplet()
    large = lens.triplet(lens.Specification(focal_length=100, edge=2))
    for x in some_lenses(small, 40):
        point = dict(zip(small.parameters, x, strict=True))
        scaled = {name: value / 2 if name[0] == "c" else value * 2 for name, value in point.items()}
        assert small.reasons(point) == large.reasons(scaled)
        if not small.reasons(point)[0]:
            assert large.fun(scaled) == pytest.approx(2 * small.fun(point), rel=1e-9)
    assert large.known["a2"] == 2 * small.known["a2"] and large.known["c1"] == small.known["c1"] / 2
    assert large.parameters["c1"].upper == 0.05 and large.parameters["t1"].upper == 16


# -- failures ---------------------------------------------------------------------------------------------

#: What is not said is a flat plate.
FAILING = {
    "the focal length does not exist": {"c1": 0.063, "c2": -0.099, "c3": 0.071, "c4": -0.093, "c5": 0.046},
    "a ray misses surface 1": {"c1": -0.094},
    "a ray is totally reflected at surface 2": {"c2": -0.06, "t1": 7.4},
    "negative thickness between surfaces 2 and 3": {"a2": -0.5},
    "negative edge thickness between surfaces 1 and 2": {"c1": 0.02, "c2": -0.02, "t1": 0.8},
    "negative edge thickness between surfaces 2 and 3": {"c2": 0.0, "c3": -0.03, "a2": 0.1},
    "edge too thin between surfaces 1 and 2": {"t1": 0.8},
    "the image is not behind the lens": {
        "c1": 0.09,
        "c2": 0.078,
        "c3": -0.036,
        "c4": -0.067,
        "c5": -0.061,
        "t1": 3.949,
        "a2": 10.572,
        "t3": 4.194,
        "a4": 11.154,
        "t5": 4.529,
    },
}


@through("reason", FAILING)
def test_a_lens_fails_with_its_reason(reason: str) -> None:
    problem = lens.triplet()
    plates = problem.start | dict.fromkeys(problem.form.curvatures, 0.0)
    point = plates | FAILING[reason]
    with pytest.raises(fmnes.Infeasible, match=f"^{reason}"):
        problem.fun(point)
    columns = {name: np.array([plates[name], value]) for name, value in point.items()}
    values = problem.fun(columns)
    assert np.isfinite(values[0]) and values[1] == np.inf
    assert problem.reasons(columns)[0] == "" and problem.reasons(columns)[1].startswith(reason)


def test_an_entrance_pupil_at_infinity_is_a_failure() -> None:
    # What comes in parallel meets in the stop, which is the second surface, and is collected once more.
    curvatures, thicknesses = np.array([[0.25, 0.0, 1.25]]), np.array([[8.0, 4.0, 4.0]])
    indices = np.repeat(np.array([[1.0, 2.0, 1.0, 2.0, 1.0]])[..., None], 3, axis=2)
    found = optics.quality(curvatures, thicknesses, indices, 1, lens.Specification())
    assert found.reason(0) == "the entrance pupil is at infinity" and np.isnan(found.spot[0])
    assert "pupil" not in optics.quality(curvatures, thicknesses, indices, 2, lens.Specification()).reason(0)


@BOTH
def test_most_lenses_fail_and_for_many_reasons(make: Any) -> None:
    problem = make()
    points = some_lenses(problem)
    reasons = Counter(reason.partition(" surface")[0] for reason in problem.reasons(points))
    assert 0.01 < reasons[""] / len(points) < 0.2
    assert sum(count > 3 for count in reasons.values()) >= 6
    assert (np.isfinite(problem.fun(points)) == [not reason for reason in problem.reasons(points)]).all()


def test_a_value_that_is_no_number_fails_as_any_other_and_nothing_warns() -> None:
    problem = lens.triplet()
    points = np.tile(list(problem.start.values()), (4, 1))
    points[1, 0], points[2, 5], points[3, 1] = np.nan, np.inf, 1e200
    values = problem.fun(points)
    assert np.isfinite(values).tolist() == [True, False, False, False]
    assert all(problem.reasons(points)[1:])


@BOTH
def test_20_to_60_percent_of_the_first_20_generations_fail(make: Any) -> None:
    problem = make()
    shares = []
    for seed in range(10):
        told: list[bool] = []

        def fun(columns: Any, told: list[bool] = told) -> Any:
            values = problem.fun(columns)
            told.extend(np.isinf(values).tolist())
            return values

        generations = fmnes.minimize(
            fun,
            problem.parameters,
            vectorized=True,
            rng=seed,
            callback=lambda view: view.generation >= 20,
        ).nit
        assert generations == 20
        shares.append(np.mean(told[1:]))  # the first is the start itself
    assert 0.2 < np.median(shares) < 0.6
    assert sum(0.2 < share < 0.6 for share in shares) >= 8


# -- one lens and many ------------------------------------------------------------------------------------


@BOTH
def test_a_lens_has_one_value_however_it_is_given(make: Any) -> None:
    problem = make()
    points = np.vstack([some_lenses(problem, 150), list(problem.known.values())])
    values = problem.fun(points)
    columns = dict(zip(problem.parameters, points.T, strict=True))
    assert np.array_equal(problem.fun(columns), values)
    backwards = dict(reversed(columns.items()))
    assert np.array_equal(problem.fun(backwards), values)
    assert np.isfinite(values).sum() >= 3
    for point, value in zip(points, values, strict=True):
        named = dict(zip(problem.parameters, point.tolist(), strict=True))
        if np.isfinite(value):
            assert problem.fun(point) == value and problem.fun(named) == value
            assert isinstance(problem.fun(named), float)
        else:
            with pytest.raises(fmnes.Infeasible):
                problem.fun(point)
            with pytest.raises(fmnes.Infeasible):
                problem.fun(named)


def test_no_lens_at_all_has_no_values() -> None:
    assert lens.triplet().fun(np.empty((0, 10))).shape == (0,)
    assert lens.triplet().reasons(np.empty((0, 10))) == []


def test_the_arguments_are_left_as_they_were() -> None:
    problem = lens.triplet()
    points = some_lenses(problem, 5)
    kept = points.copy()
    points.flags.writeable = False
    problem.fun(points)
    assert np.array_equal(points, kept)


@BOTH
def test_a_search_is_the_same_with_one_call_a_generation_and_with_one_a_lens(make: Any) -> None:
    problem = make()
    settings: dict[str, Any] = {"rng": 3, "max_evaluations": 150, "surrogate": False}
    many = fmnes.minimize(problem.fun, problem.parameters, vectorized=True, **settings)
    one = fmnes.minimize(problem.fun, problem.parameters, **settings)
    assert one.x == many.x and one.fun == many.fun and one.n_infeasible == many.n_infeasible > 10
    assert {failure.reason for failure in one.failures} - {""} and "misses surface" in str(one.failures)


def test_a_problem_can_be_sent_to_other_processes() -> None:
    problem = lens.double_gauss(glasses=True)
    again = pickle.loads(pickle.dumps(problem))
    assert again == problem
    assert pickle.loads(pickle.dumps(problem.fun))(problem.known) == problem.fun(problem.known)


def test_the_default_makes_a_better_triplet_than_the_one_that_is_known() -> None:
    problem = lens.triplet()
    result = fmnes.minimize(problem.fun, problem.parameters, vectorized=True, rng=0, max_evaluations=5000)
    assert result.fun < problem.fun(problem.known)
    assert problem.lens(result.x).spot == result.fun


# -- glasses from the catalogue ---------------------------------------------------------------------------


@BOTH
def test_glasses_can_be_searched_as_integers(make: Any) -> None:
    fixed, free = make(), make(glasses=True)
    integers = {n: p for n, p in free.parameters.items() if isinstance(p, fmnes.Integer)}
    assert set(integers) == set(free.form.glasses)
    assert len(integers) == sum(medium != "air" for medium in fixed.form.media)
    assert free.fun(free.known) == fixed.fun(fixed.known)
    name = next(iter(integers))
    other = free.known | {name: 11}
    assert free.reasons(other)[0] or free.fun(other) != free.fun(free.known)
    result = fmnes.minimize(free.fun, free.parameters, vectorized=True, rng=1, max_evaluations=300)
    assert all(isinstance(result.x[name], int) for name in integers)
    assert result.fun < free.fun(free.start)


def test_a_glass_number_is_its_place_in_the_catalogue() -> None:
    free = lens.triplet(glasses=True)
    assert [free.known[name] for name in ("g1", "g3", "g5")] == [3, 9, 3]
    design = free.lens(free.known | {"g3": 8})
    assert design.media == ("N-SK16", "air", "F5", "air", "N-SK16")
    expected = optics.refractive_indices(["F5"], free.wanted.wavelengths)[0]
    assert (design.quality.lenses.indices[0, 3] == expected).all()
    columns = {name: np.full(12, value) for name, value in free.known.items()} | {"g3": np.arange(12)}
    values = free.fun(columns)
    assert values[9] == free.fun(free.known) == values.min()  # the glass that the designer took


@pytest.mark.parametrize("number", [-1, 12, 2.5, np.nan])
def test_a_glass_that_is_not_in_the_catalogue_is_refused(number: float) -> None:
    free = lens.triplet(glasses=True)
    with pytest.raises(ArgumentError, match=r"g3: found .*, wanted a position in the catalogue, 0 to 11"):
        free.fun(free.known | {"g3": number})


# -- bad input --------------------------------------------------------------------------------------------


def test_a_start_that_cannot_be_traced_is_said_so() -> None:
    with pytest.raises(ArgumentError, match=r"start: found a lens that cannot be traced \(a ray misses surf"):
        lens.triplet(start={"c5": 0.1})
    with pytest.raises(ArgumentError, match="start: found a lens that cannot be traced"):
        lens.triplet(lens.Specification(f_number=0.8))
    with pytest.raises(ArgumentError, match=r"start: found 'c6', wanted some of c1, .*did you mean"):
        lens.triplet(start={"c6": 0.0})
    with pytest.raises(ArgumentError, match=r"start: found \[0.1\], wanted a dict"):
        lens.triplet(start=[0.1])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"start, c1: Real: found start=0.5 outside of its bounds"):
        lens.triplet(start={"c1": 0.5})
    problem = lens.triplet(start=lens.triplet().known)
    assert problem.parameters["c1"].start == 1 / 22.01359


@through(
    ("points", "message"),
    [
        (np.zeros(9), r"points: found shape \(9,\), wanted \(10,\) or \(n, 10\)"),
        (np.zeros((2, 3, 10)), r"points: found shape \(2, 3, 10\)"),
        ({"c1": 0.0}, "points: found a dict without 'c2', wanted c1, "),
        (lens.triplet().known | {"c6": 0.1}, "points: found a dict with 'c6'"),
        (lens.triplet().known | {"g1": 3}, "points: found a dict with 'g1'"),
        (lens.triplet().known | {"c1": "steep"}, "points: found c1 = 'steep', wanted real numbers"),
        (lens.triplet().known | {"c1": [0.1, 0.2]}, "points: found columns of different shapes"),
    ],
)
def test_points_of_another_form_are_refused(points: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        lens.triplet().fun(points)


@through(
    ("settings", "message"),
    [
        ({"focal_length": 0}, "focal_length: found 0, wanted a positive number"),
        ({"f_number": "2"}, "f_number: found '2'"),
        ({"fields": ()}, "fields: found"),
        ({"fields": 20}, "fields: found 20"),
        ({"fields": (0, 95)}, "angles from 0 to below 90"),
        ({"wavelengths": (486,)}, "wavelengths from 0.3"),
        ({"edge": -1}, "edge: found -1"),
    ],
)
def test_a_specification_that_cannot_be_meant_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        lens.Specification(**settings)


def test_what_is_no_specification_and_no_lens_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"wanted: found 50, wanted a lens\.Specification"):
        lens.triplet(50)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"glasses: found \['N-BK7', .*, wanted True or False"):
        lens.triplet(glasses=["N-BK7", "F2", "N-BK7"])  # type: ignore[arg-type]
    problem = lens.triplet()
    design = problem.lens(problem.known)
    with pytest.raises(ArgumentError, match=r"after: found .*wanted a lens, such as"):
        lens.draw(design, problem.known)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"point: found a lens that cannot be traced \(a ray misses"):
        problem.lens(problem.start | {"c1": -0.094})
    with pytest.raises(ArgumentError, match="point: found 3 lenses, wanted one"):
        problem.lens(np.zeros((3, 10)))


# -- seen and imported ------------------------------------------------------------------------------------


def test_a_lens_is_told_as_its_prescription() -> None:
    problem = lens.double_gauss()
    rows = str(problem.lens(problem.known)).splitlines()
    assert len(rows) == 12
    assert rows[3].split() == ["3", "37.683", "12.500", "N-SK2"]
    assert rows[4].split() == ["4", "plane", "3.800", "F5"]
    assert rows[6].split() == ["6", "plane", "13.748", "air", "(stop)"]
    assert repr(problem.lens(problem.known)) == "<double Gauss, 100 mm, RMS spot 12.4 µm>"


@BOTH
def test_the_picture_shows_both_lenses_their_rays_and_their_spots(make: Any) -> None:
    pytest.importorskip("matplotlib")
    problem = make()
    before, after = problem.lens(problem.start), problem.lens(problem.known)
    figure = lens.draw(before, after)
    sections = [axes for axes in figure.axes if "RMS spot" in axes.get_title(loc="left")]
    spots = [axes for axes in figure.axes if axes not in sections]
    assert [axes.get_title(loc="left") for axes in sections] == [
        f"before: RMS spot {before.spot:.4g} µm",
        f"after: RMS spot {after.spot:.4g} µm",
    ]
    assert len({axes.get_xlim() for axes in sections}) == 1  # at one scale
    glasses = len([medium for medium in before.media if medium != "air"])
    for axes, design in zip(sections, (before, after), strict=True):
        assert len(axes.patches) == glasses
        rays = [line for line in axes.lines if len(line.get_xdata()) == len(design.curvatures) + 2]
        assert len(rays) == 15
        assert np.ptp([line.get_xdata()[-1] for line in rays]) < 1e-9
        assert rays[0].get_xdata()[-1] == pytest.approx(design.thicknesses.sum())
        heights = np.abs([ray.get_ydata()[1:-1] for ray in rays]).max(0)
        for patch, i in zip(axes.patches, np.flatnonzero(np.array(design.media) != "air"), strict=True):
            assert patch.get_xy()[:, 1].max() == pytest.approx(max(heights[i : i + 2]))
        stop = [line for line in axes.lines if line.get_linewidth() > 2]
        assert sorted(line.get_ydata()[0] for line in stop) == pytest.approx(
            [ray.get_ydata()[design.stop] for ray in (rays[0], rays[4])]
        )
    assert len(spots) == 6
    for axes, size in zip(spots, [*before.spots, *after.spots], strict=True):
        assert axes.get_title().endswith(f"{size:.4g} µm")
        low, high = axes.get_xlim()
        marks = np.concatenate([np.hypot(*line.get_data()) for line in axes.lines])
        assert len(axes.lines) == 3 and marks.max() < 1.5 * high and low == -high
        assert 0.5 * size < np.sqrt((marks**2).mean()) < 2 * size
    figure.canvas.draw()


def test_lenses_of_other_fields_and_wavelengths_are_drawn_beside_each_other() -> None:
    pytest.importorskip("matplotlib")
    plain = lens.triplet(lens.Specification(fields=[0], wavelengths=[0.55]))
    rich = lens.triplet(lens.Specification(fields=range(0, 21, 3), wavelengths=np.linspace(0.45, 0.65, 5)))
    figure = lens.draw(plain.lens(plain.known), rich.lens(rich.known))
    figure.canvas.draw()
    assert len(figure.axes) == 2 + 1 + 7 and [len(axes.lines) for axes in figure.axes[-7:]] == [5] * 7


def test_drawn_rays_are_those_of_the_merit() -> None:
    design = lens.triplet().lens(lens.triplet().known)
    half = optics.half_pupil()
    image = drawing.paths(design, half.x, half.y)[-1]
    x, y = (values[0].reshape(3, 3, -1) for values in (image.x, image.y))
    y = y - (y * half.weights).sum(-1).mean(0)[:, None]
    spots = 1000 * np.sqrt(((x**2 + y**2) * half.weights).sum(-1).mean(0))
    assert spots == pytest.approx(design.spots, rel=1e-9)
    assert image.z == pytest.approx(design.thicknesses.sum())


def test_without_matplotlib_a_picture_says_what_to_install() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
import fmnes
from fmnes_bench import lens
problem = lens.triplet()
design = problem.lens(problem.known)
try:
    lens.draw(design, design)
except fmnes.MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert 'pip install "fmnes[plot]"' in done.stdout, done.stderr


def test_it_is_loaded_when_it_is_asked_for_and_needs_numpy_only() -> None:
    code = """
import json, sys
before = set(sys.modules)
import fmnes
import fmnes_bench.lens
fmnes_bench.lens.triplet()
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert loaded - set(sys.stdlib_module_names) <= {"fmnes", "fmnes_bench", "numpy"}
    with pytest.raises(AttributeError):
        fmnes.problems.nothing  # noqa: B018


def test_the_example_in_the_docstring_holds() -> None:
    failed, tried = doctest.testmod(lens)
    assert tried >= 4 and not failed


def test_every_reason_has_a_test() -> None:
    told = {reason.partition(" surface")[0] for reason in FAILING} | {"the entrance pupil is at infinity", ""}
    assert {reason.partition(" surface")[0].partition(":")[0] for reason in REASONS} <= told
