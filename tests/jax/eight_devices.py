"""On several devices a run is what it is on one. There are eight, which XLA makes out of one CPU.

test_devices.py runs this file; by hand it is

XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m pytest tests/jax/eight_devices.py
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import fmnes  # noqa: E402
from fmnes.integrations import jax as fj  # noqa: E402
from fmnes.integrations.jax.devices import _deal_runs, along_coordinates, boundary, choose_devices  # noqa: E402
from fmnes.integrations.jax.draws import normal  # noqa: E402
from fmnes.integrations.jax.loop import (  # noqa: E402
    Inputs,
    Limits,
    Plan,
    compiled,
)

KEY = jax.random.key(3)
DEVICES = tuple(jax.devices())
SPLIT = along_coordinates(DEVICES)
CR: dict[str, Any] = {"method": "cr-fm-nes", "population_size": 16}


def test_there_are_eight() -> None:
    assert len(DEVICES) == 8


def sphere(x: Any) -> Any:
    return (x * x).sum(-1)


def half_sphere(x: Any) -> Any:
    return jnp.where(x[0] >= 0.5, sphere(x), jnp.nan)


def rosenbrock(x: Any) -> Any:
    """Coordinates of different devices meet, and near the start half of the points fail."""
    value = (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()
    return jnp.where(x[-1] - x[0] < 1.0, value, jnp.nan)


def assert_same(found: Any, wanted: Any, rtol: float = 1e-10, atol: float = 0.0) -> None:
    for name in ("nfev", "nit", "n_infeasible", "stop_reason"):
        assert_array_equal(getattr(found, name), getattr(wanted, name))
    for name in ("x", "fun", "x_mean"):
        assert_allclose(np.asarray(getattr(found, name)), np.asarray(getattr(wanted, name)), rtol, atol)


# -- coordinates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [64, 13])
def test_a_run_split_along_its_coordinates_is_that_of_one_device(d: int) -> None:
    """Fifty generations; d is a multiple of the devices, or not, so that the last one has nothing to do."""
    x0 = jnp.linspace(0.5, 1.5, d)
    options: dict[str, Any] = {"sigma0": 0.3, "key": KEY, "max_evaluations": 800, **CR}
    one = fj.run(rosenbrock, x0, **options)
    split = fj.run(rosenbrock, x0, devices=8, **options)
    assert int(one.nit) == 50 and int(one.n_infeasible) > 5
    assert_same(split, one, rtol=0.0, atol=1e-10)
    assert one.x_mean.sharding.num_devices == 1
    assert split.x_mean.sharding.is_equivalent_to(boundary(SPLIT, d), 1)
    assert split.x.sharding.is_equivalent_to(boundary(SPLIT, d), 1)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("shape", [(3, 32), (3, 40), (4, 21), (3, 5)])
def test_the_draws_are_those_of_one_device(shape: tuple[int, int], dtype: Any) -> None:
    """Pairs that lie on one device, that lie on two, that lie on two rows, and a size that JAX draws."""
    one = jax.jit(normal, static_argnums=(1, 2))(KEY, shape, dtype)
    split = jax.jit(partial(normal, split=SPLIT), static_argnums=(1, 2))(KEY, shape, dtype)
    assert_allclose(np.asarray(split), np.asarray(one), rtol=0, atol=4 * float(jnp.finfo(dtype).eps))


def lowered(fun: Any, d: int, devices: tuple[Any, ...], dtype: Any, batch: int | None = None) -> Any:
    """The compiled loop, to look into."""
    plan = Plan(fun, fmnes.CRFMNES(), 16, batch is not None, None, devices=devices)
    x0 = jnp.ones(d, dtype)
    inputs = Inputs(KEY, x0, jnp.ones((), dtype), jnp.zeros((), dtype), {})
    if batch is not None:
        inputs = Inputs(jax.random.split(KEY, batch), *(jnp.stack([a] * batch) for a in inputs[1:4]), {})
        inputs = _deal_runs(inputs, SPLIT.mesh)
    elif devices:
        inputs = inputs._replace(x0=jax.device_put(x0, boundary(SPLIT, d)))
    limits = Limits(jnp.asarray(160), jnp.zeros((), dtype), jnp.zeros((), dtype))
    return compiled(plan, d, jnp.dtype(dtype).name).lower(inputs, limits).compile()


def messages(program: Any) -> list[tuple[str, int]]:
    """What goes between devices: the kind, and the numbers in the largest array of each message."""
    found = re.findall(
        r"= (.+?) (all-gather|all-reduce|all-to-all|reduce-scatter|collective-\w+)(?:-start)?\(",
        program.as_text(),
    )
    return [(kind, max(map(size, re.findall(r"\w\d*\[([\d,]*)\]", shapes)))) for shapes, kind in found]


def size(shape: str) -> int:
    return int(np.prod([int(n) for n in shape.split(",") if n]))


def test_no_device_gets_more_than_its_share() -> None:
    """Between devices go λ numbers at the most, for sums and one neighbour a row."""
    d, lam, dtype = 4000, 16, jnp.float32
    whole = lowered(rosenbrock, d, (), dtype).memory_analysis()
    program = lowered(rosenbrock, d, DEVICES, dtype)
    sent = messages(program)
    assert {kind for kind, _ in sent} == {"all-reduce", "collective-permute"}
    assert max(size for _, size in sent) <= lam
    share = program.memory_analysis()
    ring = 2000 * jnp.dtype(dtype).itemsize  # the last generations' best values, on every device
    assert share.temp_size_in_bytes - 2 * ring < (whole.temp_size_in_bytes - 2 * ring) / 6
    assert share.argument_size_in_bytes < whole.argument_size_in_bytes / 7


def test_where_d_is_no_multiple_only_the_two_results_are_gathered() -> None:
    d = 4001
    sent = messages(lowered(sphere, d, DEVICES, jnp.float64))
    assert sorted(size for kind, size in sent if kind == "all-gather") == [4008, 4008]
    assert {kind for kind, _ in sent} == {"all-reduce", "all-gather"}


def test_ask_and_tell_stay_split() -> None:
    """Also on a mesh of jax.make_mesh, whose axes are explicit in newer versions."""
    d = 48
    mesh = jax.make_mesh((8,), ("mine",))
    x0 = jnp.linspace(1.0, 2.0, d, dtype=jnp.float32)

    @jax.jit
    def generation(state: Any, key: Any) -> Any:
        x, z = fj.ask(key, state)
        return fj.tell(state, z, jax.vmap(half_sphere)(x))

    means = []
    for start in (x0, jax.device_put(x0, NamedSharding(mesh, PartitionSpec("mine")))):
        state = fj.init(KEY, start, 1.0, **CR)
        x, z = fj.ask(KEY, state)  # also where nothing is compiled
        for key in jax.random.split(KEY, 30):
            state = generation(state, key)
        assert generation._cache_size() == len(means) + 1
        means.append(np.asarray(state.mean))
    assert_allclose(means[1], means[0], rtol=0, atol=1e-4)
    assert [shard.data.shape for shard in z.addressable_shards] == [(8, d // 8)] * 8
    assert [shard.data.shape for shard in x.addressable_shards] == [(16, d // 8)] * 8
    for name, array in state.search._asdict().items():
        shapes = {shard.data.shape for shard in array.addressable_shards}
        assert shapes == ({()} if name == "sigma" else {(d // 8,)}), name
    program = generation.lower(state, KEY).compile()
    assert {kind for kind, _ in messages(program)} == {"all-reduce"}
    draws = re.findall(r"= u(?:32|64)\[([\d,]+)\]", program.as_text())
    assert max(map(size, draws)) <= 2 * 8 * d // 8  # words for its own columns, nobody else's


def test_a_start_that_was_split_is_not_gathered_to_be_checked() -> None:
    x0 = jax.device_put(jnp.ones(16), SPLIT)
    with pytest.raises(fmnes.ArgumentError, match="x0: found NaN"):
        fj.run(sphere, x0.at[3].set(jnp.nan), 1.0, key=KEY, max_evaluations=10, **CR)


# -- runs -------------------------------------------------------------------------------------------------


def test_a_batch_dealt_out_is_that_of_one_device() -> None:
    """Thirteen runs on eight devices; they end at different times, and some of them fail, some do not."""
    batch = 13
    options: dict[str, Any] = {
        "key": KEY, "population_size": 6, "max_evaluations": 240, "batch": batch,
        "target": jnp.linspace(0.3, 3.0, batch),
    }  # fmt: skip
    x0, sigma0 = jnp.linspace(0.6, 6.0, 3 * batch).reshape(batch, 3), jnp.linspace(0.3, 1.0, batch)
    one = fj.run(half_sphere, x0, sigma0, devices=1, **options)
    dealt = fj.run(half_sphere, x0, sigma0, **options)
    assert len(set(one.nit.tolist())) > 5 and int((one.n_infeasible > 0).sum()) > 0
    assert one.x.sharding.num_devices == 1 and dealt.x.sharding.num_devices == 8
    assert dealt.x.shape == (batch, 3) and dealt.nfev.shape == (batch,)
    assert_same(dealt, one, rtol=1e-9)


def test_devices_with_their_own_runs_have_nothing_to_say_to_each_other() -> None:
    assert messages(lowered(sphere, 4, DEVICES, jnp.float64, batch=16)) == []


def test_which_devices_there_are_to_share() -> None:
    x0, cr, fm = jnp.ones(8), fmnes.CRFMNES(), fmnes.FMNES()
    there = jax.device_put(x0, DEVICES[3])
    two = jax.device_put(x0, NamedSharding(Mesh(np.array(DEVICES[2:4]), ("two",)), PartitionSpec("two")))
    both = jax.device_put(x0, NamedSharding(Mesh(np.array(DEVICES[2:4]), ("two",)), PartitionSpec()))
    wanted = [
        # devices, x0, method, batch, found
        (None, x0, fm, 2, DEVICES),
        (None, x0, cr, None, ()),
        (None, there, fm, 2, ()),  # what was put somewhere stays there
        (None, two, fm, 2, DEVICES[2:4]),
        (None, two, cr, None, DEVICES[2:4]),
        (None, two, fm, None, ()),
        (None, both, cr, None, ()),  # both devices have all of it
        (1, x0, fm, 2, ()),
        (1, there, fm, 2, DEVICES[:1]),
        (2, there, fm, 2, DEVICES[:2]),
        (list(DEVICES[4:]), x0, cr, None, DEVICES[4:]),
    ]
    for devices, start, method, batch, found in wanted:
        assert choose_devices(devices, start, KEY, method, batch) == found
    assert choose_devices(None, x0, jax.device_put(KEY, DEVICES[1]), fm, 2) == ()
    with jax.default_device(DEVICES[4]):
        assert choose_devices(None, x0, KEY, fm, 2) == ()
    with pytest.raises(fmnes.ArgumentError, match="devices: found 8 for one run of 'fm-nes', whose matrices"):
        choose_devices(8, x0, KEY, fm, None)


def test_what_fills_up_the_last_device_ends_at_once() -> None:
    targets = jnp.arange(9.0)
    inputs = Inputs(jax.random.split(KEY, 9), jnp.ones((9, 2)), jnp.ones(9), targets, {})
    dealt = _deal_runs(inputs, SPLIT.mesh)
    assert_array_equal(dealt.target, [*range(9), *[np.inf] * 7])
    assert dealt.x0.shape == (16, 2)
    assert {shard.data.shape for shard in dealt.x0.addressable_shards} == {(2, 2)}


def test_the_same_call_is_compiled_once_on_several_devices() -> None:
    traces = 0

    def fun(x: Any) -> Any:
        nonlocal traces
        traces += 1
        return sphere(x)

    def go(seed: int, **options: Any) -> Any:
        options = {"method": "xnes", "population_size": 6, "max_evaluations": 60, **options}
        return fj.run(fun, jnp.full(8, 1.0 + seed), 1.0 + seed, key=jax.random.key(seed), **options)

    every = go(0, batch=16)
    once = traces
    go(1, batch=16, target=1e-3), go(2, batch=16, max_evaluations=30)
    few = go(3, batch=9)  # two on each device, as before
    assert traces == once
    assert [shard.data.shape for shard in every.x.addressable_shards] == [(2, 8)] * 8
    # Results of different batches, and what is on no device in particular, go together.
    assert jnp.concatenate((every.fun, few.fun, jnp.ones(1))).shape == (26,)
    go(0, devices=8, method="cr-fm-nes")
    once = traces
    go(1, devices=8, method="cr-fm-nes", target=1e-3)
    assert traces == once


def test_a_batch_on_one_device_that_was_named_is_there() -> None:
    options: dict[str, Any] = {"key": KEY, "method": "xnes", "max_evaluations": 60, "batch": 2}
    result = fj.run(sphere, jnp.ones(2), 1.0, devices=DEVICES[5], **options)
    assert result.x.devices() == {DEVICES[5]} and result.x.shape == (2, 2)
