"""The strategies under `jit` and `vmap` against NumPy: same draws, same values, same numbers, traced once.

The starts have distinct eigenvalues, as in tests/test_reference.py, and for the same reason.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

from fmnes import AFMNES, DXNESIC, FMNES, XNES  # noqa: E402
from fmnes.backends import jax_backend  # noqa: E402
from fmnes.integrations.jax.loop import shared_axes, strongly_typed  # noqa: E402
from fmnes.strategies import METHODS  # noqa: E402
from tests.objectives import distinct_shape, ellipsoid  # noqa: E402
from tests.updates import after_update  # noqa: E402

GENERATIONS = 100
TOLERANCE = 1e-9


def late_failures(x: np.ndarray) -> np.ndarray:
    """Feasible at the start, so that there is a shape to forget when the first failure comes."""
    return np.where((x >= 18.0).all(axis=1), ellipsoid(x), np.nan)


SHAPED = {
    "afm-nes": AFMNES,
    "fm-nes": FMNES,
    "every-generation": partial(FMNES, refresh=1),
    "dx-nes-ic": DXNESIC,
    "method-c": partial(FMNES, rank_one="always", reset=False),
    "xnes": XNES,
}
OTHERS = {name: make for name, make in METHODS.items() if name not in SHAPED}


def make(variant: str, d: int) -> Any:
    if variant in OTHERS:
        return OTHERS[variant]()
    return SHAPED[variant](B0=distinct_shape(d, np.random.default_rng(d)))


def with_equal_signs(state: Any, numpy_state: Any) -> Any:
    """Eigenvectors have arbitrary signs, and CMA-ES multiplies its draws by them."""
    if not hasattr(numpy_state, "C"):
        return state
    return state._replace(B=jnp.asarray(numpy_state.B), D=jnp.asarray(numpy_state.D))


def draws(strategy: Any, population_size: int, d: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((population_size // 2 if strategy.mirrored else population_size, d))


def assert_same(strategy: Any, found: Any, wanted: Any) -> None:
    found = jax.tree.map(np.asarray, found)  # so that nothing more is compiled
    shape, wanted_shape = (strategy.covariance(s) / s.sigma**2 for s in (found, wanted))
    assert_allclose(found.sigma, wanted.sigma, rtol=TOLERANCE)
    assert_allclose(found.mean, wanted.mean, rtol=TOLERANCE, atol=TOLERANCE * wanted.sigma)
    assert_allclose(shape, wanted_shape, rtol=TOLERANCE, atol=TOLERANCE * np.abs(wanted_shape).max())
    if hasattr(wanted, "unconstrained"):
        assert bool(found.unconstrained) == bool(wanted.unconstrained)
        assert_allclose(found.gamma, wanted.gamma, rtol=TOLERANCE)


CASES = [(variant, 5, 8, "library") for variant in (*SHAPED, *OTHERS) if variant != "every-generation"]
CASES += [(variant, 8, 20, "library") for variant in ("fm-nes", "xnes", "cma-es")]  # more draws than d
CASES += [
    ("fm-nes", 26, 12, "library"),  # beyond 24 the ridge test looks at some of the axes
    ("fm-nes", 9, 10, "rotations"),
    ("every-generation", 5, 8, "rotations"),
]


@pytest.mark.parametrize(("variant", "d", "population_size", "decompositions"), CASES)
def test_a_compiled_update_is_that_of_numpy(
    variant: str, d: int, population_size: int, decompositions: Any
) -> None:
    strategy = make(variant, d)
    backend = jax_backend(None, decompositions)
    rng = np.random.default_rng([d, population_size])
    traces = 0

    def update(state: Any, z: Any, f: Any) -> Any:
        nonlocal traces
        traces += 1
        return after_update(strategy, state, z, f, backend)

    compiled, sample = jax.jit(update), jax.jit(lambda s, z: strategy.sample(s, z, backend))
    x0, z0 = np.full(d, 20.0), rng.standard_normal(d)
    for fun in (ellipsoid, late_failures):
        wanted = strategy.init(x0, np.float64(2.0), z0)
        found = strategy.init(jnp.asarray(x0), jnp.asarray(2.0), jnp.asarray(z0), backend)
        found = strongly_typed(found)
        failures = 0
        for _ in range(GENERATIONS):
            z = draws(strategy, population_size, d, rng)
            x = strategy.sample(wanted, z)
            assert_allclose(sample(found, z), x, rtol=TOLERANCE, atol=TOLERANCE * wanted.sigma)
            f = fun(x)
            failures += np.count_nonzero(np.isnan(f))
            wanted, found = after_update(strategy, wanted, z, f), compiled(found, z, f)
            found = with_equal_signs(found, wanted)
        assert_same(strategy, found, wanted)
        assert (failures > 0) == (fun is late_failures)
    assert traces == 1


@pytest.mark.parametrize(
    ("variant", "lockstep"),
    [
        ("afm-nes", True),
        ("fm-nes", True),
        ("fm-nes", False),
        ("dx-nes-ic", True),
        *((variant, True) for variant in OTHERS),
    ],
)
def test_under_vmap_each_run_is_that_of_numpy(variant: str, lockstep: bool) -> None:
    """Three runs that meet their first failure at different times, and one that meets none."""
    d, population_size, runs = 5, 8, 4
    strategy = make(variant, d)
    backend = jax_backend("runs") if lockstep else jax_backend()
    rng = np.random.default_rng(3)
    x0, z0 = np.full(d, 20.0), rng.standard_normal((runs, d))
    wanted = [strategy.init(x0, np.float64(2.0), z0[i]) for i in range(runs)]
    axes = shared_axes(wanted[0])
    mapped = partial(jax.vmap, axis_name="runs")
    found = mapped(lambda z: strategy.init(jnp.asarray(x0), jnp.asarray(2.0), z, backend), out_axes=axes)(z0)
    update = jax.jit(
        mapped(lambda s, z, f: after_update(strategy, s, z, f, backend), in_axes=(axes, 0, 0), out_axes=axes)
    )
    limits = [18.0, 15.0, 5.0, -np.inf]
    for _ in range(GENERATIONS):
        z = np.stack([draws(strategy, population_size, d, rng) for _ in range(runs)])
        x = [strategy.sample(wanted[i], z[i]) for i in range(runs)]
        f = np.stack(
            [np.where((x[i] >= limits[i]).all(axis=1), ellipsoid(x[i]), np.inf) for i in range(runs)]
        )
        wanted = [after_update(strategy, wanted[i], z[i], f[i]) for i in range(runs)]
        found = update(found, z, f)
        if hasattr(found, "C"):
            B, D = (jnp.stack([jnp.asarray(getattr(w, name)) for w in wanted]) for name in "BD")
            found = found._replace(B=B, D=D)
    if hasattr(found, "generation"):
        assert found.generation.shape == () and int(found.generation) == GENERATIONS
    for i in range(runs):
        one = type(found)(
            *(
                leaf if leaf is None or axis is None else leaf[i]
                for leaf, axis in zip(found, axes, strict=True)
            )
        )
        assert_same(strategy, one, wanted[i])


@pytest.mark.parametrize("d", [1, 2, 5, 8, 41])
def test_rotations_decompose(d: int) -> None:
    rng = np.random.default_rng(d)
    svd = jax.jit(jax_backend(None, "rotations").svd)
    for condition in (1.0, 1e6):
        left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
        axes = np.geomspace(1.0, 1 / condition, d)
        a = left @ np.diag(axes) @ right
        U, values, Vt = (np.asarray(part) for part in svd(a))
        assert_allclose((U * values) @ Vt, a, atol=1e-14)
        assert_allclose(U.T @ U, np.eye(d), atol=1e-13)
        assert_allclose(Vt @ Vt.T, np.eye(d), atol=1e-13)
        assert_allclose(values, axes, rtol=1e-9)
    assert np.isnan(svd(np.full((d, d), np.nan))[1]).all()


def test_rotations_decompose_positive_matrices() -> None:
    """Eigenvalues and vectors as LAPACK has them, ascending."""
    rng = np.random.default_rng(1)
    root = rng.standard_normal((6, 4)) * np.array([1e3, 1.0, 1.0, 1e-3])
    backend = jax_backend(None, "rotations")
    values, vectors = backend.eigh_psd(jnp.asarray(root.T @ root))
    np.testing.assert_allclose(values, np.linalg.eigvalsh(root.T @ root), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose((vectors * values) @ vectors.T, root.T @ root, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(backend.eigenvalues_psd(jnp.asarray(root.T @ root)), values, rtol=1e-9)
