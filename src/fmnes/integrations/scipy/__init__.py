"""Our methods where SciPy's users are: a method of `scipy.optimize.minimize`, and a neighbour of
`differential_evolution`.

    from scipy.optimize import minimize
    from fmnes.integrations.scipy import evolution_strategy, fmnes

    minimize(fun, x0, method=fmnes, bounds=bounds, options={"sigma0": 0.5})
    evolution_strategy(fun, bounds, workers=4)

Both return SciPy's OptimizeResult, in which an evaluation that failed is counted and explained.
"""

from fmnes.errors import MissingExtra

try:
    import scipy.optimize  # noqa: F401
except ImportError as error:
    raise MissingExtra("fmnes.integrations.scipy", "scipy") from error

from fmnes.integrations.scipy.calls import evolution_strategy, fmnes

__all__ = ["evolution_strategy", "fmnes"]
