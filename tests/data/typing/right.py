"""A user's script without a mistake: type checkers accept every line and know every type."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import fmnes
from fmnes import problems
from fmnes_bench.lens import triplet

Vector = NDArray[np.float64]
Named = dict[str, Any]

space = {"width": fmnes.Real(0.1, 10, log=True), "layers": fmnes.Integer(1, 12)}


mixed = {"material": fmnes.Categorical(["steel", "wood"], start="wood"), "width": fmnes.Real(0, 1)}


def of_mixed(p: dict[str, Any]) -> float:
    return p["width"] if p["material"] == "steel" else 2.0


def of_array(x: np.ndarray) -> float:
    return float(x @ x)


def of_vector(x: Vector) -> tuple[float, dict[str, Any]] | None:
    return (float(x @ x), {"mass": 1}) if x[0] > 0 else None


def of_dict(p: dict[str, float]) -> float:
    return p["width"] * p["layers"]


def of_named(p: Named) -> np.float64 | None:
    if p["layers"] > 10:
        raise fmnes.Infeasible("too many layers")
    return np.float64(p["width"])


def of_columns(p: dict[str, Vector]) -> Vector:
    return p["width"] * p["layers"]


def of_rows(x: Vector) -> list[float]:
    return [float(row @ row) for row in x]


def watch(view: fmnes.View) -> bool:
    return view.evaluations > 100


def main() -> fmnes.Result:
    # Arrays
    result = fmnes.minimize(of_array, [1.0, 2.0], 0.5)
    assert_type(result.x, Vector)
    assert_type(result.x_mean, Vector)
    assert_type(fmnes.minimize(of_vector, np.ones(2), 0.5, target=1e-8).x, Vector)
    assert_type(fmnes.minimize(of_array, bounds=[(0, 1), (0, 1)], workers=-1).x, Vector)
    assert_type(fmnes.minimize(of_rows, [1.0, 2.0], 0.5, vectorized=True).x, Vector)
    assert_type(fmnes.minimize(lambda x: x @ x, [1.0, 2.0], 0.5).x, Vector)
    assert_type(fmnes.minimize(of_array, warm_start=result).x, Vector)

    # Named parameters
    named = fmnes.minimize(of_dict, space, max_evaluations=100, restarts="bipop")
    assert_type(named.x, Named)
    assert_type(fmnes.minimize(of_named, {"width": fmnes.Real(0, 1)}, callback=watch).x, Named)
    assert_type(fmnes.minimize(of_columns, space, vectorized=True).x, Named)
    assert_type(fmnes.minimize(lambda p: p["width"] ** 2, space).x, Named)
    assert_type(fmnes.minimize(fmnes.Command(["./simulate", "{width}"]), space).x, Named)
    assert_type(fmnes.minimize(of_dict, warm_start=named).x, Named)
    fmnes.minimize(of_dict, space, callback=lambda view: view.mean["width"] < 1)
    found = fmnes.minimize(of_mixed, mixed, known=[({"material": "wood", "width": 0.5}, 2.0)])
    assert_type(found.x, Named)
    if found.x["material"] == "steel":
        print(fmnes.Optimizer(mixed, rng=1).ask()[0]["material"])

    # Settings
    fmnes.minimize(of_array, [1.0, 2.0], 0.5, method=fmnes.AFMNES(max_population_size=20))
    fmnes.minimize(of_array, [1.0, 2.0], 0.5, method=fmnes.DXNESIC(alpha="public"))
    fmnes.minimize(of_array, [1.0, 2.0], 0.5, method=fmnes.Resampling(fmnes.XNES(), max_redraws=9))
    fmnes.minimize(of_array, [1.0, 2.0], 0.5, method=fmnes.CMAES(parameters="2006"))
    fmnes.minimize(of_array, [1.0, 2.0], 0.5, method=fmnes.CRFMNES(max_change=0.5))
    assert_type(fmnes.AFMNES(), fmnes.FMNES)

    # Ask and tell
    arrays = fmnes.Optimizer([1.0, 2.0], 0.5, rng=1)
    asked = arrays.ask()
    assert_type(asked, Vector)
    arrays.tell([of_array(x) for x in asked])
    for id, x in arrays.ask(3):
        arrays.tell(id, of_array(x))
    assert_type(arrays.mean, Vector)
    assert_type(arrays.best.x, Vector | None)
    opt = fmnes.Optimizer(space)
    assert_type(opt.ask(), list[Named])
    opt.tell([of_dict(p) for p in opt.ask()])
    opt.tell([fmnes.LOST, None, 1.0])
    assert_type(opt.result().x, Named)
    fmnes.Optimizer.load("saved").tell([1.0])

    # Runs
    assert_type(fmnes.resume("run", of_dict).x, Any)
    run = fmnes.read_run("run")
    if run.result is not None:
        print(run.result.x)
    fmnes.plots.convergence(run).savefig("run.png")
    problem = problems.get("ic-sphere", d=5)
    fmnes.minimize(problem.fun, problem.x0, problem.sigma0)
    lens = triplet()
    return fmnes.minimize(lens.fun, lens.parameters, vectorized=True)
