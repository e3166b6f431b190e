"""Mistakes that users make, and what the message says: what is wrong, what was expected, what to do."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fmnes
from tests.rows import through

SPACE = {"width": fmnes.Real(0, 1), "height": fmnes.Real(0, 1)}


def total(x):
    return float(np.sum(x))


def minimize(fun, *args, **options):
    return fmnes.minimize(fun, *args, **{"rng": 0, "max_evaluations": 30, **options})


def two(width, height):
    return width + height


def three(x, a, b):
    return total(x) + a + b


def keywords(*, width, height):
    return width + height


def _tell_point():
    opt = fmnes.Optimizer([1.0, 2.0], 0.5)
    opt.tell(opt.ask(1)[0], 3.0)


#: what is called, and what its message has to say, word for word.
PYTHON = {
    "values as pycma takes them": (
        lambda: fmnes.Optimizer([1.0, 2.0], 0.5).tell(np.ones((6, 2)), np.ones(6)),
        "tell takes the values only, in the order of ask(): tell(values)",
    ),
    "points as lists": (
        lambda: fmnes.Optimizer([1.0, 2.0], 0.5).tell([[1.0, 2.0]], [3.0]),
        "tell takes the values only",
    ),
    "a named point": (
        lambda: fmnes.Optimizer(SPACE).tell({"width": 0.5, "height": 1.0}, 3.0),
        "tell(id, value)",
    ),
    "a point for its id": (_tell_point, "wanted its id: tell(point.id, value)"),
    "several arguments, named": (
        lambda: minimize(two, SPACE),
        "fun: found a function of 2 arguments (width, height), wanted a function of one point, which is a "
        "dict; pass lambda p: fun(**p)",
    ),
    "keywords only": (lambda: minimize(keywords, SPACE), "pass lambda p: fun(**p)"),
    "several arguments of an array": (
        lambda: minimize(two, [1.0, 2.0], 0.5),
        "wanted a function of one point, which is an array; pass lambda x: fun(*x)",
    ),
    "further arguments": (lambda: minimize(three, [1.0, 2.0], 0.5), "pass lambda x: fun(x, a=..., b=...)"),
    "several arguments, two workers": (lambda: minimize(two, SPACE, workers=2), "pass lambda p: fun(**p)"),
    "no arguments": (lambda: minimize(lambda: 1.0, [1.0], 0.5), "found a function without arguments"),
    "what the call returned": (
        lambda: minimize(total([1, 2]), [1.0, 2.0], 0.5),
        "fun: found 3.0, wanted a function of one point, or a Command; pass the function itself, such as f",
    ),
    "what a call without return returned": (lambda: minimize(None, [1.0], 0.5), "not its result f(x)"),
    "the point first": (lambda: minimize([1.0, 2.0], total, 0.5), "wanted minimize(fun, x0, sigma0)"),
    "the parameters first": (lambda: minimize(SPACE, total), "wanted minimize(fun, x0, sigma0)"),
    "attribute of a point": (
        lambda: minimize(lambda p: p.width, SPACE),
        "With named parameters the point is a dict: write p['width'], or pass lambda p: fun(**p).",
    ),
    "arithmetic with a point": (lambda: minimize(lambda width: width**2, SPACE), "the point is a dict"),
    "a number in quotes": (
        lambda: minimize(total, [1.0], 0.5, max_evaluations="100"),
        "max_evaluations: found '100', wanted a whole number above 0 or None; write 100 without quotes",
    ),
    "a count in quotes": (lambda: minimize(total, [1.0], 0.5, workers="2"), "write 2 without quotes"),
    "a bound in quotes": (
        lambda: fmnes.Real("0.1", 1),
        "Real: found lower='0.1', wanted a number; write 0.1 without quotes",
    ),
    "a value in quotes": (lambda: minimize(lambda p: "0.3", SPACE), "convert it with float()"),
    "no sigma0": (
        lambda: minimize(total, [1.0]),
        "sigma0: found none and no bounds, wanted sigma0=, or finite bounds= (sigma0 then defaults to a quarter "
        "of their width)",
    ),
    "no x0": (
        lambda: fmnes.Optimizer(),
        "x0: found none and no bounds, wanted x0=, or finite bounds= (x0 then defaults to their centre)",
    ),
    "half a bound": (
        lambda: minimize(total, [1.0], bounds=[(0, None)]),
        "sigma0: found none, and bounds [0, inf] at coordinate 0; wanted sigma0=, or finite bounds=",
    ),
    "no such run": (lambda: fmnes.read_run("nope.run"), "found nothing there, wanted a run directory"),
}


@through(("call", "said"), PYTHON.values())
def test_what_a_mistake_in_python_says(call, said):
    with pytest.raises(fmnes.FmnesError, match=re.escape(said)):
        call()


def test_functions_that_can_be_called_with_one_point_are_taken():
    class Simulation:
        def __call__(self, x, steps=3):
            return total(x)

        def run(self, x):
            return total(x)

    made = Simulation()
    for fun in (made, made.run, np.sum, sum, max, lambda *x: total(x[0]), lambda x, *, n=2: total(x) + n):
        assert minimize(fun, [1.0, 2.0], 0.5).nfev == 30
    assert minimize(lambda p, scale=2: scale * p["width"], SPACE).nfev == 30


def test_a_run_of_another_objective_names_both(tmp_path):
    minimize(total, [1.0], 0.5, run_dir=tmp_path / "r")
    said = "found a run of 'total', and 'three' here, which is another objective; pass the function"
    with pytest.raises(fmnes.RunError, match=re.escape(said)):
        fmnes.resume(tmp_path / "r", three, max_evaluations=50)


def test_a_place_where_no_run_can_be_made_is_said_without_numbers_of_errors(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(fmnes.RunError, match="wanted a place you may write to") as caught:
        minimize(total, [1.0], 0.5, run_dir=tmp_path / "file" / "r")
    assert "Errno" not in str(caught.value)
    with pytest.raises(fmnes.RunError, match="found a file, wanted a run directory"):
        fmnes.read_run(tmp_path / "file")
