"""The names that other libraries have for our options, and what to write here instead."""

from __future__ import annotations

from collections.abc import Container

#: (an option of ours, other names for it, what is wanted); for functions that have the option.
_HABITS = (
    ("sigma", ("step",), "sigma= (how far to look at first) or multiple_of= (the width of its steps)"),
    ("lower", ("low", "lb", "min"), "lower="),
    ("upper", ("high", "ub", "max"), "upper="),
    ("log", ("scale", "log_scale", "logarithmic"), "log=True for a log scale"),
    # Of an Integer: a Real has both.
    ("lower", ("log",), "fmnes.Real(1, 12, log=True), which the simulation rounds"),
    ("lower", ("multiple_of",), "fmnes.Real(0, 12, multiple_of=2)"),
    (
        "names",
        ("scales",),
        "names= alone: a scale is the parameter's, such as {'k': fmnes.Real(0.1, 10, log=True)}",
    ),
    ("rng", ("seed", "random_state", "random_seed"), "rng= (a seed, or a NumPy Generator)"),
    (
        "max_evaluations",
        ("maxfev", "maxfun", "maxfevals", "max_nfev", "max_evals", "budget", "n_calls", "n_trials"),
        "max_evaluations=",
    ),
    (
        "max_evaluations",
        ("maxiter", "max_iter", "maxit", "niter", "n_iter", "iterations", "max_iterations", "generations"),
        "max_evaluations= (it counts evaluations; a generation has population_size of them)",
    ),
    ("max_seconds", ("maxtime", "max_time", "time_limit"), "max_seconds="),
    ("target", ("ftarget", "f_target", "f_min", "stopval"), "target="),
    ("xtol", ("tol", "xatol", "tolx"), "xtol= (of the steps) or ftol= (of the values)"),
    ("ftol", ("fatol", "tolfun"), "ftol="),
    ("population_size", ("popsize", "pop_size", "lam", "lambda_"), "population_size="),
    ("sigma0", ("sigma", "step", "stepsize", "step_size", "std"), "sigma0= (how far to look at first)"),
    ("x0", ("mean", "start", "initial", "guess"), "x0="),
    (
        "x0",
        ("space", "search_space", "parameters", "params", "dimensions"),
        "them in the place of x0, such as {'width': fmnes.Real(0.1, 10)}",
    ),
    ("integers", ("integrality",), "integers="),
    ("workers", ("n_jobs", "processes", "num_workers", "max_workers"), "workers= (-1: one for each core)"),
    (
        "progress",
        ("verbose", "disp", "display", "verbosity"),
        "progress=True; the logger 'fmnes' of Python's logging says more",
    ),
    ("method", ("algorithm", "strategy", "optimizer", "solver"), "method="),
    (
        "method",
        ("options",),
        "each by itself, such as max_evaluations=1000, or a method's own as method=fmnes.CMAES(...)",
    ),
    (
        "fun",
        ("args", "kwargs", "fargs"),
        "a function of x alone: lambda x: fun(x, a, b), or functools.partial(fun, b=...)",
    ),
    ("fun", ("constraints", "constraint"), "fun to raise fmnes.Infeasible where one is violated"),
    ("fun", ("jac", "hess", "hessp", "gradient"), "fun alone: no derivatives are used"),
    ("fun", ("maximize", "direction"), "fun to return what is to be minimised, such as -value"),
)


def wanted_instead(name: str, known: Container[str]) -> str:
    """What to write for an option that is not among the known ones; empty if it is nobody's habit."""
    for ours, others, wanted in _HABITS:
        if name in others and ours in known:
            return wanted
    return ""
