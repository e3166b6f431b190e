"""Models of the objective and of each limit, in a search under limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import Optimizer, SnapshotError
from fmnes.constraints import read_constraints
from fmnes.run.settings import Settings, evaluations_with_models
from fmnes.search.modelled import use_surrogate
from fmnes.surrogate import limited
from fmnes.surrogate.limited import LimitedSurrogate
from fmnes_bench.constraints import PROBLEMS

START = [2.0, 1.0, -1.0]
LIMITS = {"sum": (1.0, None), "norm": (None, 9.0)}


def shifted(x: np.ndarray) -> Any:
    """Optimum at (1, 1, 1)/3 with the value 1/3; crashes far away."""
    if x[0] > 4:
        raise RuntimeError("crashed")
    return float(x @ x), {"sum": float(x.sum()), "norm": float(x @ x)}


def points_of(fun: Any, n: int, limits: Any = LIMITS, **options: Any) -> np.ndarray:
    """All points of a run with models."""
    seen: list[np.ndarray] = []

    def recorded(x: np.ndarray) -> Any:
        seen.append(np.array(x))
        return fun(x)

    options = {"rng": 3, "surrogate": True, **options}
    fmnes.minimize(recorded, START, 1.0, constraints=limits, max_evaluations=n, **options)
    return np.array(seen)


def test_few_evaluations_find_an_optimum_on_a_limit() -> None:
    options: dict[str, Any] = {"constraints": LIMITS, "rng": 1, "max_evaluations": 60}
    found = fmnes.minimize(shifted, START, 1.0, **options)  # "auto": few evaluations
    assert found.feasible and found.fun == pytest.approx(1 / 3, rel=1e-6)
    plain = fmnes.minimize(shifted, START, 1.0, surrogate=False, **options)
    assert found.fun - 1 / 3 < 0.1 * (plain.fun - 1 / 3)
    assert found.constraints is not None
    total, norm = found.constraints["sum"], found.constraints["norm"]
    assert total.active and total.multiplier == pytest.approx(2 / 3, rel=0.05)
    assert not norm.active


def g06(x: np.ndarray) -> tuple[float, list[float]]:
    f = (x[0] - 10) ** 3 + (x[1] - 20) ** 3
    return f, [100 - (x[0] - 5) ** 2 - (x[1] - 5) ** 2, (x[0] - 6) ** 2 + (x[1] - 5) ** 2 - 82.81]


def solve_g06(seed: int, n: int) -> Any:
    return fmnes.minimize(
        g06,
        bounds=[(13, 100), (0, 100)],
        constraints=[(None, 0)] * 2,
        rng=seed,
        max_evaluations=n,
        surrogate=True,
    )


@pytest.mark.parametrize("seed", range(4))
def test_g06_takes_few_evaluations(seed: int) -> None:
    found = solve_g06(seed, 300)
    assert found.feasible and found.fun == pytest.approx(-6961.8138756, rel=1e-6)


def test_models_begin_a_run_of_any_budget() -> None:
    """50 evaluations per dimension with models, then the plain rule, which the models leave alone."""
    phases: list[str] = []
    kept: list[int] = []
    for seed in range(3):
        opt = Optimizer(
            [80.0, 80.0], 20.0, bounds=[(13, 100), (0, 100)], constraints=[(None, 0)] * 2, rng=seed
        )
        use_surrogate(opt, until=60)
        while opt.evaluations < 150:
            opt.tell([g06(x) for x in opt.ask()])
            assert isinstance(opt._surrogate, LimitedSurrogate)
            phases.append(opt._surrogate.phase)
            kept.append(len(opt._surrogate.data))
            if opt._surrogate.is_over and opt._surrogate.phase == "local" and opt._constrained is not None:
                assert opt._constrained.pending is None or opt._constrained._violated
        assert phases[-1] == "local" and 60 <= kept[-1] < 80 < opt.evaluations
    for seed in range(4):
        found = fmnes.minimize(
            g06, bounds=[(13, 100), (0, 100)], constraints=[(None, 0)] * 2, rng=seed, max_evaluations=1000
        )
        assert found.feasible and found.fun == pytest.approx(-6961.8138756, rel=1e-6)


@pytest.mark.parametrize(
    ("d", "budget", "options", "wanted"),
    [
        (3, 600, {}, None),
        (3, 601, {}, 150),
        (3, None, {}, 150),
        (20, None, {}, 1000),
        (21, None, {}, 0),
        (21, 2000, {}, None),
        (41, 2000, {}, 0),
        (3, None, {"constraints": None}, 0),
        (3, None, {"method": "fm-nes"}, 0),
        (3, None, {"surrogate": False}, 0),
        (3, None, {"surrogate": True}, None),
        (3, None, {"plain": True}, 0),
    ],
)
def test_in_how_many_evaluations_models_take_part(
    d: int, budget: int | None, options: dict[str, Any], wanted: int | None
) -> None:
    options = {"constraints": [(None, 0.0)], "method": "afm-nes", **options}
    surrogate, plain = options.pop("surrogate", "auto"), options.pop("plain", False)
    opt = Optimizer(np.zeros(d), 1.0, **options)
    settings = Settings(
        max_evaluations=budget,
        max_seconds=None,
        workers=1,
        vectorized=False,
        timeout=None,
        retries=0,
        on_error="infeasible",
        restarts=0,
        target=None,
        restart_from=None,
        second_look=True,
        evaluate_start=True,
    )
    found = evaluations_with_models(surrogate, settings, opt, program=False, plain=plain)
    assert found == wanted


def test_a_success_is_right() -> None:
    found = solve_g06(0, 1500)
    assert found.success and found.feasible and found.fun == pytest.approx(-6961.8138756, rel=1e-6)
    for name in ("spring", "G11"):
        problem = PROBLEMS[name]
        limit = fmnes.Constraint(0.0, 0.0, tolerance=1e-4) if problem.equality else (None, 0.0)
        found = fmnes.minimize(
            lambda x, problem=problem: (float(problem.f(x)), [float(g) for g in problem.g(x)]),
            bounds=list(zip(problem.lower, problem.upper, strict=True)),
            constraints=[limit] * len(problem.g(np.array(problem.upper, dtype=float))),
            rng=0,
            max_evaluations=700,
            surrogate=True,
        )
        assert not found.success or found.fun == pytest.approx(problem.best, rel=1e-4), name


def test_an_optimum_where_a_limit_meets_the_edge_of_what_works() -> None:
    def fun(x: np.ndarray) -> Any:
        if x.sum() > 0:
            raise RuntimeError("crashed")
        return float((x - 1) @ (x - 1)), {"first": float(x[0])}

    gaps, failures = [], 0
    for seed in range(4):
        options: dict[str, Any] = {"rng": seed, "max_evaluations": 80, "surrogate": True}
        found = fmnes.minimize(fun, [-2.0, -1.0, -1.0], 0.5, constraints={"first": (None, -0.5)}, **options)
        assert found.feasible
        gaps.append(found.fun - 3.375)  # at (−.5, .25, .25)
        failures += found.n_infeasible
    assert np.median(gaps) < 0.01 and max(gaps) < 0.1
    assert failures < 200  # of 320


def test_an_equality_and_a_crash_beside_it() -> None:
    def fun(x: np.ndarray) -> Any:
        if x[1] < 0.2:
            raise RuntimeError("crashed")
        return float((x[0] - 2) ** 2 + x[1] ** 2), {"circle": float(x @ x)}

    limits = {"circle": fmnes.Constraint(1.0, 1.0, tolerance=1e-4)}
    gaps = []
    for seed in range(3):
        found = fmnes.minimize(
            fun, [0.3, 1.5], 0.5, constraints=limits, rng=seed, max_evaluations=150, surrogate=True
        )
        assert found.feasible
        gaps.append(found.fun - (5 - 4 * np.sqrt(0.96)))  # on the circle, at the edge: x₁ = .2
    assert np.median(gaps) < 0.02


def test_limits_that_never_hold_are_said() -> None:
    def fun(x: np.ndarray) -> Any:
        return float(x @ x), {"positive": float(x @ x) + 1.0}

    found = fmnes.minimize(
        fun, START, 1.0, constraints={"positive": (None, 0.0)}, rng=1, max_evaluations=80, surrogate=True
    )
    assert not found.feasible and not found.success and "positive" in found.message
    assert found.x is not None and found.fun < 1.0  # near the least violated point


def test_nan_outputs_are_failures_of_the_models_too() -> None:
    def fun(x: np.ndarray) -> Any:
        value, outputs = shifted(x)
        return value, {**outputs, "sum": np.nan} if x[1] > 1.2 else outputs

    found = fmnes.minimize(fun, START, 1.0, constraints=LIMITS, rng=1, max_evaluations=90, surrogate=True)
    assert found.feasible and found.fun == pytest.approx(1 / 3, rel=1e-3)
    assert 0 < found.n_infeasible < 60


def test_points_do_not_depend_on_units() -> None:
    wanted = points_of(shifted, 90)
    factors = {"sum": 2.0**-20, "norm": 2.0**30}

    def scaled(x: np.ndarray) -> Any:
        value, outputs = shifted(x)
        return 2.0**12 * value, {name: factors[name] * output for name, output in outputs.items()}

    limits = {"sum": (factors["sum"], None), "norm": (None, 9 * factors["norm"])}
    assert (points_of(scaled, 90, limits=limits) == wanted).all()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"integers": [0, 0.25, 0]},
        {"bounds": [(-3, 3)] * 3, "restarts": 2},
        {"surrogate": "auto", "max_evaluations": 650, "second_look": False},
    ],
)
def test_a_run_that_stops_anywhere_is_resumed_bit_for_bit(tmp_path: Path, more: dict[str, Any]) -> None:
    options: dict[str, Any] = {"constraints": LIMITS, "rng": 4, "max_evaluations": 130, "surrogate": True}
    options |= more
    whole = fmnes.minimize(shifted, START, 1.0, **options)
    calls = 0

    def stops(x: np.ndarray) -> Any:
        nonlocal calls
        calls += 1
        if calls % 23 == 0:
            raise KeyboardInterrupt
        return shifted(x)

    run = tmp_path / "run"
    found = fmnes.minimize(stops, START, 1.0, run_dir=run, **options)
    while found.stop_reason is fmnes.StopReason.INTERRUPTED:
        found = fmnes.resume(run, stops)
    assert found == whole


def asked(batch: int, n: int, folder: Path | None = None) -> list[np.ndarray]:
    """The points of ask and tell; folder: saved and loaded after each answer."""
    opt = Optimizer(START, 1.0, constraints=LIMITS, rng=1, surrogate=True, batch_size=batch)
    found: list[np.ndarray] = []
    while len(found) < n:
        X = opt.ask()
        found += list(np.array(X))
        values = []
        for x in X:
            try:
                values.append(shifted(x))
            except RuntimeError:
                values.append(None)
        opt.tell(values)
        if folder is not None:
            opt.save(folder / "search.npz")
            opt = Optimizer.load(folder / "search.npz")
    return found


@pytest.mark.parametrize("batch", [1, 3])
def test_save_and_load_change_nothing(tmp_path: Path, batch: int) -> None:
    wanted, found = asked(batch, 70), asked(batch, 70, tmp_path)
    assert (np.array(wanted) == np.array(found)).all()


def test_workers_get_points_together() -> None:
    def sizes(batch: int) -> list[int]:
        opt = Optimizer(START, 1.0, constraints=LIMITS, rng=1, surrogate=True, batch_size=batch)
        found = []
        for _ in range(6):
            X = opt.ask()
            found.append(len(X))
            opt.tell([shifted(np.minimum(x, 3.9)) for x in X])
        return found

    assert max(sizes(3)[2:]) == 3 and max(sizes(1)[2:]) == 1
    crew = fmnes.minimize(
        shifted, START, 1.0, constraints=LIMITS, rng=1, max_evaluations=90, surrogate=True, workers=3
    )
    assert crew.feasible and crew.fun == pytest.approx(1 / 3, rel=1e-3)


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    opt = Optimizer(START, 1.0, constraints=LIMITS, rng=1, surrogate=True)
    for _ in range(4):
        opt.tell([shifted(np.minimum(x, 3.9)) for x in opt.ask()])
    metadata, arrays = opt.dump()
    assert Optimizer.restore(metadata, dict(arrays)).evaluations == opt.evaluations
    for name, wrong in (
        ("g", np.zeros((2, 2))),
        ("f", np.full_like(arrays["surrogate.f"], np.nan)),
        ("penalties", np.array([-1.0, 0.0])),
        ("multipliers", np.array([np.nan, 0.0])),
    ):
        with pytest.raises(SnapshotError):
            Optimizer.restore(metadata, {**arrays, f"surrogate.{name}": wrong})


def test_many_limits_do_not_take_long_to_model() -> None:
    normals = np.random.default_rng(1).standard_normal((1000, 4))

    def fun(x: np.ndarray) -> Any:
        return float((x - 2) @ (x - 2)), (normals @ x - 1).tolist()

    opt = Optimizer(np.zeros(4), 0.3, constraints=[(None, 0.0)] * 1000, rng=1, surrogate=True)
    chosen = 0
    for _ in range(25):
        opt.tell([fun(x) for x in opt.ask()])
        assert isinstance(opt._surrogate, LimitedSurrogate)
        known = np.isfinite(opt._surrogate.f)
        chosen = max(chosen, len(opt._surrogate._nearly_violated(opt._surrogate.g[known])))
    assert chosen == limited.MOST_LIMITS
    assert opt.best.x is not None and (normals @ opt.best.x <= 1).all() and opt.best.fun < 15.5


def test_merits_are_the_values_and_the_violations() -> None:
    limits = read_constraints({"a": (None, 1.0), "b": (2.0, 2.0)})
    assert limits is not None
    opt = Optimizer([0.0, 0.0], 1.0, constraints=limits, rng=1, surrogate=True)
    models = opt._surrogate
    assert isinstance(models, LimitedSurrogate)
    rows = [(1.0, [0.0, 2.0]), (0.0, [3.0, 2.0]), (5.0, [0.0, 4.0]), (np.nan, [0.0, 0.0])]
    for i, (value, outputs) in enumerate(rows):
        models.add(np.array([float(i), 0.0]), value, outputs=np.array(outputs))
    models.penalties = np.array([10.0, 1.0])
    merits = models._merits(models.f, models.g)
    tolerance = limits.tolerance[1]
    assert merits[:3] == pytest.approx([1.0, 20.0, 5.0 + 2.0 - tolerance]) and np.isnan(merits[3])


def test_the_oldest_points_are_forgotten_with_their_outputs() -> None:
    opt = Optimizer([0.0, 0.0], 1.0, constraints={"sum": (1.0, None)}, rng=1)
    use_surrogate(opt)
    models = opt._surrogate
    assert isinstance(models, LimitedSurrogate)
    models.data.most = 50
    models.begin_search()
    for i in range(120):
        models.add(np.array([float(i), 0.0]), float(i), outputs=np.array([float(i)]))
        models.propose(None)
    assert len(models.data) <= 55 and models.f[-1] == 119.0 and models.g[-1, 0] == 1.0 - 119.0
    assert (models.f == models.points(models.data.u)[:, 0]).all()
