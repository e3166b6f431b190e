"""Which devices a call computes on, and what each of them holds.

A batch is dealt out by runs: each device has a loop of its own over its share, and they never wait for each
other. One run of CR-FM-NES is dealt out by coordinates: every vector of its state, the draws and the points
are split along d, XLA's partitioner does the rest, and between devices go sums, a few numbers a draw.

Neither changes what is drawn: a number depends on its key and its place alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fmnes.arguments import check_number, is_number, shown
from fmnes.backends import Array
from fmnes.backends.jax import platform
from fmnes.errors import ArgumentError
from fmnes.strategies import Strategy

#: The name of the mesh axis.
DEVICES = "devices"


def choose_devices(
    devices: Any, x0: Array, key: Array, strategy: Strategy, batch: int | None
) -> tuple[Any, ...]:
    """The devices to deal runs or coordinates out over; none where JAX alone is to say where it computes."""
    asked = devices is not None
    if is_number(devices) and devices == 1 and not any(map(_stays, (x0, key))):
        return ()
    chosen = _checked(devices) if asked else _found(x0, key, batch)
    if len(chosen) > 1 and batch is None and strategy.matrices:
        if not asked:
            return ()
        raise ArgumentError(
            f"devices: found {len(chosen)} for one run of {strategy.name!r}, whose matrices are not split; "
            'wanted batch= for several runs, method="cr-fm-nes", or one device'
        )
    return chosen


def _checked(devices: Any) -> tuple[Any, ...]:
    if is_number(devices):
        count = check_number("devices", devices, above=0, whole=True)
        here = jax.local_devices(backend=platform())
        if count > len(here):
            raise ArgumentError(f"devices: found {count}, wanted at most {len(here)}, which this process has")
        return tuple(here[:count])
    listed = (devices,) if isinstance(devices, jax.Device) else devices
    listed = tuple(np.ravel(listed)) if isinstance(listed, (list, tuple, np.ndarray)) else ()
    if not listed or not all(isinstance(device, jax.Device) for device in listed):
        raise ArgumentError(
            f"devices: found {shown(devices)}, wanted how many, or a list such as jax.devices()[:2]"
        )
    if len(set(listed)) < len(listed) or len({device.platform for device in listed}) > 1:
        raise ArgumentError(f"devices: found {shown(devices)}, wanted different devices of one kind")
    return listed


def _found(x0: Array, key: Array, batch: int | None) -> tuple[Any, ...]:
    """Arrays that were put somewhere stay there, as in all of JAX; else a batch has all local devices."""
    if any(isinstance(array, jax.core.Tracer) for array in (x0, key)):
        return ()
    for array in (x0, key):
        if _stays(array):
            if batch is None and array.sharding.is_fully_replicated:
                return ()  # on several devices, but all of it on each
            return _several(sorted(array.sharding.device_set, key=lambda device: device.id))
    if batch is None or jax.config.jax_default_device is not None:
        return ()
    return _several(jax.local_devices())


def _stays(array: Array) -> bool:
    """Was it put where it is on purpose?"""
    return bool(getattr(array, "committed", False))


def _several(devices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(devices) if len(devices) > 1 else ()


def on_devices(
    loop: Callable[..., Any], inputs: Any, limits: Any, devices: tuple[Any, ...], batch: int | None
) -> Any:
    """loop(inputs, limits) with its inputs where `devices` wants them; as many results as there are runs."""
    with jax.default_device(devices[0]):  # what is compiled is for their kind
        if len(devices) == 1:
            return loop(*jax.device_put((inputs, limits), devices[0]))
        mesh = _mesh(np.array(devices), (DEVICES,))
        limits = jax.device_put(limits, NamedSharding(mesh, PartitionSpec()))
        if batch is None:
            return loop(_split_start(inputs, mesh), limits)
        results = loop(_deal_runs(inputs, mesh), limits)
        return jax.tree.map(lambda leaf: leaf if len(leaf) == batch else leaf[:batch], results)


# Runs.


def over_runs(loop: Callable[..., Any], devices: tuple[Any, ...]) -> Callable[..., Any]:
    """loop(inputs, limits) over the runs of each device apart; inputs and results have the runs first."""
    runs, common = PartitionSpec(DEVICES), PartitionSpec()
    mesh = _mesh(np.array(devices), (DEVICES,))
    options: dict[str, Any] = {"mesh": mesh, "in_specs": (runs, common), "out_specs": runs}
    # The check is of values that all devices should have in common; there are none.
    shard_map: Any
    if hasattr(jax, "shard_map"):
        shard_map = partial(jax.shard_map, check_vma=False)
    else:
        from jax.experimental import shard_map as older

        shard_map = partial(older.shard_map, check_rep=False)
    mapped: Callable[..., Any] = shard_map(loop, **options)
    return mapped


def _deal_runs(inputs: Any, mesh: Mesh) -> Any:
    """The inputs, each share on its device. Where they do not come out even the last run fills up.

    Its copies end with their first feasible point, whatever it is, and are dropped afterwards.
    """
    batch = len(inputs.target)
    room = -(-batch // mesh.size) * mesh.size
    if room > batch:
        run = np.minimum(np.arange(room), batch - 1)
        inputs = jax.tree.map(lambda leaf: leaf[run], inputs)
        inputs = inputs._replace(target=jnp.where(np.arange(room) < batch, inputs.target, jnp.inf))
    return jax.device_put(inputs, NamedSharding(mesh, PartitionSpec(DEVICES)))


# Coordinates.


def along_coordinates(devices: tuple[Any, ...]) -> NamedSharding:
    """How a vector (d,) lies on the devices."""
    return NamedSharding(_mesh(np.array(devices), (DEVICES,)), PartitionSpec(DEVICES))


def _split_start(inputs: Any, mesh: Mesh) -> Any:
    split = NamedSharding(mesh, PartitionSpec(DEVICES))
    whole = jax.device_put(inputs._replace(x0=None), NamedSharding(mesh, PartitionSpec()))
    return whole._replace(x0=jax.device_put(inputs.x0, boundary(split, len(inputs.x0))))


def boundary(split: NamedSharding, d: int) -> NamedSharding:
    """The same for a vector that enters or leaves: whole on each device where d does not divide evenly.

    JAX has no arrays in unequal parts; within a compiled program XLA has.
    """
    return split if d % split.num_devices == 0 else NamedSharding(split.mesh, PartitionSpec())


def hold(tree: Any, split: NamedSharding) -> Any:
    """The same arrays, (d,) or (n, d), held split along d. Numbers are left alone."""

    def held(leaf: Array) -> Array:
        if leaf.ndim == 0:
            return leaf
        return lax.with_sharding_constraint(leaf, rows(split, leaf.ndim))

    return jax.tree.map(held, tree)


def settle(tree: Any, split: NamedSharding) -> Any:
    """The same outside of a compiled program, and numbers on each device: where `tell` will leave them."""
    return jax.tree.map(
        lambda leaf: jax.device_put(
            leaf, rows(split, leaf.ndim) if leaf.ndim else NamedSharding(split.mesh, PartitionSpec())
        ),
        tree,
    )


def rows(split: NamedSharding, ndim: int = 2) -> NamedSharding:
    """How an array (..., d) lies where a vector (d,) lies as `split` says."""
    return NamedSharding(split.mesh, PartitionSpec(*(None,) * (ndim - 1), *split.spec))


def laid_out(draw: Callable[..., Array], split: NamedSharding | None) -> Callable[..., Array]:
    """draw(key, shape, dtype) whose numbers come to lie as `split` says, each device making its own."""
    return draw if split is None else jax.jit(draw, static_argnums=(1, 2), out_shardings=split)


def split_of(vector: Array) -> NamedSharding | None:
    """How a vector is split, where that can be seen and it is."""
    if isinstance(vector, jax.core.Tracer) or not isinstance(vector.sharding, NamedSharding):
        return None
    if vector.sharding.is_fully_replicated:
        return None
    mesh = vector.sharding.mesh
    return NamedSharding(_mesh(mesh.devices, mesh.axis_names), vector.sharding.spec)


def _mesh(devices: Any, names: tuple[str, ...]) -> Mesh:
    """Left to the partitioner; on one of `jax.make_mesh` every operation would have to say what it splits."""
    if not hasattr(jax.sharding, "AxisType"):  # an older JAX has no other
        return Mesh(devices, names)
    return Mesh(devices, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names))
