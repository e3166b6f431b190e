"""Checks of what users pass to `fmnes.integrations.jax`: before anything is compiled.

Values are looked at only where they are known: of what a `jit` or `vmap` traces only shapes are checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fmnes.arguments import check_number
from fmnes.backends import Array
from fmnes.errors import ArgumentError
from fmnes.parameters import Categorical, Parameter
from fmnes.strategies import Strategy

X64 = 'jax.config.update("jax_enable_x64", True) before any array is made'


def check_start(x0: Any, sigma0: Any, batch: int | None = None) -> tuple[Array, Array]:
    """x0 and sigma0 as arrays of one dtype; with `batch`, (batch, d) and (batch,)."""
    _refuse_parameters(x0)
    if sigma0 is None:
        raise ArgumentError("sigma0: found None, wanted about the distance from x0 to the optimum")
    x0, sigma0 = _floats("x0", x0), _floats("sigma0", sigma0)
    sigma0 = sigma0.astype(x0.dtype)
    wanted = "a vector (d,)" if batch is None else f"(d,), or ({batch}, d) for a start of each run"
    if x0.ndim not in ((1,) if batch is None else (1, 2)) or x0.shape[-1] == 0:
        hint = f"; several starts want batch={x0.shape[0]}" if batch is None and x0.ndim == 2 else ""
        raise ArgumentError(f"x0: found shape {x0.shape}, wanted {wanted}{hint}")
    if x0.ndim == 2 and x0.shape[0] != batch:
        raise ArgumentError(f"x0: found {x0.shape[0]} starts for {batch} runs, wanted {wanted}")
    if sigma0.shape not in ((), (batch,)):
        wanted = "a number" if batch is None else f"a number, or ({batch},) for one of each run"
        raise ArgumentError(
            f"sigma0: found shape {sigma0.shape}, wanted {wanted} (for coordinates of different scale "
            "minimise lambda y: fun(scale * y))"
        )
    if batch is not None:
        x0 = jnp.broadcast_to(x0, (batch, x0.shape[-1]))
        sigma0 = jnp.broadcast_to(sigma0, (batch,))
    with jax.ensure_compile_time_eval():  # known values are checked inside a user's `jit`, too
        if _known(x0) and not bool(jnp.isfinite(x0).all()):
            raise ArgumentError("x0: found NaN or infinite entries, wanted finite numbers")
        if _known(sigma0) and not bool((jnp.isfinite(sigma0) & (sigma0 > 0)).all()):
            raise ArgumentError(f"sigma0: found {sigma0}, wanted a positive finite number")
        if _known(x0) and _known(sigma0) and bool((x0 + sigma0[..., None] == x0).any()):
            raise ArgumentError(
                f"sigma0: found {sigma0}, too small to change some coordinate of x0 in {x0.dtype}; "
                f"wanted about the distance to the optimum{_more_digits(x0.dtype)}"
            )
    return x0, sigma0


def check_key(key: Any) -> None:
    dtype = getattr(key, "dtype", None)
    typed = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    if not (typed and key.shape == ()) and not (dtype == np.uint32 and key.ndim == 1):
        found = f"shape {key.shape} of {dtype}" if dtype is not None else repr(key)
        raise ArgumentError(f"key: found {found}, wanted one key, such as jax.random.key(0)")


def check_told(z: Array, f: Array, d: int, mirrored: bool) -> None:
    if z.ndim != 2 or z.shape[1] != d:
        raise ArgumentError(f"z: found shape {z.shape}, wanted (draws, {d}) as ask returned it")
    lam = 2 * z.shape[0] if mirrored else z.shape[0]
    if f.shape != (lam,):
        raise ArgumentError(
            f"f: found shape {f.shape}, wanted ({lam},), one value for each point that ask returned"
        )


def check_target(target: Any, dtype: Any, batch: int | None) -> Array:
    """−inf for none; with `batch`, (batch,)."""
    if target is None:
        target = -jnp.inf
    elif not hasattr(target, "shape") or target.shape == ():
        target = check_number("target", float(target) if hasattr(target, "shape") else target)
    values = jnp.asarray(target, dtype)
    if values.shape not in ((), (batch,)):
        wanted = "a number" if batch is None else f"a number, or ({batch},) for one of each run"
        raise ArgumentError(f"target: found shape {values.shape}, wanted {wanted}")
    if bool(jnp.isnan(values).any()):
        raise ArgumentError("target: found NaN, wanted numbers")
    eps = float(jnp.finfo(dtype).eps)
    smallest = float(jnp.abs(values).min())
    if dtype == jnp.float32 and 0 < smallest < eps:
        warnings.warn(
            f"target: found {smallest:g} with float32, which holds 7 digits: unless the optimum lies at 0, "
            f"values below about {eps:.0e} of the function's scale are rounding{_more_digits(dtype)}",
            RuntimeWarning,
            stacklevel=3,
        )
    return values if batch is None else jnp.broadcast_to(values, (batch,))


def check_budget(max_evaluations: Any) -> Array:
    checked = check_number("max_evaluations", max_evaluations, above=0, whole=True)
    integer = jnp.asarray(0).dtype
    most = int(jnp.iinfo(integer).max) // 2
    if checked is None or checked > most:
        raise ArgumentError(
            f"max_evaluations: found {max_evaluations}, wanted a whole number of at most {most}"
        )
    return jnp.asarray(checked, integer)


def check_ftol(ftol: float | None, dtype: Any) -> Array:
    """−1 for none. Values that differ by less than their rounding are equal, whatever was asked for."""
    if check_number("ftol", ftol, above=0) is None:
        return jnp.asarray(-1.0, dtype)
    return jnp.asarray(max(ftol or 0.0, 2 * float(jnp.finfo(dtype).eps)), dtype)


def check_chunk(draws_at_once: Any, draws: int) -> int | None:
    chunk = check_number("draws_at_once", draws_at_once, above=0, whole=True)
    if chunk is not None and draws % chunk:
        raise ArgumentError(f"draws_at_once: found {chunk}, wanted a divisor of the {draws} draws")
    return None if chunk is None or chunk == draws else int(chunk)


def check_varied(
    strategy: Strategy, vary: Mapping[str, Any] | None, dtype: Any, batch: int | None
) -> dict[str, Array]:
    """Settings that differ between runs, (batch,) each."""
    checked = {}
    for name, values in (vary or {}).items():
        array = jnp.asarray(values, dtype)
        numeric = [f.name for f in fields(strategy) if isinstance(getattr(strategy, f.name), float)]  # type: ignore[arg-type]
        if name not in numeric:
            raise ArgumentError(
                f"vary: found {name!r}, wanted a numeric setting of the method"
                + (f" ({', '.join(numeric)})" if numeric else f", but {strategy.name!r} has none")
                + "; x0, sigma0 and target take one value a run themselves"
            )
        if batch is None or array.shape != (batch,):
            raise ArgumentError(f"vary: found shape {array.shape} for {name!r}, wanted ({batch or 'batch'},)")
        for value in {float(v) for v in np.asarray(array)}:
            replace(strategy, **{name: value})  # type: ignore[type-var]  # its own checks
        checked[name] = array
    return checked


def check_objective(fun: Callable[[Array], Array], d: int, dtype: str) -> None:
    if not callable(fun):
        raise ArgumentError(f"fun: found {fun!r}, wanted a function of one point")
    try:
        # Wrapped in a function: JAX keeps weak references, which some callables do not allow.
        out = jax.eval_shape(lambda x: fun(x), jax.ShapeDtypeStruct((d,), dtype))
    except (TypeError, IndexError, jax.errors.UnexpectedTracerError) as error:
        ours = (jax.errors.JAXTypeError, jax.errors.JAXIndexError, jax.errors.UnexpectedTracerError)
        if not isinstance(error, ours) and "immutable" not in str(error):
            raise  # the objective's own mistake
        reason = str(error).strip().splitlines()[0]
        raise ArgumentError(
            f"fun: found a function that JAX cannot trace ({type(error).__name__}: {reason}); wanted one "
            "written with jax.numpy and without Python decisions on values. Any other function goes to "
            "fmnes.minimize(fun, x0, sigma0), or fmnes.minimize(..., vectorized=True) if it takes (n, d)"
        ) from error
    if not hasattr(out, "shape") or out.shape != () or out.dtype.kind not in "fiu":
        found = f"shape {out.shape} of {out.dtype}" if hasattr(out, "shape") else f"{out!r}"
        raise ArgumentError(
            f"fun: found an output of {found} for one point ({d},), wanted one real number; run itself maps "
            "it over points"
        )


def _floats(argument: str, found: Any) -> Array:
    try:
        array = found if hasattr(found, "dtype") else np.asarray(found)
        if array.dtype.kind not in "fiu":
            raise TypeError
    except (TypeError, ValueError):
        raise ArgumentError(f"{argument}: found {found!r}, wanted real numbers") from None
    if array.dtype.kind in "iu":
        array = jnp.asarray(array, jnp.asarray(0.0).dtype)
    array = jnp.asarray(array)
    if array.dtype not in (jnp.float32, jnp.float64):
        raise ArgumentError(f"{argument}: found {array.dtype}, wanted float32 or float64")
    return array


def _refuse_parameters(x0: Any) -> None:
    """Refuse named parameters and categories, which are no array of numbers."""
    named = isinstance(x0, Mapping)
    parameters = list(x0.items()) if isinstance(x0, Mapping) else list(enumerate(_entries(x0)))
    for name, parameter in parameters:
        if isinstance(parameter, Categorical):
            raise ArgumentError(
                f"x0: found the categorical parameter {name!r}; compiled runs search arrays of real numbers "
                "only. Use fmnes.minimize(fun, space), or a compiled run for each choice"
            )
    if named or any(isinstance(parameter, Parameter) for _, parameter in parameters):
        raise ArgumentError(
            "x0: found parameters; compiled runs take an array of real numbers (d,). Use "
            "fmnes.minimize(fun, space), which also has ranges, whole numbers and categories"
        )


def _entries(x0: Any) -> Sequence[Any]:
    return x0 if isinstance(x0, (list, tuple)) else ()


def _known(array: Array) -> bool:
    return not isinstance(array, jax.core.Tracer)


def _more_digits(dtype: Any) -> str:
    if dtype == jnp.float64:
        return ""
    if jax.config.jax_enable_x64:
        return "; for 16 digits pass x0 as float64"
    return f"; for 16 digits call {X64} and pass x0 as float64"
