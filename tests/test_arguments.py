"""Bad input is refused before anything is evaluated: the message names the argument, what was found and what
is wanted."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import pickle
import pydoc
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import CMAES, CRFMNES, DXNESIC, FMNES, XNES, ArgumentError, Bounds, Optimizer, Resampling, minimize
from fmnes import arguments as habits
from fmnes.evaluation.programs.command import check_runnable
from tests.rows import through

nan, inf = math.nan, math.inf

#: (changed arguments, argument that the message names first, what was found, what is wanted)
BAD: dict[str, tuple[dict[str, Any], str, str, str]] = {
    # x0
    "x0 empty": ({"x0": []}, "x0", r"\(0,\)", "at least one coordinate"),
    "x0 matrix": ({"x0": [[1.0, 2.0]]}, "x0", r"\(1, 2\)", "a vector"),
    "x0 uneven": ({"x0": [[1.0], [1.0, 2.0]]}, "x0", r"\[\[1.0\]", "a vector of finite numbers"),
    "x0 NaN": ({"x0": [1.0, nan]}, "x0", "nan at coordinate 1", "finite"),
    "x0 inf": ({"x0": [-inf, 2.0]}, "x0", "-inf at coordinate 0", "finite"),
    "x0 text": ({"x0": ["1", "2"]}, "x0", "'1'", "finite numbers"),
    "x0 complex": ({"x0": [1j, 2.0]}, "x0", "1j", "finite numbers"),
    "x0 None": ({"x0": None}, "x0", "none and no bounds", "x0=, or finite bounds= .*their centre"),
    "x0 huge": ({"x0": [10**400, 1]}, "x0", "10000", "finite numbers"),
    "x0 digits": ({"x0": [1.0, 10**5000]}, "x0", "type list", "finite numbers"),
    "x0 bool": ({"x0": [True, False]}, "x0", "True", "finite numbers"),
    # sigma0
    "sigma0 zero": ({"sigma0": 0.0}, "sigma0", "0.0", "positive"),
    "sigma0 negative": ({"sigma0": -1.0}, "sigma0", "-1.0", "positive"),
    "sigma0 NaN": ({"sigma0": nan}, "sigma0", "nan", "positive"),
    "sigma0 inf": ({"sigma0": inf}, "sigma0", "inf", "positive finite"),
    "sigma0 one bad of two": ({"sigma0": [1.0, -2.0]}, "sigma0", "-2.0", "positive"),
    "sigma0 NaN of two": ({"sigma0": [nan, 2.0]}, "sigma0", "nan", "positive"),
    "sigma0 shape": ({"sigma0": [1.0, 2.0, 3.0]}, "sigma0", r"\(3,\)", r"\(2,\)"),
    "sigma0 matrix": ({"sigma0": [[1.0, 2.0]]}, "sigma0", r"\(1, 2\)", r"\(2,\)"),
    "sigma0 one of one": ({"sigma0": [1.0]}, "sigma0", r"\(1,\)", r"\(2,\)"),
    "sigma0 text": ({"sigma0": "1"}, "sigma0", "'1'", "a positive number"),
    "sigma0 None": (
        {"sigma0": None},
        "sigma0",
        "none and no bounds",
        "sigma0=, or finite bounds= .*a quarter of their width",
    ),
    "sigma0 complex": ({"sigma0": 1 + 0j}, "sigma0", r"1\+0j", "a positive number"),
    "sigma0 huge": ({"sigma0": 10**400}, "sigma0", "401 digits", "a positive number"),
    "sigma0 uneven": ({"sigma0": [[1.0], [1.0, 2.0]]}, "sigma0", r"\[\[1.0\]", "a positive number"),
    "sigma0 too unequal for x0": (
        {"x0": [1.0, 1e300], "sigma0": [1e308, 1e290]},
        "sigma0",
        r"1e\+290 at coordinate 1",
        "more equal length",
    ),
    "sigma0 lost beside x0": (
        {"x0": [0.0, 1e20], "sigma0": 1.0},
        "sigma0",
        "1, too small to change coordinate 1",
        "distance to the optimum",
    ),
    "sigma0 too small for its square": ({"x0": [0.0, 0.0], "sigma0": 1e-200}, "sigma0", "1e-200", "at least"),
    # bounds
    "bounds swapped": ({"bounds": (5.0, -5.0)}, "bounds", "lower 5 >= upper -5", "lower < upper"),
    "bounds equal": ({"bounds": [(0, 3), (2, 2)]}, "bounds", "2 at coordinate 1", "lower < upper"),
    "two lists of two": (
        {"bounds": ([0, 0], [9, 9])},
        "bounds",
        "0 >= upper 0",
        "two vectors .* fmnes.Bounds",
    ),
    "bounds crossed": ({"bounds": Bounds(0, [3, -2])}, "bounds", "-2 at coordinate 1", "lower < upper"),
    "bounds both inf": ({"bounds": (inf, inf)}, "bounds", "inf >= upper inf", "lower < upper"),
    "bounds shape": ({"bounds": Bounds([0.0] * 3, 5)}, r"bounds \(lower\)", r"\(3,\)", "2 coordinates"),
    "bounds matrix": ({"bounds": Bounds(0, [[5, 6]])}, r"bounds \(upper\)", r"\(1, 2\)", "one number"),
    "bounds NaN": ({"bounds": [(0, 5), (0, nan)]}, r"bounds \(upper\)", "NaN at coordinate 1", "None or inf"),
    "bounds all NaN": ({"bounds": (nan, 5)}, r"bounds \(lower\)", "NaN", "None or inf"),
    "bounds text": ({"bounds": ("low", 5.0)}, r"bounds \(lower\)", "'low'", "a number"),
    "bounds text in a pair": ({"bounds": [("0", 1), (0, 1)]}, r"bounds \(lower\)", "'0'", "a number"),
    "bounds a text for a pair": ({"bounds": ["01", (0, 1)]}, "bounds", "'01' at coordinate 0", "a pair"),
    "bounds a number": ({"bounds": 5.0}, "bounds", "5.0", r"a pair \(lower, upper\)"),
    "bounds bytes": ({"bounds": b"\x00\x09"}, "bounds", "b'", "a pair"),
    "bounds dictionary": ({"bounds": {0: (0, 1), 1: (0, 1)}}, "bounds", r"\{0:", "a pair"),
    "bounds set": ({"bounds": {(0, 1), (0, 2)}}, "bounds", r"\{", "a pair"),
    "bounds huge": ({"bounds": (0, 10**400)}, r"bounds \(upper\)", "401 digits", "a number"),
    "bounds complex": ({"bounds": (0, 1j)}, r"bounds \(upper\)", "1j", "a number"),
    "bounds of three numbers": ({"bounds": (1.0, 2.0, 3.0)}, "bounds", "3 items", "2 pairs"),
    "bounds of three pairs": ({"bounds": [(0, 9)] * 3}, "bounds", "3 items", "2 pairs"),
    "bounds of one pair in a list": ({"bounds": [(0, 9)]}, "bounds", "1 items", "2 pairs"),
    "bounds empty": ({"bounds": []}, "bounds", "0 items", "2 pairs"),
    "bounds of triples": ({"bounds": [(0, 5, 9)] * 2}, "bounds", r"\(0, 5, 9\) at coordinate 0", "a pair"),
    "bounds with one None": ({"bounds": [(0, 9), None]}, "bounds", "None at coordinate 1", "a pair"),
    "bounds of a number and a list": ({"bounds": (0, [5, 6])}, "bounds", "0 at coordinate 0", "fmnes.Bounds"),
    "two lists of three": (
        {"x0": [1, 1, 1], "bounds": ([0, 0, 0], [2, 2, 2])},
        "bounds",
        "2 items; wanted 3 pairs",
        r"two vectors are written as fmnes.Bounds\(lower, upper\)",
    ),
    "a matrix of two rows": (
        {"x0": [1, 1, 1], "bounds": np.array([[0, 0, 0], [2, 2, 2]])},
        "bounds",
        "2 items; wanted 3 pairs",
        "fmnes.Bounds",
    ),
    "two arrays": (
        {"bounds": (np.zeros(2), np.full(2, 9))},
        "bounds",
        "two sides with an array",
        r"fmnes.Bounds\(lower, upper\), or list\(zip\(lower, upper\)\)",
    ),
    "two arrays in a list": (
        {"bounds": [np.array([0, 1]), np.array([2, 10])]},
        "bounds",
        "array",
        "list.zip",
    ),
    "a number and an array": ({"bounds": (0.0, np.full(2, 9))}, "bounds", "array", r"fmnes.Bounds"),
    "bounds_as": ({"bounds_as": "fail"}, "bounds_as", "'fail'", "did you mean 'failure'"),
    "bounds_as None": ({"bounds": (0, 9), "bounds_as": None}, "bounds_as", "None", "'map', 'failure'"),
    "x0 outside": (
        {"bounds": (1.5, 5.0)},
        "x0",
        "1 at coordinate 0.*0.5 below the lower bound 1.5",
        "inside",
    ),
    "x0 above": ({"bounds": (None, 1.5)}, "x0", "2 at coordinate 1.*0.5 above the upper bound 1.5", "inside"),
    # a start that is left to the bounds
    "no x0, half open": (
        {"x0": None, "bounds": [(0, 1), (0, None)]},
        "x0",
        "inf.*coordinate 1",
        "x0=, or finite bounds=",
    ),
    "no x0, one pair": (
        {"x0": None, "bounds": (0, 1)},
        "x0",
        "is unknown",
        "bounds for each coordinate",
    ),
    "no x0, no pairs": ({"x0": None, "bounds": []}, "bounds", r"\[\]", "for each coordinate"),
    "no x0, no numbers": ({"x0": None, "bounds": Bounds([], 1)}, "bounds", "no coordinate", "for each"),
    "no x0, other sizes": ({"x0": None, "bounds": Bounds([0] * 3, [1] * 2)}, "bounds", r"\(2,\)", "3 coord"),
    "no sigma0, open": ({"sigma0": None, "bounds": (None, 9)}, "sigma0", "-inf.*coordinate 0", "a quarter"),
    "no sigma0 beside x0": (
        {"x0": [1e20, 1], "sigma0": None, "bounds": [(1e20, 1.0000000000000002e20), (0, 9)]},
        "sigma0",
        "too small to change coordinate 0",
        "about the distance",
    ),
    # method
    "method unknown": ({"method": "fmnes"}, "method", "'fmnes'", "did you mean 'fm-nes'"),
    "method case": ({"method": "CMA-ES"}, "method", "'CMA-ES'", "did you mean 'cma-es'"),
    "method nonsense": ({"method": "zzz"}, "method", "'zzz'", "one of 'afm-nes'"),
    "method None": ({"method": None}, "method", "None", "a name such as"),
    "method class": ({"method": FMNES}, "method", "FMNES", "settings such as"),
    "method dictionary": ({"method": {}}, "method", r"\{\}", "a name such as"),
    "method set": ({"method": {1}}, "method", r"\{1\}", "a name such as"),
    "method number": ({"method": 3}, "method", "3", "a name such as"),
    # population_size
    "λ odd": ({"population_size": 7}, "population_size", "7", "an even number"),
    "λ tiny": ({"population_size": 2}, "population_size", "2", "at least 4"),
    "λ zero": ({"population_size": 0}, "population_size", "0", "at least 4"),
    "λ negative": ({"population_size": -8}, "population_size", "-8", "at least 4"),
    "λ float": ({"population_size": 8.5}, "population_size", "8.5", "a whole number"),
    "λ whole and huge": ({"population_size": 1e300}, "population_size", "301 digits", "fewer"),
    "λ text": ({"population_size": "8"}, "population_size", "'8'", "a whole number"),
    "λ array": ({"population_size": np.array([8, 8])}, "population_size", "array", "a whole number"),
    "λ without memory": ({"population_size": 10**12}, "population_size", "GB", "fewer"),
    "λ huge": ({"population_size": 10**400}, "population_size", "401 digits", "fewer"),
    "λ bool": ({"population_size": True}, "population_size", "True", "a whole number"),
    "λ one, xnes": ({"population_size": 1, "method": "xnes"}, "population_size", "1", "at least 2"),
    "λ twice": (
        {"population_size": 8, "method": FMNES(population_size=10)},
        "population_size",
        "8 here and 10 in the method's settings",
        "one of them",
    ),
    "λ odd in settings": ({"method": FMNES(population_size=9)}, "population_size", "9", "an even number"),
    "λ text in settings": ({"method": CMAES(population_size="9")}, "population_size", "'9'", "a whole"),
    # limits
    "target NaN": ({"target": nan}, "target", "nan", "a number"),
    "target inf": ({"target": inf}, "target", "inf", "a number"),
    "target -inf": ({"target": -inf}, "target", "-inf", "a number"),
    "target huge": ({"target": 10**400}, "target", "401 digits", "a number and below"),
    "target -huge": ({"target": -(10**400)}, "target", "401 digits", "a number"),
    "target longdouble": ({"target": np.longdouble("inf")}, "target", "inf", "a number"),
    "budget huge": ({"max_evaluations": 10**400}, "max_evaluations", "401 digits", r"below 2\*\*63"),
    "xtol huge": ({"xtol": 10**400}, "xtol", "401 digits", "above 0"),
    "ftol digits": ({"ftol": 10**5000}, "ftol", "5001 digits", "above 0"),
    "target text": ({"target": "0"}, "target", "'0'", "a number"),
    "budget zero": ({"max_evaluations": 0}, "max_evaluations", "0", "above 0"),
    "budget negative": ({"max_evaluations": -5}, "max_evaluations", "-5", "above 0"),
    "budget float": ({"max_evaluations": 1.5}, "max_evaluations", "1.5", "a whole number above 0 or None"),
    "budget 1e300": ({"max_evaluations": 1e300}, "max_evaluations", r"1e\+300", r"below 2\*\*63"),
    "budget inf": ({"max_evaluations": inf}, "max_evaluations", "inf", "a whole number above 0 or None"),
    "budget minus": ({"max_evaluations": -1e4}, "max_evaluations", "-10000.0", "above 0 or None"),
    "budget bool": ({"max_evaluations": True}, "max_evaluations", "True", "a whole number"),
    "xtol negative": ({"xtol": -1e-9}, "xtol", "-1e-09", "above 0 or None"),
    "xtol NaN": ({"xtol": nan}, "xtol", "nan", "above 0 or None"),
    "ftol text": ({"ftol": "small"}, "ftol", "'small'", "a number"),
    "ftol inf": ({"ftol": inf}, "ftol", "inf", "a number"),
    # rng
    "seed negative": ({"rng": -1}, "rng", "-1", "a whole number >= 0"),
    "seed float": ({"rng": 1.5}, "rng", "1.5", "a whole number >= 0"),
    "seed text": ({"rng": "1"}, "rng", "'1'", "a numpy Generator"),
    "seed bool": ({"rng": True}, "rng", "True", "a whole number"),
    "RandomState": ({"rng": np.random.RandomState(1)}, "rng", "RandomState", "a numpy Generator"),
    "seed digits": ({"rng": 10**5000}, "rng", "5001 digits", "a whole number"),
    # B0
    "B0 overflow": (
        {"method": XNES(B0=[[1.7e308, 1.7e308], [-1.7e308, 1.7e308]])},
        "B0",
        r"1.7e\+308",
        "smaller",
    ),
    "B0 shape": ({"method": FMNES(B0=np.eye(3))}, "B0", r"\(3, 3\)", r"\(2, 2\)"),
    "B0 NaN": ({"method": XNES(B0=[[nan, 0], [0, 1]])}, "B0", "NaN", "finite"),
    "B0 singular": ({"method": FMNES(B0=np.ones((2, 2)))}, "B0", "singular", "invertible"),
}

ONLY_MINIMIZE: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "fun None": ({"fun": None}, "fun", "None", "a function"),
    "fun number": ({"fun": 3.0}, "fun", "3.0", "a function"),
    "seconds zero": ({"max_seconds": 0}, "max_seconds", "0", "above 0"),
    "seconds NaN": ({"max_seconds": nan}, "max_seconds", "nan", "above 0"),
    "seconds text": ({"max_seconds": "1 h"}, "max_seconds", "'1 h'", "a number"),
    "retries negative": ({"retries": -1}, "retries", "-1", "a whole number"),
    "retries float": ({"retries": 0.5}, "retries", "0.5", "a whole number"),
    "restarts negative": ({"restarts": -2}, "restarts", "-2", "a whole number"),
    "restarts text": ({"restarts": "1"}, "restarts", "'1'", "a whole number"),
    "seconds huge": ({"max_seconds": 10**400}, "max_seconds", "401 digits", "above 0"),
    "timeout huge": ({"timeout": 10**400}, "timeout", "401 digits", "above 0"),
    "timeout text": ({"timeout": "60"}, "timeout", "'60'", "a number"),
    "retries huge": ({"retries": 10**400}, "retries", "401 digits", "a whole number"),
    "restarts huge": ({"restarts": 10**400}, "restarts", "401 digits", "a whole number"),
    "workers huge": ({"workers": 10**400}, "workers", "401 digits", "a whole number"),
    "workers text": ({"workers": "2"}, "workers", "'2'", "a whole number"),
    "workers zero": ({"workers": 0}, "workers", "0", "at least 1, or -1: one for each core"),
    "workers array": ({"workers": np.array([-1, -1])}, "workers", "array", "a whole number"),
    "vectorized": ({"vectorized": "yes"}, "vectorized", "'yes'", "True or False"),
    "progress": ({"progress": [1]}, "progress", r"\[1\]", "True or False"),
    "run_dir number": ({"run_dir": 5}, "run_dir", "5", "a path"),
    "run_dir bytes": ({"run_dir": b"run"}, "run_dir", "b'run'", "a path"),
    "run_dir NUL": ({"run_dir": "a\0b"}, "run_dir", "a.x00b", "a path"),
    "run_dir surrogate": ({"run_dir": "\ud800"}, "run_dir", "ud800", "a path"),
    "executor": ({"executor": 5}, "executor", "5", "submit"),
    "on_error array": ({"on_error": np.array(["raise", "raise"])}, "on_error", "array", "'infeasible'"),
    "callback": ({"callback": 5}, "callback", "5", "a function"),
    "on_error": ({"on_error": "rais"}, "on_error", "'rais'", "did you mean 'raise'"),
}


def pattern(argument: str, found: str, wanted: str) -> str:
    return rf"(?s)^{argument}.*found.*{found}.*{wanted}"


@through(("change", "argument", "found", "wanted"), BAD.values())
def test_the_optimizer_refuses(change: dict[str, Any], argument: str, found: str, wanted: str) -> None:
    arguments = {"x0": [1.0, 2.0], "sigma0": 0.5, **change}
    with pytest.raises(ArgumentError, match=pattern(argument, found, wanted)) as caught:
        Optimizer(arguments.pop("x0"), arguments.pop("sigma0"), **arguments)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, fmnes.FmnesError)
    assert "wanted" in str(caught.value)


@through(
    ("change", "argument", "found", "wanted"),
    [*BAD.values(), *ONLY_MINIMIZE.values()],
)
def test_minimize_refuses_before_anything_is_evaluated(
    change: dict[str, Any], argument: str, found: str, wanted: str
) -> None:
    calls = 0

    def fun(x: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        return 0.0

    arguments = {"fun": fun, "x0": [1.0, 2.0], "sigma0": 0.5, **change}
    with pytest.raises(ArgumentError, match=pattern(argument, found, wanted)):
        minimize(arguments.pop("fun"), arguments.pop("x0"), arguments.pop("sigma0"), **arguments)
    assert calls == 0


SETTINGS: dict[str, tuple[Any, dict[str, Any], str, str, str]] = {
    "rank_one": (FMNES, {"rank_one": "allways"}, "rank_one", "'allways'", "did you mean 'always'"),
    "path_rate": (FMNES, {"path_rate": "table"}, "path_rate", "'table'", "did you mean 'tables'"),
    "B0 huge": (FMNES, {"B0": [[10**400, 0], [0, 1]]}, "B0", "10000", "a matrix of numbers"),
    "refresh zero": (FMNES, {"refresh": 0}, "refresh", "0", "at least 1"),
    "refresh float": (FMNES, {"refresh": 2.5}, "refresh", "2.5", "a whole number"),
    "refresh bool": (CMAES, {"refresh": True}, "refresh", "True", "a whole number"),
    "ridge below 1": (FMNES, {"ridge_threshold": 1.0}, "ridge_threshold", "1.0", "above 1$"),
    "ridge text": (FMNES, {"ridge_threshold": "1.2"}, "ridge_threshold", "'1.2'", "a number"),
    "ridge None": (FMNES, {"ridge_threshold": None}, "ridge_threshold", "None", "a number"),
    "ridge list": (FMNES, {"ridge_threshold": [1.2]}, "ridge_threshold", r"\[1.2\]", "a number"),
    "reset text": (FMNES, {"reset": "no"}, "reset", "'no'", "True or False"),
    "reset None": (FMNES, {"reset": None}, "reset", "None", "True or False"),
    "reset number": (FMNES, {"reset": 2}, "reset", "2", "True or False"),
    "ridge NaN": (DXNESIC, {"ridge_threshold": nan}, "ridge_threshold", "nan", "above 1"),
    "parameters": (CMAES, {"parameters": "2018"}, "parameters", "'2018'", "'2016'"),
    "parameters number": (CMAES, {"parameters": 2016}, "parameters", "2016", "'2016'"),
    "redraws": (Resampling, {"strategy": XNES(), "max_redraws": 0}, "max_redraws", "0", "at least 1"),
    "max_change text": (CRFMNES, {"max_change": "0.5"}, "max_change", "'0.5'", "between 0 and 1"),
    "max_change huge": (CRFMNES, {"max_change": 10**400}, "max_change", "401 digits", "between 0 and 1"),
    "refresh huge": (CMAES, {"refresh": 10**400}, "refresh", "401 digits", "a whole number"),
    "reset digits": (FMNES, {"reset": 10**5000}, "reset", "5001 digits", "True or False"),
    "rank_one list": (FMNES, {"rank_one": ["always"]}, "rank_one", r"\['always'\]", "'always'"),
    "resampling dictionary": (Resampling, {"strategy": {}}, "strategy", r"\{\}", r"fmnes.XNES\(\)"),
    "mirrored": (Resampling, {"strategy": FMNES()}, "Resampling", "'fm-nes'.*mirrored", "fmnes.XNES"),
    "mirrored dx": (Resampling, {"strategy": DXNESIC()}, "Resampling", "'dx-nes-ic'", "fmnes.XNES"),
    "resampling text": (Resampling, {"strategy": "xnes"}, "strategy", "'xnes'", r"fmnes.XNES\(\)"),
}


@through(("settings", "change", "argument", "found", "wanted"), SETTINGS.values())
def test_settings_refuse(
    settings: Any, change: dict[str, Any], argument: str, found: str, wanted: str
) -> None:
    with pytest.raises(ArgumentError, match=pattern(argument, found, wanted)):
        settings(**change)


def test_what_is_unusual_but_right_is_taken() -> None:
    def run(x0: Any, sigma0: Any, **settings: Any) -> np.ndarray:
        return Optimizer(x0, sigma0, rng=1, **settings).ask()

    plain = run([1.0, 2.0], 0.5)
    np.testing.assert_array_equal(run((1, 2), 0.5), plain)
    np.testing.assert_array_equal(run(np.array([1, 2], dtype=np.int8), np.float32(0.5)), plain)
    np.testing.assert_array_equal(run([1.0, 2.0], np.array(0.5), bounds=None), plain)
    np.testing.assert_array_equal(run([1.0, 2.0], 0.5, bounds=(None, None)), plain)
    np.testing.assert_array_equal(run([1.0, 2.0], 0.5, bounds=np.array([[-9.0, 9.0], [-9.0, 9.0]])), plain)
    np.testing.assert_array_equal(run([1.0, 2.0], 0.5, population_size=np.int32(6)), plain)
    np.testing.assert_array_equal(
        run([1.0, 2.0], 0.5, population_size=6, method=FMNES(population_size=6)), plain
    )
    np.testing.assert_array_equal(
        run([1.0, 2.0], 0.5, target=np.float32(1), max_evaluations=np.int64(99)), plain
    )
    np.testing.assert_array_equal(run([1.0, 2.0], 0.5, xtol=None, ftol=None), plain)
    assert run(3.0, 0.5).shape == (4, 1)  # a number is a problem of one coordinate
    assert run([1.0, 2.0], 0.5, method="xnes", population_size=3).shape == (3, 2)
    assert len(Optimizer([1.0, 2.0], 0.5, bounds=[(1.0, 3.0), (2.0, 2.5)], rng=1).ask()) > 0  # on a bound


@through("d", [1, 2, 3, 5, 10, 40, 100])
def test_the_default_population_is_even_for_every_method(d: int) -> None:
    size = 4 + math.floor(3 * math.log(d))
    for method in ("fm-nes", "dx-nes-ic", "xnes", "cma-es"):
        assert Optimizer(np.zeros(d), 1.0, method=method).population_size == size + size % 2


def test_a_refused_argument_leaves_a_generator_alone() -> None:
    rng, same = np.random.default_rng(1), np.random.default_rng(1)
    for bad in ({"population_size": 7}, {"bounds": (5, 4)}, {"target": nan}, {"ftol": -1}):
        with pytest.raises(ArgumentError):
            Optimizer([1.0, 2.0], 0.5, rng=rng, **bad)
    assert rng.random() == same.random()


@pytest.mark.parametrize("settings", [FMNES, DXNESIC, XNES, CMAES, CRFMNES])
def test_an_unknown_option_is_an_error_of_ours(settings: Any) -> None:
    with pytest.raises(ArgumentError, match="refersh"):
        settings(refersh=1)


HABITS = {
    "args": r"wanted a function of x alone: .*lambda.*functools.partial",
    "seed": "wanted rng=",
    "random_state": "wanted rng=",
    "maxiter": "wanted max_evaluations= .*evaluations.*population_size",
    "maxfev": "wanted max_evaluations=$",
    "ahead": "wanted overlap=$",
    "tol": "wanted xtol= .* or ftol=",
    "options": "wanted each by itself, such as max_evaluations=1000",
    "n_jobs": "wanted workers=",
    "popsize": "wanted population_size=$",
    "verbose": "wanted progress=True; the logger 'fmnes'",
    "sigma": "wanted sigma0=",
    "step": "wanted sigma0=",
    "constraint": "wanted constraints= .limits on outputs",
    "space": "wanted .*fmnes.Real",
}


@through("name", HABITS)
def test_what_others_call_an_option_is_told_in_our_words(name: str) -> None:
    calls: list[Any] = []
    with pytest.raises(ArgumentError, match=rf"^minimize: found the option '{name}', {HABITS[name]}"):
        minimize(calls.append, [1.0, 2.0], 0.5, **{name: 1})
    assert not calls


def test_a_hint_is_given_only_where_the_option_is_there() -> None:
    with pytest.raises(ArgumentError, match="Optimizer: found the option 'seed', wanted rng="):
        Optimizer([1.0], 1.0, seed=1)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="'args', wanted one of x0, sigma0"):  # it has no objective
        Optimizer([1.0], 1.0, args=(1,))  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="resume: found the option 'seed', wanted one of run_dir"):
        fmnes.resume("run", seed=1)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"wanted sigma= .*multiple_of="):
        fmnes.Real(0, 1, step=0.1)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="did you mean 'max_evaluations'"):
        minimize(print, [1.0], 1.0, max_evaluation=5)  # type: ignore[call-arg]


def test_every_hint_speaks_of_an_option_that_there_is() -> None:
    known = {
        name
        for function in (minimize, Optimizer, fmnes.Real, fmnes.Integer, fmnes.Command)
        for name in inspect.signature(function).parameters
    }
    for ours, others, wanted in habits._HABITS:
        assert ours in known, ours
        for option in re.findall(r"(\w+)=(?!\.\.\.)", wanted):
            assert option in known, wanted
        assert all(habits.option_alias(name, {ours}) for name in others)


def test_a_whole_float_is_a_whole_number(tmp_path: Path) -> None:
    def fun(x: np.ndarray) -> float:
        return float(x @ x)

    limits = {"max_evaluations": 300, "population_size": 8, "restarts": 1, "retries": 3}
    floats = {name: float(value) for name, value in limits.items()}
    whole = minimize(fun, [1.0, 2.0], 0.5, rng=1, **limits)
    assert minimize(fun, [1.0, 2.0], 0.5, rng=1, workers=1.0, run_dir=tmp_path / "run", **floats) == whole
    assert "300.0" not in whole.message and type(whole.nfev) is int
    kept = json.loads((tmp_path / "run" / "config.json").read_text())["data"]["settings"]
    assert [repr(kept[name]) for name in ("max_evaluations", "restarts", "retries")] == ["300", "1", "3"]
    assert fmnes.resume(tmp_path / "run", fun, max_evaluations=4e2).nfev <= 400
    opt = Optimizer([1.0, 2.0], 0.5, max_evaluations=1e4, population_size=np.float32(8))
    assert (opt.max_evaluations, opt.population_size) == (10_000, 8)
    assert type(opt.max_evaluations) is type(opt.population_size) is int
    assert len(opt.ask(3.0)) == 3
    made = fmnes.AFMNES(population_size=8.0, max_population_size=1e2, refresh=2.0)
    assert made == fmnes.AFMNES(population_size=8, max_population_size=100, refresh=2)
    assert "8," in repr(made) and type(made.refresh) is int
    for wrong in (1.5, 1e300, -1e4, np.float64("nan"), "1e4"):
        with pytest.raises(ArgumentError, match=r"max_evaluations: found .*a whole number above 0"):
            minimize(fun, [1.0, 2.0], 0.5, max_evaluations=wrong)


@through("name", fmnes.__all__)
def test_help_shows_no_addresses(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(getattr(fmnes, name)))
    assert len(text) > 100 and " at 0x" not in text


def test_help_says_that_an_option_is_left_as_it_was() -> None:
    assert "= <unchanged>" in pydoc.plain(pydoc.render_doc(fmnes.resume))
    assert "= <not given>" in pydoc.plain(pydoc.render_doc(Optimizer))


@through("bad", ["text", [[1.0, 2.0], [3.0]], [[1j, 0], [0, 1]]])
@through("settings", [FMNES, XNES])
def test_a_b0_that_is_no_matrix_of_numbers(settings: Any, bad: Any) -> None:
    with pytest.raises(ArgumentError, match="B0"):
        Optimizer([1.0, 2.0], 0.5, method=settings(B0=bad))


@pytest.mark.parametrize("settings", [FMNES, DXNESIC, XNES])
def test_settings_are_equal_where_their_b0_is(settings: Any) -> None:
    listed, shape = [[2, 1], [0, 3]], np.array([[2.0, 1.0], [0.0, 3.0]])
    same = [settings(B0=B0) for B0 in (listed, shape, shape.T.copy().T, shape.astype(np.float32))]
    assert len(set(same)) == 1 and all(one == two for one in same for two in same)
    # Another number off the diagonal, another shape, another order, none at all.
    others = [[[2, 0], [0, 3]], [[2, 1, 0], [0, 3, 0], [0, 0, 1]], [2, 1, 0, 3], shape.T, [[nan, 1], [0, 3]]]
    for other in (*(settings(B0=B0) for B0 in others), settings(), settings(population_size=8, B0=shape)):
        assert other != same[0] and len({other, *same}) == 2
    assert settings() == settings() and settings(B0=[[nan]]) == settings(B0=[[nan]])
    assert same[0] != "fm-nes" and FMNES(B0=shape) != XNES(B0=shape)
    assert dataclasses.replace(same[0], population_size=8) == settings(population_size=8, B0=listed)
    assert pickle.loads(pickle.dumps(same[0])) == same[0]
    assert "array" not in repr(same[0]) and "\n" not in repr(same[0])


@pytest.mark.parametrize("settings", [FMNES, XNES])
def test_settings_own_their_b0(settings: Any) -> None:
    shape = np.diag([1.0, 2.0])
    made = settings(B0=shape)
    shape[0, 0] = 100.0
    assert made == settings(B0=np.diag([1.0, 2.0])) != settings(B0=shape)
    with pytest.raises(ValueError, match="read-only"):
        made.B0[0, 0] = 100.0


@pytest.mark.parametrize("bad", [np.eye(3), [[nan]], [[0.0]]])
def test_a_bad_b0_in_one_dimension(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="B0"):
        Optimizer([1.0], 0.5, method=FMNES(B0=bad))


def test_a_sigma0_that_overflows_beside_x0_gives_no_warning() -> None:
    assert np.isfinite(Optimizer([1e308, 0.0], 1e308, rng=1).ask()).all()


class Hostile:
    """An object whose every answer is an exception."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    __repr__ = __str__ = __array__ = __iter__ = __bool__ = __eq__ = __fspath__ = __float__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


