"""A method of scipy.optimize.minimize, and a neighbour of differential_evolution; integrations/scipy/."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.optimize as so

import fmnes as library
from fmnes.integrations.scipy import evolution_strategy, fmnes
from tests.rows import through

X0 = [1.5, 0.5]
#: What SciPy calls it; before 1.15 it was seed.
RNG = "rng" if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 15) else "seed"


def sphere(x: np.ndarray) -> float:
    return float(np.sum((x - 0.3) ** 2))


def half(x: np.ndarray) -> float:
    """Fails for half of the space; its best value is 0, in the corner (0, 0)."""
    return float(np.sum(x**2)) if (x >= 0).all() else np.nan


def raising(x: np.ndarray) -> float:
    if x[0] < 0:
        raise RuntimeError("diverged")
    return float(np.sum(x**2))


class Spy:
    """A function that remembers where it was called."""

    def __init__(self, fun: Any = sphere) -> None:
        self.points: list[np.ndarray] = []
        self._fun = fun

    def __call__(self, x: np.ndarray, *args: Any) -> Any:
        self.points.append(np.array(x))
        return self._fun(x, *args)


def run(fun: Any = sphere, x0: Any = X0, *, options: dict[str, Any] | None = None, **more: Any) -> Any:
    return so.minimize(fun, x0, method=fmnes, options={"rng": 1, **(options or {})}, **more)


def same(a: Any, b: Any) -> bool:
    return a.nfev == b.nfev and a.fun == b.fun and np.array_equal(a.x, b.x)


# -- minimize ---------------------------------------------------------------------------------------------


def test_the_result_is_scipys_own() -> None:
    res = run(half, options={"sigma0": 0.5})
    assert type(res) is so.OptimizeResult
    assert res.success is True and res.status == 0 and res.message
    assert res.fun < 1e-15 and (res.x >= 0).all() and res.x.shape == (2,) and res.x.flags.writeable
    assert 0 < res.nfail < res.nfev and res.nit > 1
    assert res.nfail == sum(failure.count for failure in res.failures)
    assert res.failures[0].reason == "returned NaN" and np.isnan(half(res.failures[0].x[0]))
    assert res.x_mean.shape == (2,) and len(res.history["best"]) == res.nit
    assert "nfail" in repr(res)


@pytest.mark.parametrize("method", ["afm-nes", "fm-nes", "cr-fm-nes", "cma-es", library.XNES()])
def test_it_is_our_minimize(method: Any) -> None:
    ours = library.minimize(half, X0, 0.5, method=method, rng=3, max_evaluations=300)
    assert same(ours, run(half, options={"sigma0": 0.5, "method": method, "rng": 3, "maxfev": 300}))
    if method == "afm-nes":
        assert same(ours, run(half, options={"sigma0": 0.5, "rng": 3, "maxfev": 300}))


@through(
    "bounds",
    [
        so.Bounds([0.5, -1.0], [2.0, 1.0]),
        [(0.5, 2.0), (-1.0, 1.0)],
        ((0.5, 2.0), [-1.0, 1.0]),
        np.array([[0.5, 2.0], [-1.0, 1.0]]),
        [np.array([0.5, 2.0]), np.array([-1.0, 1.0])],
        library.Bounds([0.5, -1.0], [2.0, 1.0]),
    ],
)
def test_bounds_in_all_forms(bounds: Any) -> None:
    spy = Spy()
    res = run(spy, bounds=bounds)
    points = np.array(spy.points)
    assert (points >= [0.5, -1.0]).all() and (points <= [2.0, 1.0]).all()
    assert res.x == pytest.approx([0.5, 0.3], abs=1e-6)
    assert same(res, run(bounds=[(0.5, 2.0), (-1.0, 1.0)]))


@pytest.mark.parametrize("bounds", [[(0.5, None), (None, None)], so.Bounds([0.5, -np.inf])])
def test_bounds_may_be_open(bounds: Any) -> None:
    res = run(bounds=bounds)
    assert res.x == pytest.approx([0.5, 0.3], abs=1e-6)


def test_bounds_may_come_from_zip_and_be_one_for_all() -> None:
    expected = run(bounds=[(0.5, 2.0), (0.5, 2.0)])
    assert same(expected, run(bounds=zip([0.5, 0.5], [2.0, 2.0], strict=True)))
    assert same(expected, run(bounds=so.Bounds(0.5, 2.0)))
    assert same(expected, run(bounds=so.Bounds([0.5, 0.5], 2.0)))
    assert same(expected, library.minimize(sphere, X0, bounds=so.Bounds(0.5, 2.0), rng=1))


@pytest.mark.parametrize("bounds", [[(2.0, 1.0), (0, 1)], [(0, 1)], [(0, np.nan), (0, 1)], "ab", 3])
def test_wrong_bounds_are_named_before_anything_is_evaluated(bounds: Any) -> None:
    spy = Spy()
    with pytest.raises(library.ArgumentError, match="bounds"):
        run(spy, bounds=bounds)
    assert not spy.points


def test_a_start_outside_the_bounds_is_moved_inside() -> None:
    spy = Spy()
    with pytest.warns(so.OptimizeWarning, match="Initial guess is not within") as told:
        run(spy, [5.0, 0.5], bounds=[(0, 1), (0, 1)])
    assert spy.points[0].tolist() == [1.0, 0.5]
    assert told[0].filename == __file__


def test_arguments_are_handed_on() -> None:
    def shifted(x: np.ndarray, by: float, times: float = 1.0) -> float:
        return times * float(np.sum((x - by) ** 2))

    assert run(shifted, args=(2.0, 3.0)).x == pytest.approx([2.0, 2.0], abs=1e-6)
    assert run(shifted, args=2.0).x == pytest.approx([2.0, 2.0], abs=1e-6)


@pytest.mark.parametrize("x0", [0.7, [0.7], np.array(0.7), [1]])
def test_one_coordinate_is_enough(x0: Any) -> None:
    res = run(x0=x0)
    assert res.x.shape == (1,) and res.x[0] == pytest.approx(0.3, abs=1e-6)


def test_tol_is_of_steps_and_values() -> None:
    coarse, fine = run(tol=1e-2), run(tol=1e-10)
    assert coarse.success and coarse.nfev < run().nfev < fine.nfev
    assert same(fine, run(options={"xtol": 1e-10, "ftol": 1e-10}))
    assert same(fine, run(tol=1e-10, options={"xtol": 1e-10}))
    with pytest.raises(library.ArgumentError, match="tol: found -1"):
        run(tol=-1.0)


def test_a_tol_of_zero_is_off() -> None:
    assert same(
        run(tol=0, options={"maxfev": 2000}), run(options={"xtol": None, "ftol": None, "maxfev": 2000})
    )


def test_options_of_our_minimize_are_passed_through(tmp_path: Path) -> None:
    res = run(
        options={"run_dir": tmp_path / "run", "maxfev": 60, "population_size": 10, "keep_evaluations": True}
    )
    assert res.nfev == 60 and len(res.evaluations) == 60
    assert library.resume(tmp_path / "run", sphere, max_evaluations=90).nfev == 90
    assert run(options={"target": 1e-3}).fun <= 1e-3


def test_a_run_with_arguments_can_be_resumed_by_its_name(tmp_path: Path) -> None:
    res = run(shifted_sphere, args=(1.0,), options={"run_dir": tmp_path / "run", "maxfev": 30})
    config = (tmp_path / "run" / "config.json").read_text()
    assert res.nfev == 30 and "shifted_sphere" in config and "Objective" not in config


def shifted_sphere(x: np.ndarray, by: float) -> float:
    return float(np.sum((x - by) ** 2))


def test_a_program_may_be_the_objective() -> None:
    script = "import sys; print(sum(float(x) ** 2 for x in sys.argv[1:]))"
    command = library.Command([sys.executable, "-c", script, "{x0}", "{x1}"])
    assert run(command, options={"maxfev": 8}).nfev == 8
    with pytest.raises(library.ArgumentError, match="Command together with"):
        run(command, args=(1,))


# -- sigma0 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x0", "bounds", "sigma0"),
    [
        ([4.0, 0.0, -1e-3], None, [2.0, 1.0, 5e-4]),
        ([4.0, 0.0, 1.0], [(0, 8), (None, None), (0, None)], [2.0, 1.0, 0.5]),
        ([4.0, 2.0, 1.0], [(0, 8), (0, 20), (-10, 10)], [2.0, 5.0, 5.0]),
    ],
)
def test_the_first_steps_that_nobody_gave(x0: Any, bounds: Any, sigma0: Any) -> None:
    def fun(x: np.ndarray) -> float:
        return float(np.sum(x**2))

    settings = {"maxfev": 50}
    ours = run(fun, x0, bounds=bounds, options=settings)
    assert same(ours, run(fun, x0, bounds=bounds, options={**settings, "sigma0": sigma0}))


def test_the_smallest_start_is_taken_for_zero() -> None:
    assert run(x0=[1e-300, 1.0], options={"maxfev": 50}).nfev == 50


# -- derivatives and constraints --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"jac": lambda x: 2 * x}, "gradient"),
        ({"hess": lambda x: np.eye(2)}, "Hessian information"),
        ({"hessp": lambda x, p: p}, "Hessian-vector"),
    ],
)
def test_derivatives_are_not_used_and_that_is_said(more: Any, word: str) -> None:
    with pytest.warns(RuntimeWarning, match=rf"does not use {word}") as told:
        res = run(options={"maxfev": 30}, **more)
    assert res.nfev == 30 and told[0].filename == __file__


def test_a_function_that_returns_its_gradient_too_is_taken() -> None:
    with pytest.warns(RuntimeWarning, match="gradient"):
        res = run(lambda x: (sphere(x), 2 * (x - 0.3)), jac=True)
    assert res.x == pytest.approx([0.3, 0.3], abs=1e-6)


def test_a_point_that_is_tried_again_is_not_given_another_ones_value() -> None:
    """SciPy's own wrapper of a function with its gradient answers with the value of the call before."""
    lost: list[np.ndarray] = []

    def fun(x: np.ndarray) -> Any:
        if len(lost) < 2 and (not lost or (x == lost[0]).all()) and x[0] < 1.2:  # one point, twice
            lost.append(x)
            raise library.Lost("licence")
        return sphere(x), 2 * (x - 0.3)

    with pytest.warns(RuntimeWarning, match="gradient"):
        res = run(fun, jac=True, options={"maxfev": 40})
    assert len(lost) == 2 and same(res, run(options={"maxfev": 40}))
    assert res.fun == sphere(res.x)


