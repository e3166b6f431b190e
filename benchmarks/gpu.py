"""The JAX side, measured: one script, one table.

    python benchmarks/gpu.py --out gpu               writes gpu.json and gpu.md
    python benchmarks/gpu.py --only b --time-box 300
    python benchmarks/gpu.py --toy                   the same at toy size, for a CPU

Sections, as given to --only:

    a   the device, the versions, the bandwidth of a copy
    b   CR-FM-NES in float32 on the sphere: a generation in the compiled loop, beside the floors (the draws
        alone; the bytes that must move), evosax's CR_FM_NES and our NumPy path (float64)
    c   many FM-NES runs on Rosenbrock in one batch against the NumPy path, one run after another; then the
        time a generation of such batches takes, by dimension and number of runs
    d   compiled FM-NES on a CPU against the NumPy path: time per evaluation

evosax is used where it is on the path. Of flax it needs `struct` alone, so a stand-in takes flax's place
where that is not installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import math
import platform
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fmnes
from fmnes.integrations import jax as fj
from fmnes.integrations.jax.draws import normal
from fmnes.strategies import METHODS
from fmnes_bench.speed import default_population_size


def sphere(x: Any) -> Any:
    return (x * x).sum(-1)


class Table:
    """Rows, shown as they come."""

    def __init__(self, deadline: float) -> None:
        self.rows: list[dict[str, Any]] = []
        self._deadline = deadline
        print("| section | case | value | unit | beside |\n|---|---|---|---|---|", flush=True)

    def add(self, section: str, case: str, value: Any, unit: str = "", beside: str = "") -> None:
        row = {"section": section, "case": case, "value": value, "unit": unit, "beside": beside}
        self.rows.append(row)
        print(as_line(row), flush=True)

    def late(self, section: str, case: str) -> bool:
        if time.monotonic() < self._deadline:
            return False
        self.add(section, case, "skipped", "", "out of time")
        return True


def as_line(row: dict[str, Any]) -> str:
    value = row["value"]
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"| {row['section']} | {row['case']} | {shown} | {row['unit']} | {row['beside']} |"


def use_float64(on: bool) -> None:
    jax.config.update("jax_enable_x64", on)


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """The shortest of a few; the first call, which compiles, does not count."""
    jax.block_until_ready(work())
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(work())
        best = min(best, time.perf_counter() - start)
    return best


def per_generation(work: Callable[[int], Any], generations: int) -> float:
    """Milliseconds; what a loop costs once, whatever its length, is taken off."""
    few, many = max(1, generations // 4), generations
    return (seconds(lambda: work(many)) - seconds(lambda: work(few))) / (many - few) * 1e3


# -- a: the machine ---------------------------------------------------------------------------------------


def machine(table: Table, toy: bool) -> float:
    """Returns the bandwidth of a copy, in bytes a second."""
    use_float64(False)
    device = jax.devices()[0]
    table.add("a", "device", f"{device.platform}: {device.device_kind}")
    table.add("a", "versions", f"fmnes {fmnes.__version__}, jax {jax.__version__}, numpy {np.__version__}")
    table.add("a", "python", f"{platform.python_version()} on {platform.machine()}")
    x = jnp.zeros(2**22 if toy else 2**28, jnp.float32)
    copies = 20
    loop = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda _, y: y + 1, x))
    time_each = per_generation(lambda n: loop(x, n), copies) / 1e3
    bandwidth = 2 * x.nbytes / time_each
    table.add("a", "copy, read and write", bandwidth / 1e9, "GB/s", f"{x.nbytes / 2**20:.0f} MiB")
    return bandwidth


# -- b: CR-FM-NES in high dimension -----------------------------------------------------------------------


#: d and λ.
SIZES = ((10**4, 32), (10**5, 32), (10**6, 32), (10**7, 32), (10**8, 8))
TOY_SIZES = ((10**3, 8),)


def high_dimension(table: Table, toy: bool, bandwidth: float) -> None:
    use_float64(False)
    if "cr-fm-nes" not in METHODS:
        table.add("b", "CR-FM-NES", "not available")
        return
    for d, lam in TOY_SIZES if toy else SIZES:
        case = f"d = {d:.0e}, λ = {lam}"
        if table.late("b", case):
            return
        generations = 20 if toy else max(8, min(400, 4 * 10**8 // d))
        floors(table, case, d, lam, generations, bandwidth)
        ours = compiled_cr_fm_nes(table, case, d, lam, generations)
        if d <= 10**7 and not table.late("b", f"{case}: evosax"):
            evosax(table, case, d, lam, generations, ours)
        if d <= 10**7 and not table.late("b", f"{case}: NumPy"):
            numpy_cr_fm_nes(table, case, d, lam, ours)


def floors(table: Table, case: str, d: int, lam: int, generations: int, bandwidth: float) -> None:
    key = jax.random.key(0)

    def timed(draw: Callable[..., Any]) -> float:
        def body(i: Any, total: Any) -> Any:
            return total + draw(jax.random.fold_in(key, i), (lam // 2, d), jnp.float32).sum()

        loop = jax.jit(lambda n: jax.lax.fori_loop(0, n, body, jnp.float32(0)))
        return per_generation(loop, generations)

    table.add("b", f"{case}: jax.random.normal alone, not kept", timed(jax.random.normal), "ms")
    table.add("b", f"{case}: our draws alone, written and read once", timed(normal), "ms")
    # The draws are written once and, their weights being known only after the evaluations, read once at the
    # least; five vectors of state (m, D, v, p_σ, p_c) are read and written.
    moved = 4 * d * (2 * (lam // 2) + 2 * 5)
    table.add("b", f"{case}: bytes over bandwidth", moved / bandwidth * 1e3, "ms", f"{moved / 1e9:.2f} GB")


def compiled_cr_fm_nes(table: Table, case: str, d: int, lam: int, generations: int) -> float:
    x0, key = jnp.full(d, 3.0, jnp.float32), jax.random.key(1)

    def run(n: int) -> Any:
        options: dict[str, Any] = {"method": "cr-fm-nes", "population_size": lam, "xtol": None, "ftol": None}
        return fj.run(sphere, x0, 2.0, key=key, max_evaluations=n * lam, **options).fun

    start = time.perf_counter()
    jax.block_until_ready(run(1))
    table.add("b", f"{case}: compiling", time.perf_counter() - start, "s")
    ours = per_generation(run, generations)
    table.add("b", f"{case}: fmnes, compiled", ours, "ms", f"{generations} generations")
    return ours


def evosax(table: Table, case: str, d: int, lam: int, generations: int, ours: float) -> None:
    CR_FM_NES = find_evosax()
    if CR_FM_NES is None:
        table.add("b", f"{case}: evosax", "not available")
        return
    x0, key = jnp.full(d, 3.0, jnp.float32), jax.random.key(1)
    algorithm = CR_FM_NES(population_size=lam, solution=x0)
    params = algorithm.default_params
    params = dataclasses.replace(params, std_init=2.0)
    state = algorithm.init(key, x0, params)
    typed = jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), state)

    @jax.jit
    def loop(state: Any, n: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            k = jax.random.fold_in(key, i)
            x, state = algorithm.ask(k, state, params)
            state, _ = algorithm.tell(k, x, jax.vmap(sphere)(x), state, params)
            return state

        return jax.lax.fori_loop(0, n, body, state).best_fitness

    theirs = per_generation(lambda n: loop(typed, n), generations)
    table.add("b", f"{case}: evosax, compiled", theirs, "ms", f"{theirs / ours:.1f} × ours")


def numpy_cr_fm_nes(table: Table, case: str, d: int, lam: int, ours: float) -> None:
    opt = fmnes.Optimizer(np.full(d, 3.0), 2.0, method="cr-fm-nes", population_size=lam, rng=1)
    for _ in range(2):  # the first one warms up
        start = time.perf_counter()
        opt.tell(sphere(opt.ask()))
        taken = (time.perf_counter() - start) * 1e3
    table.add("b", f"{case}: fmnes, NumPy", taken, "ms", f"{taken / ours:.0f} × compiled")


def find_evosax() -> Any:
    """evosax's CR_FM_NES, or None; its other algorithms, and what they import, are not loaded."""
    try:
        root = Path(str(importlib.import_module("evosax").__file__)).parent
        try:
            importlib.import_module("flax.struct")
        except ImportError:
            sys.modules["flax"] = flax = types.ModuleType("flax")
            sys.modules["flax.struct"] = flax.struct = types.ModuleType("flax.struct")  # type: ignore[attr-defined]
            flax.struct.dataclass = struct_dataclass  # type: ignore[attr-defined]
        for name in ("algorithms", "algorithms.distribution_based", "core"):
            package = types.ModuleType(f"evosax.{name}")
            package.__path__ = [str(root / name.replace(".", "/"))]
            sys.modules.setdefault(package.__name__, package)
        return importlib.import_module("evosax.algorithms.distribution_based.cr_fm_nes").CR_FM_NES
    except ImportError:
        return None


