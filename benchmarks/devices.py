"""Several devices: the same results as on one, what each of them holds, what goes between them, and time.

    python benchmarks/devices.py [--out devices.md]      on the devices that there are
    python benchmarks/devices.py --virtual 8             on so many that XLA makes out of one CPU

Virtual devices share the cores of one machine: they show that results agree, what each device holds and what
goes between them, and nothing about time, which is left out then.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

HEAD = ("case", "one device", "all devices", "beside")
LAM = 32


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--virtual", type=int, help="make so many devices out of one CPU")
    parser.add_argument("--d", type=int, default=100_000, help="coordinates of the run that is split")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.virtual:  # before JAX looks at it
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={options.virtual}"
    import jax

    jax.config.update("jax_enable_x64", True)
    rows = [*same_results(jax), *memory(options.d)]
    if not options.virtual:
        rows += times(options.d, options.batch)
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (HEAD, ("---",) * len(HEAD), *rows)]
    kind = f"{len(jax.devices())} × {jax.devices()[0].device_kind}"
    kind += ", simulated by XLA on one CPU" if options.virtual else ""
    command = " ".join(["python", *sys.argv])
    text = f"# Several devices\n\n`{command}`, jax {jax.__version__}, {kind}.\n\n" + "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


def rosenbrock(x: Any) -> Any:
    import jax.numpy as jnp

    value = (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()
    return jnp.where(x[0] > 0.0, value, jnp.nan)


def sphere(x: Any) -> Any:
    return (x * x).sum(-1)


def same_results(jax: Any) -> list[tuple[Any, ...]]:
    """Fifty generations of CR-FM-NES, split, and a batch of afm-nes, dealt out; the largest difference."""
    import jax.numpy as jnp
    import numpy as np

    from fmnes.integrations import jax as fj

    def difference(one: Any, other: Any) -> str:
        if [np.asarray(one.nfev).tolist(), np.asarray(one.nit).tolist()] != [
            np.asarray(other.nfev).tolist(), np.asarray(other.nit).tolist(),
        ]:  # fmt: skip
            return "other counts"
        return f"{np.abs(np.asarray(one.x_mean) - np.asarray(other.x_mean)).max():.1e}"

    n, rows = len(jax.devices()), []
    for d in (1024, 1023):
        options: dict[str, Any] = {
            "key": jax.random.key(0), "method": "cr-fm-nes",
            "population_size": LAM, "max_evaluations": 50 * LAM,
        }  # fmt: skip
        one = fj.run(rosenbrock, jnp.full(d, 0.5), 0.3, **options)
        split = fj.run(rosenbrock, jnp.full(d, 0.5), 0.3, devices=n, **options)
        spread = getattr(split.x_mean.sharding, "spec", "none")  # of one device
        beside = f"{int(one.n_infeasible)} of {int(one.nfev)} failed; sharding {spread}"
        rows.append(
            (f"cr-fm-nes, d = {d}, 50 generations, float64: Δ mean", "", difference(one, split), beside)
        )
    for batch in (4 * n, 4 * n - 3):
        options = {"key": jax.random.key(0), "batch": batch, "target": 1e-8, "max_evaluations": 5_000}
        one = fj.run(rosenbrock, jnp.full(4, 0.5), 0.3, devices=1, **options)
        dealt = fj.run(rosenbrock, jnp.full(4, 0.5), 0.3, **options)
        rows.append((f"afm-nes, {batch} runs, d = 4, to 1e-8: Δ mean", "", difference(one, dealt), "float64"))
    return rows


def memory(d: int) -> list[tuple[Any, ...]]:
    """What one device holds, in float32: the state by its shards, all else by the compiler's own account."""
    import jax
    import jax.numpy as jnp

    from fmnes.integrations import jax as fj

    n = len(jax.devices())
    d = d // (2 * n) * 2 * n
    found = []
    for devices in (1, n):
        mesh = jax.sharding.Mesh(jax.devices()[:devices], ("d",))
        x0 = jax.device_put(
            jnp.ones(d, jnp.float32), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        )
        state = fj.init(jax.random.key(0), x0, 1.0, method="cr-fm-nes", population_size=LAM)

        def generation(state: Any, key: Any) -> Any:
            x, z = fj.ask(key, state)
            return fj.tell(state, z, jax.vmap(sphere)(x))

        program = jax.jit(generation, donate_argnums=0).lower(state, jax.random.key(0)).compile()
        held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
        sent = [
            max(_size(shape) for shape in re.findall(r"\w\d*\[([\d,]*)\]", shapes))
            for shapes in re.findall(
                r"= (.+?) (?:all-gather|all-reduce|all-to-all|collective-\w+)(?:-start)?\(", program.as_text()
            )
        ]
        found.append((held, program.memory_analysis().temp_size_in_bytes, len(sent), max(sent, default=0)))
    one, all_ = found
    case = f"cr-fm-nes, d = {d}, λ = {LAM}, float32"
    return [
        (f"{case}: state on a device", _mb(one[0]), _mb(all_[0]), f"{all_[0] / one[0]:.3f} of it"),
        (f"{case}: all else of a generation", _mb(one[1]), _mb(all_[1]), f"{all_[1] / one[1]:.3f} of it"),
        (f"{case}: messages a generation", one[2], all_[2], f"at most {all_[3]} numbers each"),
    ]


def times(d: int, batch: int) -> list[tuple[Any, ...]]:
    """Milliseconds a generation; the shortest of three."""
    import jax
    import jax.numpy as jnp

    from fmnes.integrations import jax as fj

    n, rows = len(jax.devices()), []
    cases: list[tuple[str, int, dict[str, Any]]] = [
        (f"cr-fm-nes, d = {d}, float32", d, {"method": "cr-fm-nes", "population_size": LAM}),
        (
            f"fm-nes, {batch} runs, d = 10, float32",
            10,
            {"method": "fm-nes", "population_size": 10, "batch": batch},
        ),
    ]
    for case, size, options in cases:
        x0 = jnp.full(size, 3.0, jnp.float32)
        found = []
        for devices in (None if "batch" not in options else 1, [jax.devices()[0]], n):

            def run(generations: int, devices: Any = devices, x0: Any = x0, options: Any = options) -> float:
                budget = generations * options["population_size"]
                began = time.perf_counter()
                result = fj.run(
                    sphere, x0, 2.0, key=jax.random.key(1), max_evaluations=budget, xtol=None, ftol=None,
                    devices=devices, **options,
                )  # fmt: skip
                jax.block_until_ready(result)
                return time.perf_counter() - began

            run(1)
            few, many = (min(run(g) for _ in range(3)) for g in (10, 50))
            found.append((many - few) / 40 * 1e3)
        unnamed, named, shared = found
        beside = f"{shared / unnamed:.2f} of it; named as devices=[first]: {named:.3f}"
        rows.append((f"{case}: a generation", f"{unnamed:.3f} ms", f"{shared:.3f} ms", beside))
    return rows


def _size(shape: str) -> int:
    total = 1
    for n in shape.split(","):
        total *= int(n or 1)
    return total


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.3f} MB"


if __name__ == "__main__":
    main()