INSIDE = [
    {"type": "ineq", "fun": lambda x: x[0] + x[1] - 1},
    {"type": "ineq", "fun": lambda x, by: x[0] + x[1] - by, "args": (1,)},
    so.NonlinearConstraint(lambda x: x[0] + x[1], 1, np.inf),
    so.NonlinearConstraint(lambda x: [x[0] + x[1], x[0]], [1, -9], [np.inf, 9]),
    so.LinearConstraint([[1, 1], [1, 0]], [1, -9], [np.inf, 9]),
]


@through("constraint", INSIDE)
@through("alone", [True, False])
def test_inequalities_are_honoured_by_their_values(constraint: Any, alone: bool) -> None:
    spy = Spy()
    res = run(spy, constraints=constraint if alone else [constraint])
    assert res.success and res.nfail == 0 and len(spy.points) == res.nfev
    assert res.x.sum() >= 1 and res.x == pytest.approx([0.5, 0.5], abs=1e-6)
    assert res.maxcv == res.constr_violation == 0
    assert any(found.active for found in res.constraints.values())


def test_bounds_are_a_constraint_too_and_all_must_hold() -> None:
    second = {"type": "ineq", "fun": lambda x: 1.0 - x[1]}
    res = run(constraints=[so.Bounds(0.5, np.inf), second])
    assert res.x == pytest.approx([0.5, 0.5], abs=1e-6)
    assert sorted(res.constraints) == ["constraint 0[0]", "constraint 0[1]", "constraint 1"]


