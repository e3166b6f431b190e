"""The problems of the benchmark by name."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fmnes import problems
from fmnes.errors import ArgumentError, nearest
from fmnes_bench.search import functions
from fmnes_bench.search.functions import Array, Problem, where

#: Standard deviation of the noise in f; how near the mean has to come, and how soon, for each coordinate.
NOISE, NOISE_GAP, NOISE_EVALUATIONS = 1.0, 0.1, 2000
#: The beam of `fmnes init`: density 100 and width 0.01 (their bounds), height³ = 0.0125 (the beam breaks).
BEAM_HEIGHT = 0.0125 ** (1 / 3)

#: The problems of the paper.
PAPER = tuple(
    before + name for before in ("", "ic-") for name in ("sphere", "ellipsoid", "rosenbrock", "cigar")
)

Make = Callable[[str, int, list[int]], Problem]


def half(d: int) -> int:
    return max(1, d // 2)


def _known(name: str, of: str, d: int, **parameters: Any) -> Problem:
    """One of `fmnes.problems`."""
    p = problems.get(of, d=d, **parameters)
    return Problem(name, p.fun, p.x0, p.sigma0, p.optimum, p.minimum)


def _plain(name: str, d: int, seed: list[int]) -> Problem:
    return _known(name, name, d)


def _published(name: str, d: int, seed: list[int]) -> Problem:
    """With the paper's own target."""
    return dataclasses.replace(_known(name, name.removeprefix("paper-"), d), gap=1e-10)


def _active(count: Callable[[int], int]) -> Make:
    return lambda name, d, seed: _known(name, "shifted-sphere-active", d, active=count(d))


def _rotated_active(count: Callable[[int], int]) -> Make:
    return lambda name, d, seed: _known(
        name, "rotated-shifted-sphere-active", d, active=count(d), rotation_seed=seed[-1]
    )


def _noisy(name: str, d: int, seed: list[int]) -> Problem:
    p = problems.get(name.removeprefix("noisy-"), d=d)

    def told(x: Array, rng: np.random.Generator) -> Array:
        return np.asarray(p.fun(x) + NOISE * rng.standard_normal(len(x)))

    judged: dict[str, Any] = {"gap": NOISE_GAP * d, "at_mean": True}
    return Problem(
        name, p.fun, p.x0, p.sigma0, p.optimum, told=told, max_evaluations=NOISE_EVALUATIONS * d, **judged
    )


def _beam(name: str, d: int, seed: list[int]) -> Problem:
    """What `fmnes init` writes: width, height and the logarithm of the density."""

    def fun(x: Array) -> Array:
        width, height, density = x[..., 0], x[..., 1], math.e ** x[..., 2]
        breaks = 500.0 / (2e7 * density**0.5 * width * height**3) > 0.02
        return where(~breaks & (width <= 4 * height), 2.0 * density * width * height)

    lower, upper = np.array([0.01, 0.01, math.log(100.0)]), np.array([1.0, 1.0, math.log(20000.0)])
    optimum = np.array([0.01, BEAM_HEIGHT * (1 + 1e-15), math.log(100.0)])
    minimum = 2.0 * 100.0 * 0.01 * BEAM_HEIGHT
    x0, sigma0 = np.array([0.3, 0.3, math.log(1000.0)]), np.array([0.1, 0.1, math.log(3.0)])
    return Problem(
        name, fun, x0, sigma0, optimum, minimum, 0.01 * minimum, (lower, upper), max_evaluations=3000
    )


GROUPS: dict[str, dict[str, Make]] = {
    "study": {
        **dict.fromkeys(PAPER, _plain),
        "active1": _active(lambda d: 1),
        "activeh": _active(half),
        "actived": _active(lambda d: d),
        "aell1": lambda name, d, seed: functions.active_ellipsoid(name, d, 1, seed),
        "aellh": lambda name, d, seed: functions.active_ellipsoid(name, d, half(d), seed),
        "slope": functions.slope,
    },
    "paper": {f"paper-{name}": _published for name in PAPER},
    "box": {
        "box-separable": lambda name, d, seed: functions.in_box(name, d, False, seed),
        "box-rotated": lambda name, d, seed: functions.in_box(name, d, True, seed),
    },
    "rotated": {
        "rotated-active1": _rotated_active(lambda d: 1),
        "rotated-activeh": _rotated_active(half),
        "rotated-actived": _rotated_active(lambda d: d),
    },
    "regions": {
        "narrow": functions.narrow,
        "wedge": functions.wedge,
        "curved": functions.curved,
        "uncertain1": lambda name, d, seed: functions.uncertain_edge(name, d, 1),
        "uncertainh": lambda name, d, seed: functions.uncertain_edge(name, d, half(d)),
    },
    "noise": dict.fromkeys(("noisy-sphere", "noisy-ellipsoid"), _noisy),
    "beam": {"beam": _beam},
}
PROBLEMS: dict[str, Make] = {name: make for group in GROUPS.values() for name, make in group.items()}
GROUP_OF = {name: group for group, made in GROUPS.items() for name in made}


def has(name: str, d: int) -> bool:
    """Is there such a problem at d? The beam has three parameters, the paper's problems have 40."""
    if name == "beam":
        return d == 3
    return d == 40 if GROUP_OF[name] == "paper" else d >= 2


def get(name: str, d: int, instance: int = 0) -> Problem:
    """The problem at d; what is random in its definition (rotations, centres) depends on the instance."""
    check_problem(name)
    if not has(name, d):
        raise ArgumentError(f"dimensions: found {d} for {name!r}, wanted {_dimension_of(name)}")
    return PROBLEMS[name](name, d, [zlib.crc32(name.encode()), d, instance])


def _dimension_of(name: str) -> str:
    return {"beam": "3", "paper": "40"}.get(GROUP_OF[name], ">= 2")


def check_problem(name: str) -> None:
    known = [*GROUPS, *PROBLEMS]
    if name not in PROBLEMS:
        raise ArgumentError(
            f"problems: found {name!r}, wanted some of {', '.join(known)}{nearest(name, known)}"
        )
