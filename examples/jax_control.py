"""Heat a rod to an even temperature without melting it: control of a partial differential equation, in JAX.

    python examples/jax_control.py

A rod of length 1 starts cold. Two heaters, one at each end, follow a schedule of ten powers each; after two
seconds the rod should be at temperature 1 everywhere. Inside it the heat equation T_t = α T_xx holds. Where
it gets hotter than 1.25 it melts, and the simulation has no result: the evaluation *failed*, and returns
NaN. The best schedules heat as hard as the rod can bear, so the search runs along the edge of failure.

Eight runs from different seeds go through one compiled loop, on a CPU in well under a minute.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fmnes.integrations import jax as fj

jax.config.update("jax_enable_x64", True)  # seven digits would do for the simulation, not for the search

CELLS, STEPS, KNOTS = 40, 400, 10
DURATION, DIFFUSIVITY, MELTING = 2.0, 0.05, 1.25
WIDTH, STEP = 1.0 / CELLS, DURATION / STEPS


def temperatures(schedule: Any) -> Any:
    """schedule: (2 KNOTS,), the powers of the left and then of the right heater. Returns (STEPS, CELLS)."""
    knots = jnp.linspace(0.0, DURATION, KNOTS)
    times = jnp.arange(STEPS) * STEP
    powers = jnp.stack([jnp.interp(times, knots, one) for one in schedule.reshape(2, KNOTS)], axis=1)

    def advance(T: Any, power: Any) -> Any:
        flux = jnp.diff(T) * (DIFFUSIVITY / WIDTH)  # between neighbours
        gain = jnp.concatenate((power[:1], -flux)) + jnp.concatenate((flux, power[1:]))
        T = T + gain * (STEP / WIDTH)
        return T, T

    return jax.lax.scan(advance, jnp.zeros(CELLS), powers)[1]


def cost(schedule: Any) -> Any:
    """How uneven the rod is at the end, and a little for the power used; NaN if it melted on the way."""
    T = temperatures(schedule)
    uneven = ((T[-1] - 1.0) ** 2).mean()
    return jnp.where((T < MELTING).all(), uneven + 1e-5 * (schedule**2).mean(), jnp.nan)


def main() -> None:
    result = fj.run(
        cost,
        jnp.full(2 * KNOTS, 0.1),  # lukewarm: safe, and far from even
        0.1,
        key=jax.random.key(0),
        population_size=20,
        max_evaluations=10_000,
        batch=8,
    )
    print("cost at the start          ", f"{float(cost(jnp.full(2 * KNOTS, 0.1))):.6f}")
    for fun, nfev, failed, reason in zip(
        result.fun, result.nfev, result.n_infeasible, fj.stop_reason(result.stop_reason), strict=True
    ):
        print(f"{float(fun):.6f} after {int(nfev)} evaluations, {int(failed)} of them melted: {reason.value}")
    best = result.x[jnp.argmin(result.fun)]
    T = temperatures(best)
    print("left heater                ", jnp.round(best[:KNOTS], 2))
    print("hottest at any time        ", f"{float(T.max()):.4f} (melts at {MELTING})")
    print("coldest and hottest, at end", f"{float(T[-1].min()):.3f} {float(T[-1].max()):.3f}")


if __name__ == "__main__":
    main()