def test_a_constraint_that_is_nan_is_a_failed_evaluation() -> None:
    res = run(
        constraints={"type": "ineq", "fun": lambda x: np.nan if x[0] < 0.5 else 1.0},
        options={"maxfev": 300},
    )
    assert res.nfail > 0 and res.x[0] >= 0.5
    assert {failure.reason for failure in res.failures} == {"the output 'constraint 0' is NaN"}


def test_with_keep_feasible_the_function_is_called_inside_only() -> None:
    spy = Spy()
    res = run(spy, constraints=so.NonlinearConstraint(lambda x: x[0] + x[1], 1, np.inf, keep_feasible=True))
    assert (np.array(spy.points).sum(axis=1) >= 1).all()
    assert res.x == pytest.approx([0.5, 0.5], abs=1e-3)
    assert res.failures[0].reason == "constraint 0 is violated"
    assert res.nfail == res.failures[0].count == res.nfev - len(spy.points)
    with pytest.raises(library.ArgumentError, match="an equality with keep_feasible=True at 0"):
        run(constraints=so.NonlinearConstraint(lambda x: x[0], 1, 1, keep_feasible=True))


@pytest.mark.parametrize(
    "constraint",
    [
        {"type": "eq", "fun": lambda x: x[0] - 0.8},
        so.NonlinearConstraint(lambda x: x[0], 0.8, 0.8),
        so.LinearConstraint([[1, 0], [0, 1]], [0.8, -1], [0.8, 2]),
    ],
)
def test_equalities_are_met(constraint: Any) -> None:
    res = run(constraints=[INSIDE[0], constraint])
    assert res.success and res.maxcv <= 1e-6
    assert res.fun == pytest.approx(0.25, abs=2e-6)  # at the edge of the tolerance


def test_contradictory_constraints_are_no_success() -> None:
    both = [INSIDE[0], {"type": "ineq", "fun": lambda x: -1 - x[0] - x[1]}]
    res = run(constraints=both, options={"maxfev": 600})
    assert not res.success and 0.9 < res.maxcv < 2.1
    assert "no point satisfies all limits" in res.message


@through(
    "constraints", [3, [3], "x", {"type": "ineq"}, {"fun": sphere}, so.NonlinearConstraint(sphere, 2, 1)]
)
def test_wrong_constraints_are_refused_in_words(constraints: Any) -> None:
    with pytest.raises(library.ArgumentError, match="constraints: found"):
        run(constraints=constraints)


def test_no_constraints_are_none() -> None:
    assert same(run(constraints=None), run(constraints=[])) and same(run(constraints=()), run())


# -- callbacks and limits ---------------------------------------------------------------------------------


def test_a_callback_of_xk() -> None:
    seen: list[np.ndarray] = []
    res = run(callback=lambda xk: seen.append(xk) or xk.fill(np.nan))
    assert len(seen) == res.nit and np.isfinite(res.x).all() and same(res, run())


