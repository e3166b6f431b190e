"""Bad input is told before anything is compiled; a missing JAX says how to get it."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import fmnes  # noqa: E402
from fmnes.integrations import jax as fj  # noqa: E402

KEY = jax.random.key(0)
ONES = np.ones(3)


def sphere(x: Any) -> Any:
    return (x * x).sum(-1)


def in_place(x: Any) -> Any:
    x[0] = 1.0
    return x.sum()


NOT_TRACEABLE = {
    "numpy": np.linalg.norm,
    "math": lambda x: math.sin(x[0]),
    "float": lambda x: float(x[0]),
    "branch": lambda x: x.sum() if x[0] > 0 else 0.0,
    "mask": lambda x: x[x > 0].sum(),
    "in-place": in_place,
}


@pytest.mark.parametrize("kind", NOT_TRACEABLE)
def test_an_objective_that_cannot_be_traced(kind: str) -> None:
    with pytest.raises(
        fmnes.ArgumentError, match=r"cannot trace .* goes to fmnes\.minimize\(fun, x0, sigma0\)"
    ):
        fj.run(NOT_TRACEABLE[kind], ONES, 1.0, key=KEY, max_evaluations=10)


def test_a_mistake_in_the_objective_is_shown_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        fj.run(lambda x: 1 // 0, ONES, 1.0, key=KEY, max_evaluations=10)
    with pytest.raises(TypeError, match="positional argument"):
        fj.run(lambda x, y: x, ONES, 1.0, key=KEY, max_evaluations=10)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("fun", "found"),
    [
        (lambda x: x, r"shape \(3,\) of float64"),
        (lambda x: x.sum() * 1j, "complex"),
        (lambda x: None, "None"),
        (lambda x: (x.sum(), 0), "ShapeDtypeStruct"),
        (lambda x: x.sum() > 0, "bool"),
    ],
)
def test_an_objective_that_does_not_return_a_number(fun: Any, found: str) -> None:
    with pytest.raises(fmnes.ArgumentError, match=f"fun: found an output of .*{found}"):
        fj.run(fun, ONES, 1.0, key=KEY, max_evaluations=10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fun": 3}, "fun: found 3"),
        ({"x0": np.ones((4, 3))}, r"x0: found shape \(4, 3\).*want batch=4"),
        ({"x0": np.ones((4, 3)), "batch": 5}, "x0: found 4 starts for 5 runs"),
        ({"x0": np.ones((2, 4, 3)), "batch": 2}, r"x0: found shape \(2, 4, 3\)"),
        ({"x0": []}, r"x0: found shape \(0,\)"),
        ({"x0": "abc"}, "x0: found 'abc', wanted real numbers"),
        ({"x0": [1.0, np.nan, 1.0]}, "x0: found NaN"),
        ({"x0": jnp.ones(3, jnp.float16)}, "x0: found float16, wanted float32 or float64"),
        ({"x0": jnp.ones(3, jnp.bfloat16)}, "x0: found .*wanted real numbers"),
        ({"sigma0": [1.0, 2.0, 3.0]}, r"sigma0: found shape \(3,\), wanted a number"),
        ({"sigma0": np.ones(4), "batch": 2}, r"sigma0: found shape \(4,\), wanted a number, or \(2,\)"),
        ({"sigma0": -1.0}, "sigma0: found -1.0, wanted a positive"),
        ({"sigma0": 1e-20}, "sigma0: found .*too small to change"),
        (
            {"x0": jnp.full(3, 1e6, jnp.float32), "sigma0": 1e-3},
            "too small .* in float32.*pass x0 as float64",
        ),
        ({"batch": 0}, "batch: found 0"),
        ({"batch": 2.5}, "batch: found 2.5"),
        ({"key": 0}, r"key: found 0, wanted one key, such as jax\.random\.key\(0\)"),
        ({"key": jax.random.split(KEY, 3)}, r"key: found shape \(3,\)"),
        ({"max_evaluations": 0}, "max_evaluations: found 0"),
        ({"max_evaluations": None}, "max_evaluations: found None"),
        ({"max_evaluations": 2**62}, "max_evaluations: found .*at most"),
        ({"target": "low"}, "target: found 'low'"),
        ({"target": np.nan}, "target: found nan"),
        ({"target": np.ones(3), "batch": 2}, r"target: found shape \(3,\)"),
        ({"xtol": -1.0}, "xtol: found -1.0"),
        ({"ftol": 0.0}, "ftol: found 0.0"),
        ({"method": "fmnes"}, "method: found 'fmnes'.*did you mean 'fm-nes'"),
        ({"method": fmnes.Resampling(fmnes.XNES())}, "method: found Resampling.*fmnes.minimize"),
        ({"population_size": 5}, "population_size: found 5, wanted an even number"),
        (
            {"population_size": 8, "method": fmnes.FMNES(population_size=6)},
            "population_size: found 8 here and 6",
        ),
        ({"draws_at_once": 3, "population_size": 8}, "draws_at_once: found 3, wanted a divisor of the 4"),
        ({"vary": {"refresh": [1.0, 2.0]}, "batch": 2}, r"vary: found 'refresh', .*\(ridge_threshold\)"),
        ({"vary": {"ridge_threshold": [1.5]}, "batch": 2}, r"vary: found shape \(1,\)"),
        ({"vary": {"ridge_threshold": [0.5, 2.0]}, "batch": 2}, "ridge_threshold: found 0.5"),
        ({"vary": {"x": [1.0]}, "method": "xnes", "batch": 1}, "vary: found 'x'.*'xnes' has none"),
    ],
)
def test_arguments_that_cannot_be_used(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"fun": sphere, "x0": ONES, "sigma0": 1.0, "key": KEY, "max_evaluations": 10}
    arguments.update(changes)
    fun, x0, sigma0 = (arguments.pop(name) for name in ("fun", "x0", "sigma0"))
    with pytest.raises(fmnes.ArgumentError, match=message):
        fj.run(fun, x0, sigma0, **arguments)


SPACE = {"material": fmnes.Categorical(["steel", "wood"]), "width": fmnes.Real(0, 1)}


@pytest.mark.parametrize(
    ("x0", "message"),
    [
        (SPACE, "x0: found the categorical parameter 'material'; .*fmnes.minimize.*a compiled run for each"),
        ([SPACE["width"], SPACE["material"]], "x0: found the categorical parameter 1; compiled runs"),
        ({"width": SPACE["width"]}, r"x0: found parameters; compiled runs take an array.*fmnes\.minimize"),
        ([SPACE["width"]], "x0: found parameters"),
    ],
)
@pytest.mark.parametrize("sigma0", [(), (1.0,)])
def test_parameters_and_categories_are_refused_in_words(x0: Any, message: str, sigma0: tuple[float]) -> None:
    with pytest.raises(fmnes.ArgumentError, match=message):
        fj.run(sphere, x0, *sigma0, key=KEY, max_evaluations=10)
    with pytest.raises(fmnes.ArgumentError, match=message):
        fj.init(KEY, x0, *sigma0)


def test_a_missing_first_step_is_named() -> None:
    with pytest.raises(fmnes.ArgumentError, match="sigma0: found None, wanted about the distance"):
        fj.run(sphere, ONES, key=KEY, max_evaluations=10)


def test_ask_and_tell_check_shapes() -> None:
    state = fj.init(KEY, jnp.ones(3), 1.0, population_size=6)
    x, z = fj.ask(KEY, state)
    with pytest.raises(fmnes.ArgumentError, match=r"f: found shape \(5,\), wanted \(6,\)"):
        fj.tell(state, z, sphere(x)[:5])
    with pytest.raises(fmnes.ArgumentError, match=r"z: found shape \(6, 2\)"):
        fj.tell(state, x[:, :2], sphere(x))
    with pytest.raises(fmnes.ArgumentError, match="even number"):
        fj.ask(KEY, state, 5)
    with pytest.raises(fmnes.ArgumentError, match="x0: found shape"):
        jax.vmap(lambda x0: fj.init(KEY, x0, 1.0))(jnp.ones((2, 3, 3)))


def test_a_start_that_is_known_is_checked_inside_a_jit() -> None:
    def start(x0: Any) -> Any:
        return jax.eval_shape(lambda key: fj.init(key, x0, 1.0, method="xnes"), KEY)

    assert start(jnp.ones(3)).mean.shape == (3,)
    with pytest.raises(fmnes.ArgumentError, match="x0: found NaN"):
        start(jnp.full(3, jnp.nan))


def test_a_target_below_the_digits_of_float32() -> None:
    with pytest.warns(RuntimeWarning, match=r"target: found 1e-10 with float32.*pass x0 as float64"):
        fj.run(
            sphere, jnp.ones(3, jnp.float32), 1.0, key=KEY, method="xnes", target=1e-10, max_evaluations=10
        )


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_with_float64_switched_off_the_warning_says_how_to_switch_it_on() -> None:
    done = python(
        "import jax, jax.numpy as jnp\n"
        "from fmnes.integrations import jax as fj\n"
        "fj.run(lambda x: x @ x, [1.0, 1.0], 1.0, key=jax.random.key(0), method='xnes', target=1e-10,"
        " max_evaluations=10)\n"
        "print(fj.init(jax.random.key(0), [1.0, 1.0], 1.0).mean.dtype)"
    )
    assert 'call jax.config.update("jax_enable_x64", True)' in done.stderr
    assert done.stdout.strip() == "float32", done.stderr


def test_fmnes_does_not_import_jax() -> None:
    done = python("import sys, fmnes, fmnes.backends, fmnes.integrations; print('jax' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_without_jax_the_message_names_the_extra() -> None:
    done = python(
        "import sys; sys.modules['jax'] = None\n"
        "import fmnes\n"
        "from fmnes.backends import jax_backend\n"
        "for attempt in (jax_backend, lambda: __import__('fmnes.integrations.jax')):\n"
        "    try: attempt()\n"
        "    except fmnes.MissingExtra as error: print(error)"
    )
    assert done.stdout.count('pip install "fmnes[jax]"') == 2, done.stderr