def struct_dataclass(cls: Any) -> Any:
    """What flax.struct.dataclass does, as far as evosax needs it."""
    made = dataclasses.dataclass(frozen=True)(cls)
    names = [field.name for field in dataclasses.fields(made)]
    return jax.tree_util.register_dataclass(made, data_fields=names, meta_fields=[])


# -- c: many runs at once ---------------------------------------------------------------------------------


def many_runs(table: Table, toy: bool, runs: int) -> None:
    use_float64(True)
    d, lam = (6, 10) if toy else (40, 16)
    problem = fmnes.problems.get("rosenbrock", d=d)
    options: dict[str, Any] = {
        "method": "fm-nes", "population_size": lam, "target": 1e-10, "max_evaluations": 200_000,
    }  # fmt: skip
    case = f"Rosenbrock d = {d}, λ = {lam}"

    def batch(seed: int) -> Any:
        key = jax.random.key(seed)
        return fj.run(problem.fun, problem.x0, problem.sigma0, key=key, batch=runs, **options)

    start = time.perf_counter()
    jax.block_until_ready(batch(0))
    first = time.perf_counter() - start
    start = time.perf_counter()
    result = jax.block_until_ready(batch(1))
    taken = time.perf_counter() - start
    table.add("c", f"{case}: {runs} runs in one batch", taken, "s", f"{first - taken:.1f} s to compile")
    rate = runs / taken
    table.add(
        "c", f"{case}: batch", rate, "runs/s", f"{taken / int(result.nit.max()) * 1e3:.3f} ms a generation"
    )
    reached = np.asarray(result.fun) <= 1e-10
    nfev = np.asarray(result.nfev)[reached]
    table.add(
        "c", f"{case}: evaluations, batch", *spread(nfev), f"{reached.sum()} of {runs} reached the target"
    )

    if table.late("c", "NumPy"):
        return
    single: list[int] = []
    box, start, done = (1.0 if toy else 60.0), time.perf_counter(), 0
    while time.perf_counter() - start < box:
        count: Any = {"vectorized": True, "evaluate_start": False, "second_look": False}  # as compiled
        one = fmnes.minimize(problem.fun, problem.x0, problem.sigma0, rng=done, **count, **options)
        single += [one.nfev] if one.success else []
        done += 1
    per_core = done / (time.perf_counter() - start)
    table.add(
        "c", f"{case}: evaluations, NumPy", *spread(np.array(single)), f"{len(single)} of {done} reached it"
    )
    table.add("c", f"{case}: NumPy, one core", per_core, "runs/s", f"{done} runs")
    table.add("c", f"{case}: batch over NumPy on two cores", rate / (2 * per_core), "×")