def test_a_callback_of_the_intermediate_result() -> None:
    seen: list[Any] = []

    def callback(intermediate_result: Any) -> None:
        seen.append(intermediate_result)

    res = run(half, callback=callback)
    assert all(type(one) is so.OptimizeResult for one in seen)
    values = [one.fun for one in seen]
    assert values == sorted(values, reverse=True) and values[-1] == res.fun == half(res.x)
    assert [one.nit for one in seen] == list(range(1, res.nit + 1))
    assert seen[-1].nfev == res.nfev and seen[-1].nfail == res.nfail and (seen[-1].x == res.x).all()


@pytest.mark.parametrize("how", ["StopIteration", "True"])
def test_a_callback_may_stop(how: str) -> None:
    def callback(intermediate_result: Any) -> bool:
        if intermediate_result.nit == 3 and how == "StopIteration":
            raise StopIteration
        return intermediate_result.nit == 3

    res = run(callback=callback)
    assert res.nit == 3 and res.status == 99 and res.success is False and "callback" in res.message


def test_what_a_callback_returns_otherwise_does_not_stop() -> None:
    assert run(callback=lambda xk: 1).success and run(callback=lambda xk: xk).success


def test_a_callback_before_anything_has_succeeded_gets_the_start() -> None:
    seen: list[Any] = []
    run(lambda x: np.nan, callback=lambda intermediate_result: seen.append(intermediate_result))
    assert seen[0].x.tolist() == X0 and seen[0].fun == np.inf and seen[0].nfail == seen[0].nfev


def test_a_callback_that_is_a_built_in_is_called_with_xk() -> None:
    seen: list[np.ndarray] = []
    res = run(callback=seen.append)
    assert len(seen) == res.nit and seen[-1].shape == (2,)


def test_what_a_callback_raises_is_raised() -> None:
    def callback(xk: np.ndarray) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(callback=callback)
    with pytest.raises(library.ArgumentError, match="callback"):
        run(callback=3)


def test_evaluations_and_iterations_are_limited() -> None:
    spy = Spy()
    res = run(spy, options={"maxfev": 40})
    assert res.nfev == len(spy.points) == 40 and res.status == 1 and not res.success
    res = run(options={"maxiter": 7})
    assert res.nit == 7 and res.status == 2 and not res.success and "iterations" in res.message
    assert run(options={"maxiter": np.inf, "maxfev": np.inf}).success
    assert same(run(options={"maxfun": 40}), run(options={"max_evaluations": 40}))


@pytest.mark.parametrize(
    "options", [{"maxfev": 0}, {"maxfev": 3, "max_evaluations": 3}, {"maxiter": 0}, {"maxiter": "3"}]
)
def test_wrong_limits_are_refused(options: Any) -> None:
    with pytest.raises(library.ArgumentError, match=r"maxfev|max_evaluations|maxiter"):
        run(options=options)


def test_an_iteration_limit_counts_all_searches_together() -> None:
    res = run(half, options={"maxiter": 400, "restarts": 9})
    assert res.nit == 400 and max(res.history["restart"]) > 0


# -- options ----------------------------------------------------------------------------------------------


def test_unknown_options_warn_at_the_users_line() -> None:
    with pytest.warns(so.OptimizeWarning) as told:
        res = run(options={"gtol": 1e-3, "popsize": 9, "maxfev": 30})
    assert res.nfev == 30 and len(told) == 1 and told[0].filename == __file__
    message = str(told[0].message)
    assert message.startswith("Unknown solver options: gtol") and "population_size" in message


@through(
    "source",
    [
        lambda: 5,
        lambda: np.random.default_rng(5),
        lambda: np.random.RandomState(5),
        lambda: np.random.SeedSequence(5),
        lambda: np.random.PCG64(5),
    ],
)
@through("name", ["rng", "seed"])
def test_randomness_in_all_of_scipys_forms(source: Any, name: str) -> None:
    def once() -> Any:
        return so.minimize(sphere, X0, method=fmnes, options={name: source(), "maxfev": 40})

    before = np.random.get_state()[1].tobytes()  # noqa: NPY002
    assert same(once(), once())
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002


def test_two_sources_of_randomness_are_refused() -> None:
    with pytest.raises(library.ArgumentError, match="seed: found together"):
        run(options={"seed": 1})


def test_disp_shows_a_progress_line(capsys: pytest.CaptureFixture[str]) -> None:
    run(options={"maxfev": 60})
    assert capsys.readouterr() == ("", "")
    with pytest.warns(RuntimeWarning, match="budget is spent"):  # as SciPy's own methods
        run(options={"maxfev": 60, "disp": True})
    assert "60" in capsys.readouterr().err


# -- endings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("ignore:the objective returned -inf:RuntimeWarning")
def test_success_is_never_claimed_without_a_value(value: Any) -> None:
    res = run(lambda x: value, bounds=[(0, 2), (0, 2)])
    assert res.success is False and res.fun == np.inf and res.status == 4
    assert res.x.tolist() == X0 and res.nfail == res.nfev > 0
    assert so.minimize(sphere, res.x, method="Nelder-Mead").success  # it is a point to go on with


