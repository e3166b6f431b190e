"""`fmnes bench few`: its problems, its peers, what it measures, its rows and its page."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fmnes import ArgumentError, FmnesError, minimize
from fmnes.cli import app
from fmnes_bench import peers
from fmnes_bench.few import few, problems, report
from fmnes_bench.few import rows as few_rows
from fmnes_bench.few.problems import REAL, SUITES, Case, Problem, cases_of, open_problem
from fmnes_bench.few.rows import (
    CHECKPOINTS,
    Key,
    Recorder,
    Row,
    as_line,
    from_line,
    open_rows,
    read_rows,
    run_row,
)
from fmnes_bench.peers import PEERS, Finished, Start
from tests.reference import few_problems
from tests.rows import through

ROOT = Path(__file__).parents[2]
SPHERE = Case("shared", "sphere", 2, 8)


# -- problems ---------------------------------------------------------------------------------------------


@through("name", problems.FORMULAS)
def test_a_shared_problem_is_its_formula_bit_for_bit(name: str) -> None:
    for d in (2, 3, 5, 10, 20):
        for instance in (0, 8):
            fun, x0, lower, upper = problems.make(name, d, instance)
            other, *ends = few_problems.get(name, d, instance)
            for mine, theirs in zip((x0, lower, upper), ends, strict=True):
                assert np.array_equal(mine, theirs)
            rng = np.random.default_rng(d)
            size = 10.0 ** rng.uniform(-6, 0.3, (200, 1))
            points = np.vstack(
                [x0 + size * rng.normal(size=(200, d)), rng.uniform(lower - 0.1, upper, (50, d))]
            )
            values = [fun(x) for x in points]
            np.testing.assert_array_equal(values, [other(x) for x in points])
            assert np.isfinite(fun(x0)) and np.isfinite(values).sum() > 10 and np.nanmin(values) >= 0


def test_shared_problems_are_those_that_were_written_down() -> None:
    """Values on which no rotation, and so no LAPACK, has an influence."""
    fun, x0, _, _ = problems.make("sphere", 2, 8)
    c = np.random.default_rng([sum(map(ord, "sphere")), 2, 8]).uniform(-2, 2, 2)
    assert fun(c) == 0 and fun(c + 1) == pytest.approx(2) and fun(x0) > 0
    assert list(problems.FORMULAS)[:3] == ["sphere", "rell", "rosen"] and len(problems.FORMULAS) == 12


@through("name", {**problems.HIDDEN, **problems.BOXES})
def test_the_optimum_of_a_hidden_constraint_problem(name: str) -> None:
    made = {**problems.HIDDEN, **problems.BOXES}[name]()
    # The slabs of problem 1 are closed, so its optimum is approached and not reached.
    at = made.at + (np.r_[-1e-9, np.full(4, -1e-9)] if name == "muller-1" else 0)
    assert made.fun(at) == pytest.approx(made.optimum, abs=1e-6)
    rng = np.random.default_rng(0)
    far = rng.uniform(made.lower, made.upper, (20_000, made.d))
    near = np.clip(
        at + 10.0 ** rng.uniform(-6, 0, (20_000, 1)) * rng.normal(size=far.shape), made.lower, made.upper
    )
    values = np.array([made.fun(x) for x in np.vstack([far, near])])
    assert np.nanmin(values) >= made.optimum - 1e-12
    share = np.isfinite(values[:20_000]).mean()
    expected = {"gelbart": 0.69, "muller-1": 0.3, "muller-2": 0.63, "muller-8": 0.27}
    expected |= {"0.1 %": 0.1**3, "0.24 %": 0.3**5, "1.6 %": 0.25**3}
    assert share == pytest.approx(expected[name], abs=4 * math.sqrt(expected[name] / 20_000))


@through("suite", [suite for suite in SUITES if suite != "real"])
def test_every_problem_of_a_suite_opens_and_its_start_works(suite: str) -> None:
    if suite == "bbob":
        pytest.importorskip("cocoex")
    cases = cases_of(suite, [2, 3], [8])
    assert len({case.problem for case in cases}) == len(SUITES[suite].names)
    for case in cases:
        with open_problem(case) as problem:
            start = problem.start
            assert len(start.x0) == case.d and problem.scale > 0
            assert (start.lower <= start.x0).all() and (start.x0 <= start.upper).all()
            assert (
                not start.known or np.isfinite(problem.fun(start.x0)) or case.problem.startswith("uncertain")
            )
        assert SUITES[suite].budget(case.problem) in CHECKPOINTS or suite == "boxes"


def test_the_real_problems_have_the_dimensions_that_are_said() -> None:
    pytest.importorskip("benchmarks.real.tasks")
    for name in ("lens", "double-gauss"):
        with open_problem(Case("real", name, REAL[name], 1)) as problem:
            assert len(problem.start.x0) == REAL[name]
            assert problem.fun(problem.start.x0) == problem.scale
            assert math.isnan(problem.fun(problem.start.upper))


# -- peers ------------------------------------------------------------------------------------------------


@through("method", PEERS)
def test_every_peer_searches_keeps_to_the_budget_and_repeats(method: str) -> None:
    if not peers.is_installed(method):
        pytest.skip(f"{method} is not installed")
    budget = 5 if method in ("smac", "optuna-gp") else 15
    found = [run_row(Case("shared", "active1", 2, 0), method, budget) for _ in range(2)]
    assert found[0]._replace(milliseconds=0) == found[1]._replace(milliseconds=0)
    row = found[0]
    assert 0 < row.evaluations <= budget * 2 and row.failed < row.evaluations and row.working
    assert len(row.gaps) == sum(c <= budget for c in CHECKPOINTS)


@through("method", ["cobyqa", "nomad", "pybads", "cma-lq"])
def test_a_peer_without_a_known_start_finds_a_working_point(method: str) -> None:
    if not peers.is_installed(method):
        pytest.skip(f"{method} is not installed")
    row = run_row(Case("boxes", "1.6 %", 3, 8), method, 100)
    assert row.working and row.failed > 10 and (row.regret(100) or 1) < 1


@through("method", ["cobyqa", "nomad"])
def test_a_peer_that_has_converged_is_restarted_until_the_budget_is_spent(method: str) -> None:
    if not peers.is_installed(method):
        pytest.skip(f"{method} is not installed")
    points: list[np.ndarray] = []

    def evaluate(x: np.ndarray) -> np.ndarray:
        if len(points) >= 600:
            raise Finished
        points.extend(x)
        return (x**2).sum(1)

    start = Start(np.ones(2), np.ones(2), np.full(2, -3.0), np.full(2, 3.0), True, np.zeros(2, dtype=bool))
    with contextlib.suppress(Finished):
        PEERS[method].run(evaluate, start, 600, 3)
    assert len(points) == 600
    assert np.abs(np.array(points[-300:])).max() > 0.5  # it left the optimum that it had found


def test_methods_that_cannot_run_are_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="did you mean 'cobyqa'"):
        few(methods=["cobyca"])
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match="'pybads', which is not installed: pip install pybads"):
        few(methods=["pybads"])
    for wrong in ({"suites": ["share"]}, {"dimensions": [1]}, {"budget": 0}, {"budget": 10**6}):
        with pytest.raises(ArgumentError):
            few(**wrong)


def test_the_default_runs_without_its_surrogate_and_surrogate_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed: list[bool] = []

    def with_surrogate(fun: Any, *, surrogate: bool, **options: Any) -> Any:
        passed.append(surrogate)
        return minimize(fun, **options)

    monkeypatch.setattr(peers, "minimize", with_surrogate)
    for method in ("afm-nes", "surrogate"):
        few_rows.check_method(method)
        assert run_row(SPHERE, method, 5).evaluations == 10
    assert passed == [False, True]


# -- what is measured -------------------------------------------------------------------------------------


def recorder(values: list[float], budget: int, suite: str = "shared") -> Recorder:
    """Of a problem of one parameter with the optimum 3, whose start has the value 103."""
    remaining = iter(values)
    one = np.ones(1)
    start = Start(one, one, -one, one, True, np.zeros(1, dtype=bool))
    problem = Problem(lambda x: next(remaining), start, 3.0, 100.0)
    return Recorder(problem, Key(Case(suite, "f1", 1, 1), "random", budget))


def test_the_row_by_hand() -> None:
    key = Key(Case("shared", "f1", 1, 1), "random", 10)
    found = recorder([math.nan, 103.0, math.inf, 53.0, 60.0, 3.05, 3.00001, 4.0, 4.0, 3.0], 10)
    values = found(np.zeros((10, 1)))
    assert np.isnan(values).tolist() == [i in (0, 2) for i in range(10)]
    row = found.row(key, 0.0)
    assert (row.evaluations, row.failed, row.working) == (10, 2, 2)
    assert row.gaps == (None, 100.0, 100.0, 50.0, pytest.approx(1e-5), 0.0)  # after 1, 2, 3, 5, 7 and 10
    assert row.hits == (6, 7, 10)  # 0.05, 1e-5 and 0 of 100
    assert row.failed_before == (2, 2, 2)
    assert [row.regret(c) for c in (1, 2, 5, 20)] == [1.0, 1.0, 0.5, None]
    assert found.finished
    with pytest.raises(Finished):
        found(np.zeros((1, 1)))


def test_a_run_ends_with_the_last_target_and_keeps_its_best_value() -> None:
    found = recorder([53.0, 3.0], 10)
    with pytest.raises(Finished):
        found(np.zeros((10, 1)))
    row = found.row(Key(Case("shared", "f1", 1, 1), "random", 10), 0.0)
    assert row.evaluations == 2 and row.gaps == (50.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    bbob = recorder([3.0 + 1e-4, 3.0 + 9e-5, 3.0], 10, "bbob")
    bbob(np.zeros((1, 1)))
    assert len(bbob.targets) == 30  # 1, … 10^-5.8 of 100: rounding keeps it above 1e-6
    bbob(np.zeros((2, 1)))
    assert bbob.finished and bbob.targets == [1] * 30 + [2]


def row_of(problem: str, method: str, regrets: dict[int, float], **fields: object) -> Row:
    """A row with a scale of 1; `regrets` by multiples of d, each lasting until the next."""
    gaps: list[float | None] = []
    last: float | None = None
    for c in CHECKPOINTS:
        if c <= 100:
            last = regrets.get(c, last)
            gaps.append(last)
    case = Case(str(fields.pop("suite", "shared")), problem, 2, int(str(fields.pop("instance", 8))))
    made = Row(Key(case, method, 100), 200, 20, 1, 0.0, 1.0, tuple(gaps), (None,) * 3, (), (), 1.0)
    return made._replace(**fields)


def test_means_by_hand() -> None:
    some = [row_of("sphere", "afm-nes", {10: 0.1, 50: 1e-6}), row_of("rell", "afm-nes", {10: 0.001})]
    assert report.mean_regret(some, 10) == pytest.approx(0.01)
    assert report.mean_regret(some, 50) == pytest.approx(math.sqrt(1e-4 * 1e-3))  # 1e-4 is the floor
    assert report.mean_regret(some, 5) == 1.0 and math.isnan(report.mean_regret(some, 200))
    hit = row_of("sphere", "afm-nes", {}, hits=(80, None, None))
    assert report.per_success([hit, some[0]], 0) == 280
    assert math.isinf(report.per_success([hit, some[0]], 1))
    # d = 2: reached with 2 evaluations, with 20 (10 d, where 50 d is all), and never.
    assert report.area(some[0]._replace(targets=(2, 20)), 100) == pytest.approx(1.5 / 31)


def test_the_page_by_hand() -> None:
    some = [
        row_of("sphere", "afm-nes", {10: 0.1}),
        row_of("sphere", "cobyqa", {10: 0.01}, hits=(70, 70, None)),
    ]
    some.append(row_of("rell", "cobyqa", {10: 0.01}))
    some.append(row_of("sphere", "afm-nes", {10: 0.5})._replace(key=Key(SPHERE, "afm-nes", 20)))  # shorter
    text = report.page(some, "few.svg")
    assert (
        "| 2 | `afm-nes`\\\\* | 1.0e-1 | 1.0e-1 |" in text or "| 2 | `afm-nes`\\* | 1.0e-1 | 1.0e-1 |" in text
    )
    assert "| 2 | `cobyqa` | **1.0e-2** |" in text and "| 50%, 270 | 50%, 270 | – | 10% | 1 | 2 |" in text
    assert "](few.svg)" in text and "## COCO" not in text
    assert "an extreme barrier" in text  # how it is called


def test_a_method_with_fewer_runs_stands_beside_ours_on_the_same_ones() -> None:
    some = [row_of(name, "surrogate", {10: regret}) for name, regret in (("sphere", 0.1), ("rell", 1e-3))]
    assert "with a star, each" not in report.page(some, None)
    text = report.page([*some, row_of("rell", "pybads", {10: 0.01})], None)
    table = text.partition("with a star, each")[2].splitlines()
    assert [line.partition(" | 1.0e-2 | ")[0] for line in table if "pybads" in line] == ["| 2 | `pybads`"]
    ours = [line for line in table[1:] if "surrogate" in line]
    assert ours == ["| 2 | `surrogate` | 1.0e-3 | 1.0e-3 | 1.0e-3 | 1.0e-3 | 1 |"]


def test_ratios_are_to_the_default() -> None:
    some = [
        row_of("sphere", method, {}, suite="search", hits=(n, None, None))
        for method, n in (("afm-nes", 100), ("cobyqa", 25))
    ]
    some += [
        row_of("cigar", method, {}, suite="search", hits=(n, None, None))
        for method, n in (("afm-nes", 10), ("cobyqa", 40))
    ]
    assert "| study | 2 | `cobyqa` | 1.00, 4.00 (cigar) |" in report.page(some, None)


def test_failed_evaluations_by_hand() -> None:
    """5 before a hit, and 20 in a run without one: 25 for a run that reaches the regret."""
    some = [
        row_of("active1", "afm-nes", {}, hits=(80, None, None), failed_before=(5, None, None)),
        row_of("active1", "afm-nes", {}, instance=9, failed_before=(None,) * 3),
    ]
    assert report.failed_per_success(some, 0) == 25 and math.isinf(report.failed_per_success(some, 1))
    # Not counted: a row without the numbers, and a problem on which nothing fails.
    more = [
        row_of("curved", "afm-nes", {}),
        row_of("sphere", "afm-nes", {}, failed=0, failed_before=(0, 0, 0)),
    ]
    assert "| 2 | `afm-nes` | 25 | – | – | 20 | 2 |" in report.page(some + more, None)


# -- rows -------------------------------------------------------------------------------------------------


def test_rows_are_kept_read_packed_and_not_made_again(tmp_path: Path) -> None:
    def again(methods: list[str], pack: bool = False) -> Path:
        return few(methods=methods, dimensions=[2], instances=[8], budget=5, jobs=1, out=tmp_path, pack=pack)

    page = again(["random"])
    file = tmp_path / "rows.jsonl"
    first = file.read_bytes()
    assert len(first.splitlines()) == 12 and page.name == "few.md"
    with file.open("ab") as opened:
        opened.write(b'{"suite":"sha')  # as if it had been killed while it wrote
    again(["random", "afm-nes"])
    assert file.read_bytes().startswith(first) and len(file.read_bytes().splitlines()) == 24
    kept = read_rows(file)
    text = page.read_text()
    again([], pack=True)
    packed = (tmp_path / "rows.jsonl.gz").read_bytes()
    assert not file.exists() and set(read_rows(file)) == set(kept) and page.read_text() == text
    again(["random"], pack=True)
    assert (tmp_path / "rows.jsonl.gz").read_bytes() == packed
    for row in kept[:3] + kept[-3:]:
        assert run_row(*row.key)._replace(milliseconds=0) == row._replace(milliseconds=0)


def test_a_row_and_its_line() -> None:
    row = row_of("f3", "cma-lq", {10: 0.1}, suite="bbob", targets=(4, 5), failed_before=(1, None, None))
    assert from_line(as_line(row)) == row
    short = row._replace(targets=(), failed_before=())
    assert (
        not {"targets", "failed_before"} & set(json.loads(as_line(short)))
        and from_line(as_line(short)) == short
    )


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(as_line(row_of("sphere", "random", {})) + "\nnonsense\n")
    with pytest.raises(FmnesError, match="line 2: found 'nonsense'"):
        open_rows(tmp_path / "rows.jsonl")


def test_the_command_line(tmp_path: Path) -> None:
    options = {"suite": "hidden", "methods": "random", "instances": "8", "budget": "3", "jobs": "1"}
    options |= {"out": str(tmp_path / "out"), "page": str(tmp_path / "page.md")}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = CliRunner().invoke(app, ["bench", "few", *words])
    assert done.exit_code == 0, done.output
    assert "## Hidden constraints" in (tmp_path / "page.md").read_text()
    done = CliRunner().invoke(app, ["bench", "few", "--suite", "none", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0 and (tmp_path / "out" / "few.md").is_file()


def test_nothing_of_the_peers_is_loaded_by_the_stand() -> None:
    code = "import sys, fmnes_bench.few; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"cma", "cocoex", "optuna", "pybads", "smac", "torch"} & set(done.stdout.split())


# -- the page that is kept --------------------------------------------------------------------------------


def test_the_page_is_what_the_rows_give() -> None:
    folder = ROOT / "docs" / "benchmarks"
    kept = read_rows(folder / "few" / "rows.jsonl")
    assert {"afm-nes", "cobyqa", "cma-lq"} <= {row.key.method for row in kept}
    sorted_rows = sorted(kept, key=lambda row: row.key)
    assert report.page(sorted_rows, "few.svg") == (folder / "few.md").read_text(encoding="utf-8"), (
        "fmnes bench few --suite none --out docs/benchmarks/few --page docs/benchmarks/few.md"
    )
