"""`init`, `ask`, `tell`: pure functions over a pytree, as JAX users expect them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import fmnes  # noqa: E402
from fmnes.integrations import jax as fj  # noqa: E402
from fmnes.strategies import METHODS  # noqa: E402


def sphere(x: Any) -> Any:
    return (x * x).sum(-1)


def test_ask_and_tell_by_hand_minimise() -> None:
    key = jax.random.key(1)
    state = fj.init(key, jnp.full(4, 3.0), 1.0)
    ask, tell = jax.jit(fj.ask), jax.jit(fj.tell)
    for g in range(150):
        x, z = ask(jax.random.fold_in(key, g), state)
        assert x.shape == (state.population_size, 4)
        state = tell(state, z, sphere(x))
    assert float(sphere(state.mean)) < 1e-8


def test_a_scan_is_the_same_as_steps_by_hand() -> None:
    key = jax.random.key(2)
    start = fj.init(key, jnp.full(3, 2.0), 1.0, population_size=6)

    def generation(state: Any, key: Any) -> Any:
        x, z = fj.ask(key, state)
        f = jnp.where(x[:, 0] > 0, sphere(x), jnp.nan)
        return fj.tell(state, z, f), f.min()

    keys = jax.random.split(key, 30)
    scanned, _ = jax.jit(lambda s: jax.lax.scan(generation, s, keys))(start)
    state, step = start, jax.jit(generation)
    for k in keys:
        state, _ = step(state, k)
    assert_allclose(scanned.mean, state.mean, rtol=1e-9)
    assert not bool(scanned.search.unconstrained)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_traced_twice(method: str) -> None:
    traces = 0

    def generation(state: Any, key: Any) -> Any:
        nonlocal traces
        traces += 1
        x, z = fj.ask(key, state)
        return fj.tell(state, z, sphere(x))

    compiled = jax.jit(generation)
    key = jax.random.key(3)
    state = fj.init(key, np.ones(3), 0.5, method=method)
    for k in jax.random.split(key, 25):
        state = compiled(state, k)
    assert traces == 1
    # The same with another start, and after a way through NumPy, as a saved state would come back.
    state = jax.tree.map(
        lambda leaf: jnp.asarray(np.asarray(leaf)), fj.init(key, np.zeros(3), 2, method=method)
    )
    compiled(compiled(state, key), key)
    assert traces == 1


@pytest.mark.parametrize("method", [*METHODS, fmnes.FMNES(refresh=1), fmnes.FMNES(path_rate="printed")])
@pytest.mark.parametrize(("d", "population_size"), [(1, 4), (4, 6), (4, 20)])
def test_float32_stays_float32(method: Any, d: int, population_size: int) -> None:
    """Although float64 is switched on, and constants are float64."""
    key = jax.random.key(4)
    state = fj.init(key, jnp.ones(d, jnp.float32), 1.0, method=method, population_size=population_size)
    kinds = jax.tree.map(lambda leaf: leaf.dtype, state)

    def generation(state: Any, key: Any) -> Any:
        x, z = fj.ask(key, state)
        return fj.tell(state, z, jnp.where(x[:, 0] > 0.5, sphere(x), jnp.inf))

    after = jax.eval_shape(generation, state, key)
    assert jax.tree.map(lambda leaf: leaf.dtype, after) == kinds
    assert {str(k) for k in jax.tree.leaves(kinds)} <= {"float32", "int64", "bool"}
    x, z = jax.eval_shape(fj.ask, key, state)
    assert x.dtype == z.dtype == jnp.float32


def test_an_initial_shape_in_float32() -> None:
    shape = np.diag([1.0, 2.0, 4.0])
    for method in (fmnes.FMNES(B0=shape), fmnes.XNES(B0=shape)):
        state = fj.init(jax.random.key(0), jnp.ones(3, jnp.float32), 1.0, method=method)
        leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        assert {leaf.dtype for leaf in leaves} == {jnp.dtype("float32")}
        covariance = method.covariance(state.search)
        assert_allclose(covariance, shape**2, rtol=1e-5)


def test_the_population_may_change_between_generations() -> None:
    key = jax.random.key(5)
    state = fj.init(key, jnp.ones(4), 1.0, method="dx-nes-ic")
    tell = jax.jit(fj.tell)
    for population_size in (8, 16, 4):
        x, z = fj.ask(key, state, population_size)
        assert x.shape == (population_size, 4)
        state = tell(state, z, sphere(x))
    assert int(state.search.generation) == 3


def primitives(jaxpr: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every operation, with those it is nested in."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        yield name, path
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from primitives(inner, (*path, name))


@pytest.mark.parametrize("method", ["fm-nes", "dx-nes-ic", "cma-es"])
def test_a_shared_generation_number_keeps_the_refresh_a_branch(method: str) -> None:
    keys = jax.random.split(jax.random.key(6), 3)
    x0 = jnp.ones(5)

    def start(key: Any) -> Any:
        return fj.init(key, x0, 1.0, method=method)

    axes = fj.batch_axes(start(keys[0]))
    states = jax.eval_shape(jax.vmap(start, out_axes=axes), keys)
    x, z = jax.eval_shape(jax.vmap(fj.ask, in_axes=(0, axes)), keys, states)
    f = jax.eval_shape(sphere, x)
    tell = jax.vmap(fj.tell, in_axes=(axes, 0, 0), out_axes=axes)
    after = jax.eval_shape(tell, states, z, f)
    assert after.search.generation.shape == () and after.mean.shape == (3, 5)

    def decompositions(jaxpr: Any) -> list[tuple[str, ...]]:
        # Of square matrices; the ridge test has small ones of its own.
        return [path for name, path in primitives(jaxpr) if name in ("svd", "eigh")]

    paths = decompositions(jax.make_jaxpr(tell)(states, z, f).jaxpr)
    assert sum("cond" in path for path in paths) == 1
    # With a number for each run nothing of the kind is left.
    own = jax.eval_shape(jax.vmap(start), keys)
    paths = decompositions(jax.make_jaxpr(jax.vmap(fj.tell))(own, z, f).jaxpr)
    assert not any("cond" in path for path in paths)


def test_the_state_is_a_pytree_with_static_settings() -> None:
    state = fj.init(jax.random.key(7), jnp.ones(3), 1.0, method="dx-nes-ic", population_size=8)
    leaves, structure = jax.tree.flatten(state)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    again = jax.tree.unflatten(structure, leaves)
    assert again.method == fmnes.DXNESIC() and again.population_size == 8
    assert_array_equal(again.mean, state.mean)
    assert float(state.sigma) == 1.0


def test_products_of_float32_keep_their_digits() -> None:
    """On a GPU the default would be ten bits."""
    state = fj.init(jax.random.key(8), jnp.ones(4, jnp.float32), 1.0)
    x, z = fj.ask(jax.random.key(9), state)
    jaxpr = jax.make_jaxpr(fj.tell)(state, z, sphere(x)).jaxpr
    stack, found = [jaxpr], []
    while stack:
        for equation in stack.pop().eqns:
            if equation.primitive.name == "dot_general":
                found.append(equation.params["precision"])
            for value in equation.params.values():
                for inner in value if isinstance(value, tuple | list) else (value,):
                    inner = getattr(inner, "jaxpr", inner)
                    if hasattr(inner, "eqns"):
                        stack.append(inner)
    highest = jax.lax.Precision.HIGHEST
    assert len(found) > 10 and all(precision == (highest, highest) for precision in found)