def test_a_bug_is_not_a_failure() -> None:
    with pytest.raises(library.ObjectiveError, match="forget `return`"):
        run(lambda x: None)
    with pytest.raises(library.ObjectiveError, match="NameError"):
        run(lambda x: undefined(x))  # type: ignore[name-defined]  # noqa: F821


def test_an_exception_is_a_failure_unless_asked_otherwise() -> None:
    res = run(raising, options={"sigma0": 1.0})
    assert res.success and res.failures[0].reason == "RuntimeError: diverged"
    with pytest.raises(RuntimeError, match="diverged"):
        run(raising, options={"sigma0": 1.0, "on_error": "raise"})


def test_a_target_that_is_not_reached_is_no_success() -> None:
    assert run(options={"target": 1e-3}).status == 0
    res = run(options={"target": -1.0})
    assert not res.success and res.status not in (0, 1, 2, 99) and res.fun < 1e-10


def interrupting(x: np.ndarray) -> float:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    return sphere(x)


def test_control_c_goes_through_and_ends_basinhopping() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(interrupting)
    with pytest.raises(KeyboardInterrupt):
        so.basinhopping(interrupting, X0, niter=100, minimizer_kwargs={"method": fmnes})


def test_control_c_leaves_a_kept_run_with_what_it_has(tmp_path: Path) -> None:
    res = run(interrupting, options={"run_dir": tmp_path / "run"})
    assert not res.success and res.stop_reason is library.StopReason.INTERRUPTED


# -- fixed coordinates ------------------------------------------------------------------------------------


def test_a_coordinate_with_equal_bounds_is_fixed() -> None:
    spy = Spy(lambda x: np.nan if x[1] < 0 else float(np.sum((x - 1) ** 2)))
    seen: list[Any] = []
    with pytest.warns(so.OptimizeWarning, match="Initial guess"):
        res = run(
            spy,
            [0.5, 0.2, 7.0],
            bounds=[(3, 3), (-2, 2), (None, None)],
            callback=lambda intermediate_result: seen.append(intermediate_result),
            options={"sigma0": [9.0, 1.0, 2.0]},
        )
    assert all(x[0] == 3 for x in spy.points)
    assert res.x == pytest.approx([3, 1, 1], abs=1e-5) and res.x_mean[0] == 3
    assert res.failures[0].x.shape[1] == 3 and (res.failures[0].x[:, 0] == 3).all()
    assert all(one.x[0] == 3 and one.x_mean[0] == 3 and len(one.x) == 3 for one in seen)
    free = run(
        lambda x: spy(np.array([3, *x])),
        [0.2, 7.0],
        bounds=[(-2, 2), (None, None)],
        options={"sigma0": [1, 2]},
    )
    assert free.nfev == res.nfev and free.x.tolist() == res.x[1:].tolist()


def test_bounds_that_fix_everything_are_one_evaluation() -> None:
    res = so.minimize(sphere, [1.0, 2.0], method=fmnes, bounds=[(1, 1), (2, 2)])
    assert res.success and res.x.tolist() == [1.0, 2.0] and res.fun == sphere(res.x) and res.nfev == 1
    res = evolution_strategy(lambda x: np.nan, [(1, 1), (2, 2)])
    assert not res.success and res.n_failed == res.nfail == 1


def test_limits_and_callbacks_in_scipys_words() -> None:
    res = so.minimize(sphere, [3.0, 2.0], method=fmnes, options={"maxiter": 4.1, "rng": 1})
    assert res.nit == 5 and res.n_failed == res.nfail

    def enough(x: Any) -> None:
        raise StopIteration

    res = so.minimize(sphere, [3.0, 2.0], method=fmnes, callback=enough, options={"rng": 1})
    assert res.status == 99 and res.message == "`callback` raised `StopIteration`."
    with pytest.warns(RuntimeWarning, match="maximum number of iterations"):
        so.minimize(sphere, [3.0, 2.0], method=fmnes, options={"maxiter": 3, "rng": 1, "disp": True})


# -- workers ----------------------------------------------------------------------------------------------


def test_processes_of_ours_give_the_serial_result_and_survive_a_crash() -> None:
    def crashing(x: np.ndarray) -> float:
        if x[0] < 0:
            os._exit(139)
        return float(np.sum(x**2))

    def failing(x: np.ndarray) -> float:
        return float(np.sum(x**2)) if x[0] >= 0 else np.nan

    options = {"maxfev": 40, "sigma0": 1.0, "surrogate": False}
    serial = run(failing, options=options)
    assert same(serial, run(failing, options={**options, "workers": 2}))
    res = run(crashing, options={"maxfev": 40, "sigma0": 1.0, "workers": 2})
    assert res.nfev == 40 and res.nfail > 0 and "139" in res.failures[0].reason