def batches(table: Table, toy: bool) -> None:
    use_float64(True)
    generations = 20 if toy else 200
    for d in (10,) if toy else (10, 40, 100):
        for runs in (10,) if toy else (100, 1000, 10_000):
            case = f"Rosenbrock d = {d}, {runs} runs in one batch"
            if table.late("c", case):
                return
            taken = generation_of_a_batch(fmnes.problems.get("rosenbrock", d=d), runs, generations)
            table.add("c", case, taken, "ms a generation", f"{taken / runs * 1e3:.2f} µs a run")


def generation_of_a_batch(problem: Any, runs: int, generations: int) -> float:
    lam = default_population_size(problem.d)
    options: dict[str, Any] = {
        "method": "fm-nes", "population_size": lam, "xtol": None, "ftol": None, "batch": runs,
    }  # fmt: skip

    def run(n: int) -> Any:
        key = jax.random.key(1)
        budget = n * lam
        return fj.run(problem.fun, problem.x0, problem.sigma0, key=key, max_evaluations=budget, **options).fun

    return per_generation(run, generations)


def spread(nfev: Any) -> tuple[str, str]:
    return (f"{nfev.mean():.0f} ± {nfev.std():.0f}" if len(nfev) else "none"), "mean ± sd"


# -- d: on a CPU ------------------------------------------------------------------------------------------