HOSTILE: dict[str, Any] = {
    "401 digits": 10**400,
    "minus 401 digits": -(10**400),
    "5001 digits": 10**5000,
    "a list with 5001 digits": [1.0, 10**5000],
    "NaN": nan,
    "inf": inf,
    "minus inf": -inf,
    "a longdouble beyond floats": np.finfo(np.longdouble).max,
    "complex": 1 + 2j,
    "text": "text",
    "no text": "",
    "NUL": "a\0b",
    "a lone surrogate": "\ud800",
    "bytes": b"ab",
    "True": True,
    "None": None,
    "a dictionary": {},
    "a set": {1},
    "uneven": [[1.0], [1.0, 2.0]],
    "deep": nested(5000),
    "texts": ["a", "b"],
    "objects": np.array([None, 1], dtype=object),
    "an array": np.array([1.0, 2.0]),
    "a matrix": np.ones((2, 2)),
    "a date": np.datetime64("2020-01-01"),
    "masked": np.ma.masked,
    "steps too unequal": [1e-130, 1e308],
    "minus one": -1,
    "zero": 0,
    "all answers raise": Hostile(),
}


@pytest.mark.parametrize("argument", inspect.signature(minimize).parameters)
def test_whatever_is_passed_it_works_or_is_refused_in_our_words(
    argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in HOSTILE.items():
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        calls = 0

        def fun(x: np.ndarray) -> Any:
            nonlocal calls
            calls += 1
            return (np.asarray(x) ** 2).sum(axis=-1)

        given: dict[str, Any] = {"fun": fun, "x0": [1.0, 2.0], "sigma0": 0.5, "max_evaluations": 8, "rng": 1}
        given |= {"run_dir": "run", argument: value}
        try:
            minimize(**given)
        except fmnes.FmnesError as error:
            assert isinstance(error, ArgumentError) or argument == "run_dir", (name, error)
            assert "found" in str(error) and len(str(error)) < 600, name
            assert calls == 0 and not any(folder.iterdir()), name
        except Exception as error:
            raise AssertionError(f"{argument} = {name}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("argument", inspect.signature(fmnes.resume).parameters)
def test_resume_refuses_in_our_words_and_leaves_the_run_alone(argument: str, tmp_path: Path) -> None:
    def fun(x: np.ndarray) -> float:
        return float(x @ x)

    run = tmp_path / "run"
    minimize(fun, [1.0, 2.0], 0.5, rng=1, max_evaluations=8, run_dir=run)

    def said() -> list[bytes]:
        return [(run / name).read_bytes() for name in ("config.json", "result.json", "snapshot.npz")]

    for name, value in HOSTILE.items():
        before = said()
        given: dict[str, Any] = {"run_dir": run, "fun": fun, argument: value}
        try:
            fmnes.resume(**given)
        except fmnes.FmnesError as error:
            assert "found" in str(error) and len(str(error)) < 600, name
            assert before == said(), name
        except Exception as error:
            raise AssertionError(f"{argument} = {name}: {type(error).__name__}: {error}") from error


@through("argument", inspect.signature(fmnes.Command).parameters)
def test_a_command_refuses_in_our_words(argument: str) -> None:
    for name, value in HOSTILE.items():
        try:
            check_runnable(fmnes.Command(**{"argv": ["/bin/echo", "1"], argument: value}), 2)
        except ArgumentError as error:
            assert len(str(error)) < 600, name
        except Exception as error:
            raise AssertionError(f"{argument} = {name}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("path", [5, b"run", "a\0b", "", None, Hostile()])
def test_a_path_that_is_none(path: Any) -> None:
    with pytest.raises(ArgumentError, match="wanted a path"):
        Optimizer([1.0], 1.0).save(path)
    with pytest.raises(ArgumentError, match="wanted a path"):
        Optimizer.load(path)
    with pytest.raises(ArgumentError, match="wanted a path"):
        fmnes.resume(path)


def test_huge_budgets_and_flags_that_can_be_meant_are_taken() -> None:
    def fun(x: np.ndarray) -> float:
        return float(x @ x)

    many = {"max_evaluations": 2**63 - 1, "restarts": 2**63 - 1, "retries": 2**63 - 1, "max_seconds": 1e300}
    assert minimize(
        fun, [1.0], 1.0, rng=10**400, target=1e-3, vectorized=np.False_, progress=0, **many
    ).success
    assert Optimizer([1.0], 1.0, population_size=10**5).population_size == 10**5