@pytest.mark.parametrize("kind", ["map", "threads", "pool", "executor", "imap"])
def test_map_like_workers_give_the_serial_result(kind: str) -> None:
    options = {"maxfev": 60, "sigma0": 1.0}
    serial = run(raising, options=options)
    assert serial.nfail > 0
    fork = multiprocessing.get_context("fork")
    if kind == "map":
        parallel = run(raising, options={**options, "workers": map})
    elif kind == "threads":
        with ThreadPoolExecutor(2) as pool:
            parallel = run(raising, options={**options, "workers": pool.map})
    elif kind == "executor":
        with ProcessPoolExecutor(2, fork) as pool:
            parallel = run(raising, options={**options, "workers": pool.map})
    else:
        with fork.Pool(2) as pool:
            workers = pool.map if kind == "pool" else pool.imap
            parallel = run(raising, options={**options, "workers": workers})
    assert same(serial, parallel) and parallel.nfail == serial.nfail
    assert parallel.failures == serial.failures


def test_what_a_map_loses_is_tried_again_and_never_punished() -> None:
    calls = []

    def flaky(func: Any, points: Any) -> Any:
        calls.append(len(points))
        if len(calls) == 3:
            raise ConnectionError("a node is gone")
        return list(map(func, points))

    res = run(options={"maxfev": 60, "workers": flaky})
    assert res.nfail == 0 and same(res, run(options={"maxfev": 60})) and len(calls) > 10


def test_a_map_that_never_works_ends_lost() -> None:
    def broken(func: Any, points: Any) -> Any:
        raise ConnectionError("nobody there")

    res = run(options={"workers": broken, "retries": 1})
    assert res.stop_reason is library.StopReason.LOST and res.status == 5 and not res.success
    assert "nobody there" in res.message and res.nfail == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda func, points: [],
        lambda func, points: [0.5] * len(points),
        lambda func, points: [func(x) for x in points] * 2,
    ],
)
def test_a_map_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(library.ArgumentError, match=r"workers: found .* wanted what func returns"):
        run(options={"workers": wrong})


def test_what_cannot_be_sent_is_said() -> None:
    with (
        multiprocessing.get_context("fork").Pool(1) as pool,
        pytest.raises(library.ArgumentError, match=r"fun: found .* cannot send"),
    ):
        run(lambda x: threading.Lock() and 1.0, options={"workers": pool.map})


@pytest.mark.parametrize(
    "options", [{"timeout": 3}, {"executor": ThreadPoolExecutor(1)}, {"vectorized": True}]
)
def test_map_like_workers_do_not_go_with_everything(options: Any) -> None:
    with pytest.raises(library.ArgumentError, match=r"timeout|executor"):
        run(options={"workers": map, **options})


def test_a_program_does_not_go_to_a_map() -> None:
    with pytest.raises(library.ArgumentError, match="fun: found a Command and map-like"):
        run(library.Command(["true", "{x0}", "{x1}"]), options={"workers": map})


def test_a_map_ends_at_the_deadline() -> None:
    calls = []

    def slow(x: np.ndarray) -> float:
        calls.append(x)
        time.sleep(0.1)
        return sphere(x)

    res = run(slow, options={"workers": map, "max_seconds": 0.35})
    assert res.status == 3 and len(calls) <= 4  # of which each takes 0.1 s or more


# -- inside other methods of SciPy ------------------------------------------------------------------------


def many(x: np.ndarray) -> float:
    """Several minima, and no value for x[0] < -1; the best one is at (0, 0)."""
    x = np.asarray(x)
    return np.nan if x[0] < -1 else float(np.sum(x**2 + 2 * (1 - np.cos(3 * x))))


def test_inside_basinhopping() -> None:
    kwargs = {"method": fmnes, "options": {"rng": np.random.default_rng(1), "sigma0": 0.2, "tol": 1e-6}}
    res = so.basinhopping(many, [2.0, 2.0], niter=15, stepsize=2.5, minimizer_kwargs=kwargs, **{RNG: 1})
    assert res.fun < 1e-8 and res.success
    lowest = res.lowest_optimization_result
    assert type(lowest) is so.OptimizeResult and lowest.success and lowest.fun == res.fun
    assert res.nfev > lowest.nfev > lowest.nfail


def test_inside_basinhopping_with_bounds_and_one_coordinate() -> None:
    spy = Spy(lambda x: float((x[0] - 0.3) ** 2))
    kwargs = {"method": fmnes, "bounds": [(0, 1)], "options": {"rng": 1}, "tol": 1e-4}
    with pytest.warns(so.OptimizeWarning, match="Initial guess"):
        res = so.basinhopping(spy, 0.9, niter=5, stepsize=3, minimizer_kwargs=kwargs, **{RNG: 1})
    assert res.x == pytest.approx([0.3], abs=1e-3)
    assert all(0 <= x[0] <= 1 for x in spy.points)


def test_inside_basinhopping_where_nothing_succeeds() -> None:
    kwargs = {"method": fmnes, "options": {"rng": 1, "maxfev": 20}}
    res = so.basinhopping(lambda x: np.nan, X0, niter=2, minimizer_kwargs=kwargs, **{RNG: 1})
    assert res.minimization_failures == 3 and not res.lowest_optimization_result.success
    assert res.fun == np.inf and np.isfinite(res.x).all()


