"""How a compiled run ends, beside `fmnes.Optimizer` with the same draws: what is counted, which mean is left.

A generation that the target or the budget cuts makes no update; one whose last point reaches the target, or
spends the budget, does. An update that gives a state that is not finite is not made either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import fmnes  # noqa: E402
from fmnes.backends import NUMPY, Backend  # noqa: E402
from fmnes.integrations import jax as fj  # noqa: E402
from fmnes.integrations.jax.draws import normal  # noqa: E402
from fmnes.integrations.jax.loop import START  # noqa: E402
from fmnes.strategies.xnes import XNESState  # noqa: E402

KEY = jax.random.key(3)
X0 = np.full(3, 3.0)
LAM = 6
MOST = 200 * LAM
StopReason = fmnes.StopReason


def fun(x: Any) -> Any:
    return jnp.where(x[1] < 4.0, (x * x).sum(), jnp.nan)


def fun_of_all(x: np.ndarray) -> np.ndarray:
    return np.where(x[:, 1] < 4.0, (x * x).sum(axis=1), np.nan)


@partial(jax.jit, static_argnums=1)
def draws(key: Any, per_generation: int) -> Any:
    """Those of a compiled run with this key: of the start, and of each generation."""

    def of_generation(index: Any) -> Any:
        return normal(jax.random.fold_in(key, index), (per_generation, len(X0)), jnp.float64)

    start = jax.random.normal(jax.random.fold_in(key, START), X0.shape)
    return start, jax.vmap(of_generation)(jnp.arange(MOST // LAM + 1))


class Replayed:
    """In place of NumPy's generator."""

    def __init__(self, draws: Any) -> None:
        self.draws = iter(np.asarray(draws))

    def standard_normal(self, shape: Any) -> np.ndarray:
        return next(self.draws).reshape(shape)


def by_numpy(key: Any, values: list[float] | None = None, **options: Any) -> fmnes.Result:
    opt = fmnes.Optimizer(X0, 1.0, **options)
    z0, z = draws(key, LAM // 2 if opt.strategy.mirrored else LAM)
    opt._distribution.rng = Replayed(z)  # type: ignore[assignment]
    opt._distribution.state = opt.strategy.init(X0, np.float64(1.0), np.asarray(z0))
    while opt.stop_reason is None:
        f = fun_of_all(opt.ask())
        opt.tell(f)
        if values is not None:
            values += f.tolist()
    return opt.result()


def compiled(key: Any, batch: int | None = None, **options: Any) -> Any:
    return fj.run(fun, jnp.asarray(X0), 1.0, key=key, batch=batch, **options)


def assert_same(found: Any, wanted: fmnes.Result) -> None:
    assert fj.stop_reason(found.stop_reason) is wanted.stop_reason
    assert int(found.nfev) == wanted.nfev
    assert int(found.nit) == wanted.nit
    assert int(found.n_infeasible) == wanted.n_infeasible
    assert_allclose(found.fun, wanted.fun, rtol=1e-9)
    assert_allclose(found.x_mean, wanted.x_mean, rtol=1e-9, atol=1e-9)


def of_run(batch: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], batch)


#: One of each family. CMA-ES multiplies its draws by eigenvectors, whose signs are arbitrary: here are none.
METHODS = (fmnes.FMNES(), fmnes.CMAES(refresh=10**6), fmnes.CRFMNES())


def reached_at(values: list[float], slots: range) -> float:
    """A target that is first reached in one of these slots, not before the third generation."""
    best = np.fmin.accumulate(np.array(values))
    for i in range(2 * LAM, len(best)):
        if best[i] < best[i - 1] and i % LAM in slots:
            return float((best[i] + best[i - 1]) / 2)
    raise AssertionError("no such evaluation: wanted another key")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_target_or_a_budget_in_the_middle_or_at_the_end_of_a_generation(method: Any) -> None:
    options: dict[str, Any] = {"method": method, "population_size": LAM}
    keys = jax.random.split(KEY, 4)
    targets = []
    for key, slots in zip(keys, (range(LAM - 1), range(LAM - 1, LAM), range(1), None), strict=True):
        values: list[float] = []
        by_numpy(key, values, max_evaluations=60 * LAM, **options)
        targets.append(-1.0 if slots is None else reached_at(values, slots))
    last = []
    for budget in (3 * LAM + 2, 4 * LAM, 2, 60 * LAM):
        batch = compiled(KEY, 4, max_evaluations=budget, target=jnp.asarray(targets), **options)
        for i, key in enumerate(keys):
            wanted = by_numpy(key, max_evaluations=budget, target=targets[i], **options)
            assert_same(of_run(batch, i), wanted)
            if i in (1, 3):
                assert_same(compiled(key, max_evaluations=budget, target=targets[i], **options), wanted)
            last.append((wanted.stop_reason, wanted.nfev % LAM))
    # All four are there, and what no update has changed is left as it was.
    assert {slot == 0 for reason, slot in last if reason is StopReason.TARGET} == {True, False}
    assert {slot == 0 for reason, slot in last if reason is StopReason.MAX_EVALUATIONS} == {True, False}
    assert_allclose(compiled(KEY, max_evaluations=2, **options).x_mean, X0, rtol=0)


@dataclass(frozen=True, eq=False)
class Spoiling(fmnes.XNES):
    """xNES whose update multiplies some number of its state, as soon as the mean has come near enough."""

    spoilt: str = "mean"
    factor: float = 1.0

    def update(
        self, state: XNESState, z: Any, order: Any, n_feasible: Any, backend: Backend = NUMPY
    ) -> XNESState:
        xp = backend.xp
        new = super().update(state, z, order, n_feasible, backend)
        array = getattr(new, self.spoilt)
        one = (xp.arange(array.size) == array.size - 1).reshape(array.shape)  # the last entry
        bad = xp.where(one & (new.mean[0] < 2.0), self.factor, 1.0) * array
        return new._replace(**{self.spoilt: bad[()]})


@pytest.mark.parametrize("spoilt", XNESState._fields)
def test_an_update_that_is_not_finite_is_not_made(spoilt: str) -> None:
    factors = [np.nan, np.inf, 0.0 if spoilt == "sigma" else -np.inf, 1.0]
    keys = jax.random.split(KEY, len(factors))
    options: dict[str, Any] = {"population_size": LAM, "target": 1e-3}
    batch = compiled(
        KEY,
        len(factors),
        method=Spoiling(spoilt=spoilt),
        vary={"factor": factors},
        max_evaluations=MOST,
        **options,
    )
    for i, factor in enumerate(factors):
        method = Spoiling(spoilt=spoilt, factor=factor)
        wanted = by_numpy(keys[i], method=method, max_evaluations=MOST, **options)
        reason = StopReason.TARGET if factor == 1.0 else StopReason.NUMERICAL
        assert wanted.stop_reason is reason
        assert_same(of_run(batch, i), wanted)
        assert np.isfinite(batch.x_mean[i]).all()
        if i != 0:
            continue
        # Alone; and where the budget ends with the same generation, which is the reason then.
        assert_same(compiled(keys[i], method=method, max_evaluations=MOST, **options), wanted)
        options_then = {**options, "method": method, "max_evaluations": wanted.nfev}
        then = by_numpy(keys[i], **options_then)
        assert then.stop_reason is StopReason.MAX_EVALUATIONS
        assert_same(compiled(keys[i], **options_then), then)