def on_a_cpu(table: Table, toy: bool) -> None:
    use_float64(True)
    generations = 20 if toy else 2000
    with jax.default_device(jax.devices("cpu")[0]):
        for name in ("rosenbrock", "ic-rosenbrock"):
            for d in (10,) if toy else (10, 20, 40):
                case = f"{name} d = {d}"
                if table.late("d", case):
                    return
                compare_on_cpu(table, case, fmnes.problems.get(name, d=d), generations)


def compare_on_cpu(table: Table, case: str, problem: Any, generations: int) -> None:
    lam = default_population_size(problem.d)
    options: dict[str, Any] = {
        "method": "fm-nes", "population_size": lam, "max_evaluations": generations * lam,
        "xtol": None, "ftol": None,
    }  # fmt: skip
    start, sigma0 = problem.x0, problem.sigma0

    def numpy() -> Any:
        count: Any = {"vectorized": True, "evaluate_start": False, "second_look": False}
        return fmnes.minimize(problem.fun, start, sigma0, rng=1, **count, **options).nfev

    def compiled() -> Any:
        return fj.run(problem.fun, start, sigma0, key=jax.random.key(1), **options).nfev

    # In turns, so that a change in the machine's load meets both.
    times: dict[Any, list[float]] = {numpy: [], compiled: []}
    for _ in range(3):
        for work in times:
            times[work].append(seconds(work, 1) / int(work()) * 1e6)
    ours, theirs = min(times[compiled]), min(times[numpy])
    table.add("d", f"{case}, λ = {lam}: compiled", ours, "µs/evaluation", f"{ours / theirs:.2f} × NumPy")
    table.add("d", f"{case}, λ = {lam}: NumPy", theirs, "µs/evaluation")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--toy", action="store_true", help="sizes for a CPU, half a minute in all")
    parser.add_argument("--only", default="abcd", help="sections, such as ab")
    parser.add_argument("--runs", type=int, help="runs in section c's batch (1000; toy 20)")
    parser.add_argument("--time-box", type=float, default=540.0, help="seconds after which no part is begun")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    args = parser.parse_args()

    table = Table(time.monotonic() + args.time_box)

    def save() -> None:
        if args.out is None:
            return
        command = "python " + " ".join(["benchmarks/gpu.py", *sys.argv[1:]])
        content = {"command": command, "rows": table.rows}
        args.out.with_suffix(".json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        lines = [f"`{command}`", "", "| section | case | value | unit | beside |", "|---|---|---|---|---|"]
        args.out.with_suffix(".md").write_text("\n".join([*lines, *map(as_line, table.rows)]) + "\n")

    bandwidth = machine(table, args.toy)
    parts: dict[str, Callable[[], None]] = {
        "b": lambda: high_dimension(table, args.toy, bandwidth),
        "c": lambda: (
            many_runs(table, args.toy, args.runs or (20 if args.toy else 1000)),
            batches(table, args.toy),
        ),
        "d": lambda: on_a_cpu(table, args.toy),
    }
    for section, part in parts.items():
        save()
        if section in args.only and not table.late(section, "all"):
            try:
                part()
            except Exception as error:
                # One section that does not fit must not lose the others' numbers.
                table.add(section, "failed", f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
    save()


if __name__ == "__main__":
    main()