def test_inside_dual_annealing() -> None:
    kwargs = {"method": fmnes, "bounds": [(-1, 3)] * 2, "options": {"rng": 1, "maxfev": 200}}
    res = so.dual_annealing(many, [(-1, 3)] * 2, maxiter=5, minimizer_kwargs=kwargs, **{RNG: 1})
    assert res.fun < 1e-4


# -- beside differential_evolution ------------------------------------------------------------------------

BOX = [(-1.0, 2.0), (-1.0, 3.0)]


def test_it_is_called_like_differential_evolution() -> None:
    res = evolution_strategy(half, BOX, rng=1)
    assert type(res) is so.OptimizeResult and res.success and res.nfail > 0
    assert res.fun < 1e-12 and (res.x >= 0).all()
    assert same(res, library.minimize(half, bounds=BOX, rng=1))
    assert same(res, evolution_strategy(half, so.Bounds(*zip(*BOX, strict=True)), rng=1))
    assert same(res, evolution_strategy(func=half, bounds=BOX, seed=1))


def test_arguments_start_and_method_are_taken() -> None:
    spy = Spy(shifted_sphere)
    res = evolution_strategy(spy, BOX, (0.5,), x0=[1.0, 1.0], sigma0=0.1, method="cr-fm-nes", rng=1)
    assert spy.points[0].tolist() == [1.0, 1.0] and res.x == pytest.approx([0.5, 0.5], abs=1e-5)
    ours = library.minimize(
        lambda x: shifted_sphere(x, 0.5), [1, 1], 0.1, bounds=BOX, method="cr-fm-nes", rng=1
    )
    assert same(res, ours)


def test_the_population_is_so_many_for_each_coordinate() -> None:
    res = evolution_strategy(sphere, [*BOX, (1, 1)], popsize=7.5, rng=1, maxiter=1)
    assert res.nit == 1 and res.nfev == 1 + 16 and res.status == 2
    for wrong in (0, -1, "9", True, np.nan):
        with pytest.raises(library.ArgumentError, match="popsize: found"):
            evolution_strategy(sphere, BOX, popsize=wrong)
    with pytest.raises(library.ArgumentError, match="popsize: found together"):
        evolution_strategy(sphere, BOX, popsize=3, population_size=8)


def test_tol_is_of_the_values_alone() -> None:
    def offset(x: np.ndarray) -> float:
        return 1.0 + sphere(x)

    res = evolution_strategy(offset, BOX, rng=1, tol=1e-3)
    assert res.stop_reason is library.StopReason.FTOL
    assert same(res, library.minimize(offset, bounds=BOX, rng=1, ftol=1e-3))


def test_integrality_is_honoured() -> None:
    spy = Spy(lambda x: float((x[0] - 0.7) ** 2 + (x[1] - 0.6) ** 2))
    res = evolution_strategy(spy, [(-3.4, 4.2), (0, 2), (5, 5)], integrality=[True, False, True], rng=1)
    assert all(x[0] == round(x[0]) and -3 <= x[0] <= 4 for x in spy.points)
    assert res.x == pytest.approx([1.0, 0.6, 5.0], abs=1e-5)


def test_vectorized_means_columns() -> None:
    shapes: list[tuple[int, ...]] = []

    def fun(x: np.ndarray, by: float) -> np.ndarray:
        shapes.append(x.shape)
        return np.where(x[0] < 0, np.nan, np.sum((x - by) ** 2, axis=0))

    res = evolution_strategy(fun, [*BOX, (7, 7)], (0.5,), vectorized=True, updating="deferred", rng=1)
    assert {shape[0] for shape in shapes} == {3} and max(shape[1] for shape in shapes) > 3
    assert res.x == pytest.approx([0.5, 0.5, 7], abs=1e-5) and res.nfail > 0
    one = evolution_strategy(lambda x: fun(x, 0.5), [*BOX, (7, 7)], rng=1)
    assert same(res, one)
    assert same(res, run(fun, [0.5, 1, 7], args=(0.5,), bounds=[*BOX, (7, 7)], options={"vectorized": True}))


def test_vectorized_with_constraints_is_the_same_search() -> None:
    limit = so.NonlinearConstraint(lambda x: x[0] + x[1], 1, np.inf)
    whole = evolution_strategy(
        lambda x: np.sum((x - 0.3) ** 2, axis=0), BOX, vectorized=True, constraints=limit, rng=1
    )
    assert whole.success and whole.x == pytest.approx([0.5, 0.5], abs=1e-6)
    one = evolution_strategy(lambda x: np.sum((x - 0.3) ** 2), BOX, constraints=limit, rng=1, surrogate=False)
    assert same(whole, one)  # vectorized excludes models
    spy = Spy(lambda x: np.sum(x**2, axis=0))
    inside = so.NonlinearConstraint(lambda x: x[0] + x[1], 1, np.inf, keep_feasible=True)
    res = evolution_strategy(spy, BOX, vectorized=True, constraints=inside, rng=1)
    assert all((points.sum(axis=0) >= 1).all() for points in spy.points)
    assert res.x == pytest.approx([0.5, 0.5], abs=1e-3) and res.nfail > 0
    never = so.NonlinearConstraint(lambda x: x[0] + x[1], 1000, np.inf, keep_feasible=True)
    assert evolution_strategy(spy, BOX, vectorized=True, constraints=never).fun == np.inf


@pytest.mark.parametrize("returned", [lambda x: 1.0, lambda x: x, lambda x: np.ones(x.shape[1] + 1)])
def test_a_vectorized_function_of_another_shape_is_an_error(returned: Any) -> None:
    with pytest.raises(library.ObjectiveError, match="vectorized objective returned"):
        evolution_strategy(returned, BOX, vectorized=True)


def test_a_row_or_a_column_of_values_will_do() -> None:
    def fun(x: np.ndarray) -> np.ndarray:
        return np.sum(x**2, axis=0)

    expected = evolution_strategy(fun, BOX, vectorized=True, rng=1)
    assert same(expected, evolution_strategy(lambda x: fun(x)[None], BOX, vectorized=True, rng=1))
    assert same(expected, evolution_strategy(lambda x: fun(x)[:, None], BOX, vectorized=True, rng=1))


def test_callbacks_in_both_forms_of_differential_evolution() -> None:
    old: list[Any] = []
    new: list[Any] = []

    def stops(xk: np.ndarray, convergence: float) -> int:
        old.append((xk, convergence))
        return len(old) == 4

    res = evolution_strategy(sphere, BOX, callback=stops, rng=1)
    assert res.nit == 4 and res.status == 99 and not res.success
    assert np.isnan(old[0][1]) and old[-1][0].shape == (2,)

    def seen(intermediate_result: Any) -> str:
        new.append(intermediate_result.fun)
        return "enough" if len(new) == 4 else ""

    assert same(res, evolution_strategy(sphere, BOX, callback=seen, rng=1))
    assert evolution_strategy(sphere, BOX, callback=lambda xk: xk[0] < 9, rng=1).nit == 1


@through("name", ["strategy", "mutation", "recombination", "init", "polish", "atol", "updating"])
def test_what_means_nothing_here_is_said(name: str) -> None:
    given = {"strategy": "best1bin", "mutation": (0.5, 1), "init": np.zeros((9, 2)), "updating": "x"}
    with pytest.warns(so.OptimizeWarning, match=f"{name} is differential_evolution's own") as told:
        res = evolution_strategy(sphere, BOX, rng=1, maxfev=20, **{name: given.get(name, True)})
    assert res.nfev == 20 and told[0].filename == __file__


def test_what_asks_for_nothing_is_silent() -> None:
    quiet = {"polish": False, "atol": 0, "updating": "deferred", "disp": False, "workers": 1}
    assert evolution_strategy(sphere, BOX, rng=1, maxfev=20, **quiet).nfev == 20


def test_an_unknown_option_is_an_error_here() -> None:
    with pytest.raises(library.ArgumentError, match=r"found the option 'worker', .*did you mean 'workers'"):
        evolution_strategy(sphere, BOX, worker=2)
    with pytest.raises(library.ArgumentError, match=r"found the option 'verbose', .*progress"):
        evolution_strategy(sphere, BOX, verbose=2)


def test_workers_and_constraints_are_those_of_minimize() -> None:
    def raising(x: np.ndarray) -> float:
        if x[0] < 0:
            raise RuntimeError("diverged")
        return float(np.sum(x**2))

    settings: dict[str, Any] = {"rng": 1, "maxfev": 60, "surrogate": False}
    serial = evolution_strategy(raising, BOX, **settings)
    assert serial.nfail > 0
    with ThreadPoolExecutor(2) as pool:
        assert same(serial, evolution_strategy(raising, BOX, workers=pool.map, **settings))
    assert same(serial, evolution_strategy(raising, BOX, workers=-1, **settings))


@pytest.mark.parametrize(
    ("bounds", "more", "word"),
    [
        ([(0, None)], {}, "x0: found none"),
        ([(0, 1)], {"x0": [2.0]}, "outside the bounds"),
        (None, {}, "bounds"),
        ([(0, 1)], {"x0": [0.5, 0.5]}, "bounds"),
    ],
)
def test_wrong_boxes_are_refused(bounds: Any, more: Any, word: str) -> None:
    with pytest.raises(library.ArgumentError, match=word):
        evolution_strategy(sphere, bounds, **more)


def test_control_c_leaves_what_it_has() -> None:
    res = evolution_strategy(interrupting, BOX)
    assert res.stop_reason is library.StopReason.INTERRUPTED and not res.success


# -- without SciPy ----------------------------------------------------------------------------------------


def test_without_scipy_the_install_line_is_named() -> None:
    code = "import sys; sys.modules['scipy'] = None; import fmnes.integrations.scipy"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert 'fmnes.integrations.scipy needs an optional dependency: pip install "fmnes[scipy]"' in done.stderr
