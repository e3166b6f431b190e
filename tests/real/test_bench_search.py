"""The stand of the search: its problems are what they say, runs are kept, and its numbers are right."""

from __future__ import annotations

import gzip
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import search_rows
from fmnes import ArgumentError, MissingExtra
from fmnes.cli.problem import template_files
from fmnes.cli.problem_file import read_problem
from fmnes_bench import peers as every
from fmnes_bench.search import report, search, suite
from fmnes_bench.search import runs as search_runs
from fmnes_bench.search.runs import (
    Cell,
    Honesty,
    Key,
    Objective,
    Trial,
    honesty,
    line,
    ratio,
    read_trials,
    run_trial,
    summarise,
    summary,
)
from fmnes_bench.search.suite import Problem
from tests.rows import through

CASES = [(name, d) for name in suite.PROBLEMS for d in (2, 3, 5, 10) if suite.has(name, d)]
FREE = {"sphere", "ellipsoid", "rosenbrock", "cigar", "noisy-sphere", "noisy-ellipsoid"}


def need(peer: str) -> None:
    """Skip the test where the peer is not installed."""
    if not every.is_installed(peer):
        pytest.skip(f"{peer} is not installed")


def around_the_optimum(p: Problem, instance: int) -> np.ndarray:
    """Points near and far, half of them on the side of the start, all within the bounds."""
    rng = np.random.default_rng(instance)
    n = 4000
    size = 10.0 ** rng.uniform(-9, 0.5, (n, 1))
    steps = rng.standard_normal((n, p.d)) * p.sigma0
    steps[: n // 2] = (p.x0 - p.optimum) + rng.uniform(0, 1, (n // 2, 1)) * steps[: n // 2]
    x = p.optimum + size * steps
    return x if p.bounds is None else np.clip(x, *p.bounds)


# -- problems ---------------------------------------------------------------------------------------------


@through(("name", "d"), CASES)
def test_the_optimum_is_the_optimum(name: str, d: int) -> None:
    for instance in range(3):
        p = suite.get(name, d, instance)
        rounding = 1e-12 * max(1.0, abs(p.minimum))
        assert abs(p.gap_at(p.optimum)) < rounding
        assert p.gap < p.gap_at(p.x0) < math.inf
        values = p.fun(around_the_optimum(p, instance))
        assert not np.isnan(values).any() and (values > -math.inf).all()
        assert np.isfinite(values).sum() > 500  # enough of them say something
        assert values.min() >= p.minimum - rounding
        # Points fail where they should, and not where nothing does.
        fails = name not in FREE and not name.startswith("box")
        assert np.isinf(values).any() == fails


@through("name", suite.PROBLEMS)
def test_a_problem_is_the_same_every_time_and_another_for_another_instance(name: str) -> None:
    d = 3 if suite.has(name, 3) else 40
    one, same, other = (suite.get(name, d, instance) for instance in (4, 4, 5))
    x = np.random.default_rng(0).standard_normal((50, d)) + one.x0
    assert np.array_equal(one.fun(x), same.fun(x))
    random = name.startswith(("aell", "slope", "box", "rotated", "narrow", "wedge", "curved"))
    assert random != np.array_equal([one.x0, one.optimum], [other.x0, other.optimum])


@pytest.mark.parametrize("d", [2, 5, 20, 80])
def test_the_optimum_in_the_box_satisfies_kuhn_and_tucker(d: int) -> None:
    held = 0
    for instance in range(4):
        rng = np.random.default_rng(instance)
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        hessian = axes.T @ (suite.geometric(1000.0, d)[:, None] * axes)
        centre = rng.uniform(-0.5, 1.5, d)
        x, g = suite.box_optimum(hessian, centre)
        gradient = hessian @ (x - centre)
        free = (x > 0) & (x < 1)
        assert (x >= 0).all() and (x <= 1).all()
        assert np.abs(gradient[free]).max(initial=0.0) < 1e-11 and not g[free].any()
        assert (gradient[x == 0] > 0).all() and (gradient[x == 1] < 0).all()
        assert np.array_equal(g[~free], gradient[~free])
        held += (~free).sum()
    assert 0.2 < held / (4 * d) < 0.9


def test_the_constrained_ellipsoid_falls_beyond_each_plane() -> None:
    """Its gradient at the optimum is against every constraint; the Hessian has the condition it should."""
    p = suite.get("aellh", 4)
    step = 1e-5
    x = p.optimum + step * np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
    along = p.x0 - p.optimum  # inside of both planes
    assert p.gap_at(p.optimum + 1e-9 * along) > 0 and np.isinf(p.gap_at(p.optimum - 1e-9 * along))
    assert np.isinf(p.fun(x)).any()
    assert np.linalg.norm(along) == pytest.approx(3 * math.sqrt(4))
    curvatures = suite.geometric(suite.CONDITION, 4)
    assert curvatures[-1] / curvatures[0] == pytest.approx(1000)
    y = np.random.default_rng(0).standard_normal((1, 4))
    H, g = np.diag(curvatures), np.arange(4.0)
    value = suite.value(y, np.eye(4), curvatures, g)
    assert value[0] == pytest.approx(0.5 * y[0] @ H @ y[0] + g @ y[0])


def test_the_beam_is_the_one_that_init_writes(tmp_path: Path) -> None:
    for name, text in template_files("program").items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    space = read_problem(tmp_path / "problem.toml").space
    written = space.start()
    beam = suite.get("beam", 3)
    assert beam.bounds is not None
    np.testing.assert_allclose(beam.x0, written["x0"])
    np.testing.assert_allclose(beam.sigma0, written["sigma0"])
    np.testing.assert_allclose(beam.bounds[0], written["bounds"].lower)
    np.testing.assert_allclose(beam.bounds[1], written["bounds"].upper)
    assert beam.minimum == pytest.approx(0.46416, abs=1e-5)
    deck = (tmp_path / "beam.inp.in").read_text()
    for x in (
        beam.x0,
        beam.optimum * [1, 1 + 1e-9, 1],
        np.array([0.01, 0.2, math.log(100)]),
        np.array([0.9, 0.2, math.log(900)]),
    ):
        (tmp_path / "beam.inp").write_text(deck.format(**space.named(x)))
        done = subprocess.run(
            [sys.executable, "simulate.py", "beam.inp"], cwd=tmp_path, capture_output=True, text=True
        )
        fails = done.returncode != 0 or "the beam broke" in done.stdout
        value = math.inf if fails else float(done.stdout.split()[-1])
        assert float(beam.fun(x[None])[0]) == pytest.approx(value)


def test_an_uncertain_edge_fails_by_chance_near_the_edge_only() -> None:
    p = suite.get("uncertain1", 3)
    assert p.told is not None
    rng = np.random.default_rng(1)
    share = {}
    for depth in (-0.1, 0.0, 0.25, 0.5):
        x = np.tile(p.optimum, (4000, 1))
        x[:, 0] = depth
        share[depth] = np.isinf(p.told(x, rng)).mean()
    assert share[-0.1] == 1 and share[0.5] == 0
    assert share[0.0] == pytest.approx(0.5, abs=0.04) and share[0.25] == pytest.approx(0.25, abs=0.04)
    x = np.tile(p.x0, (4, 1))
    assert np.array_equal(p.told(x, rng), p.fun(x))


def test_noise_is_added_and_the_mean_is_judged_without_it() -> None:
    p = suite.get("noisy-sphere", 5)
    objective = Objective(p, np.random.default_rng(0))
    values = objective(np.tile(p.x0, (4000, 1)))
    assert values.mean() == pytest.approx(2000, abs=0.1) and values.std() == pytest.approx(1, abs=0.05)
    objective(np.zeros((10, 5)))
    assert not objective.met  # values below the target are luck
    assert not objective.judge(np.full(5, 0.32)) and objective.judge(np.full(5, 0.31))
    assert objective.first == objective.evaluations == 4010


def test_the_first_evaluation_within_the_gap_is_noted() -> None:
    p = suite.get("sphere", 2)
    objective = Objective(p, np.random.default_rng(0))
    objective(np.ones((6, 2)))
    objective(np.array([[1.0, 1.0], [1e-5, 0.0], [0.0, 0.0]]))
    objective(np.zeros((1, 2)))
    assert (objective.first, objective.evaluations) == (8, 10)


def test_what_there_is_not() -> None:
    for name, d in (("beam", 2), ("sphere", 1)):
        with pytest.raises(ArgumentError, match="dimensions"):
            suite.get(name, d)
    with pytest.raises(ArgumentError, match="did you mean 'sphere'"):
        suite.get("spere", 2)


# -- contestants ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fm-nes", "cma-es", "cma", "nomad"])
def test_a_run_ends_at_the_target_and_can_be_repeated(method: str) -> None:
    if method in search_runs.PEERS:
        need(method)
    key = Key("evaluations", "active1" if method == "cma-es" else "sphere", 2, method, 3)
    trial = run_trial(*key)
    assert trial.key == key and trial.solved and trial.gap <= 1e-9
    assert trial.first == trial.evaluations < 2000
    assert run_trial(*key) == trial
    if method in ("fm-nes", "cma-es"):
        assert trial.said and trial.stop == "TARGET"
        assert run_trial(*key._replace(seed=4)).evaluations != trial.evaluations


@pytest.mark.parametrize("method", ["cma-es", "cma", "cma-es-once"])
def test_without_a_target_a_run_ends_by_itself(method: str) -> None:
    if method == "cma":
        pytest.importorskip("cma")
    trial = run_trial("success", "sphere", 2, method, 0)
    assert trial.said and trial.gap < 1e-9 and 0 < trial.first < trial.evaluations


@pytest.mark.parametrize("method", ["cma-es", "cma", "nomad"])
def test_bounds_are_kept_and_noise_is_searched(method: str) -> None:
    if method in search_runs.PEERS:
        need(method)
    boxed = run_trial("evaluations", "box-rotated", 2, method, 0)
    assert boxed.solved and -1e-14 <= boxed.gap <= 1e-8
    if method != "nomad":
        noisy = run_trial("evaluations", "noisy-sphere", 2, method, 0)
        assert noisy.solved and noisy.first < 1600


def test_who_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    assert search_runs.takes_part("nomad", 10) and not search_runs.takes_part("nomad", 20)
    search_runs.check_method("fm-nes-once")
    with pytest.raises(ArgumentError, match="did you mean 'fm-nes'"):
        search_runs.check_method("fm-ness")
    monkeypatch.setattr(every, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"fmnes\[bench\]"):
        search_runs.check_method("cma")


# -- numbers, by hand -------------------------------------------------------------------------------------


def trials_of(problem: str, method: str, runs: list[tuple[int, bool]]) -> list[Trial]:
    return [
        Trial(Key("evaluations", problem, 2, method, i), n if ok else 0, n, 1e-10 if ok else 1.0, ok, "X")
        for i, (n, ok) in enumerate(runs)
    ]


def test_evaluations_over_solved_runs() -> None:
    cells = summarise(
        trials_of("sphere", "fm-nes", [(100, True), (200, True), (300, True)])
        + trials_of("cigar", "fm-nes", [(100, True), (200, True), (300, False)])
        + trials_of("slope", "fm-nes", [(100, False), (200, False)])
        + trials_of("aell1", "fm-nes", [(70, True)])
    )
    sphere, cigar = cells["sphere", 2, "fm-nes"], cells["cigar", 2, "fm-nes"]
    assert sphere[:3] == (3, 3, 200) and sphere.error == pytest.approx(100 / math.sqrt(3))
    # (100 + 200 + 300) / 2; residuals −200, −100 and 300; two thirds solved
    assert cigar[:3] == (3, 2, 300) and cigar.error == pytest.approx(math.sqrt(140_000 / 6) * 3 / 2)
    assert cells["slope", 2, "fm-nes"][:3] == (2, 0, math.inf)
    assert cells["aell1", 2, "fm-nes"][:3] == (1, 1, 70) and math.isnan(cells["aell1", 2, "fm-nes"].error)


def cell(mean: float, solved: int = 4) -> Cell:
    return Cell(4, solved, mean, 1.0)


NONE = Cell(4, 0, math.inf, math.nan)
CELLS = {
    ("sphere", 2, "cma-es"): cell(400), ("sphere", 2, "fm-nes"): cell(200), ("sphere", 2, "xnes"): cell(300),
    ("cigar", 2, "cma-es"): cell(100), ("cigar", 2, "fm-nes"): NONE, ("cigar", 2, "xnes"): NONE,
    ("slope", 2, "cma-es"): NONE, ("slope", 2, "fm-nes"): NONE, ("slope", 2, "xnes"): cell(9e9, 1),
    ("aell1", 2, "cma-es"): cell(9), ("aell1", 2, "fm-nes"): cell(8), ("aell1", 2, "xnes"): cell(800),
    ("box-rotated", 2, "cma"): cell(100), ("box-rotated", 2, "cma-es"): cell(50),
    ("aell1", 3, "xnes"): cell(1),
}  # fmt: skip


def test_ratios() -> None:
    assert ratio(CELLS, "sphere", 2, "xnes") == 1.5  # to the better one
    assert ratio(CELLS, "sphere", 2, "cma-es") == 2
    assert ratio(CELLS, "cigar", 2, "xnes") == 50  # unsolved
    assert ratio(CELLS, "slope", 2, "xnes") == 1 / 50  # solved by nobody else
    assert ratio(CELLS, "slope", 2, "fm-nes") == 1  # by nobody
    assert ratio(CELLS, "aell1", 2, "xnes") == 50  # clipped
    assert ratio(CELLS, "box-rotated", 2, "cma-es") == 0.5  # to cma
    assert math.isnan(ratio(CELLS, "aell1", 3, "xnes")) and math.isnan(ratio(CELLS, "actived", 2, "xnes"))


def test_the_summary_is_a_geometric_mean() -> None:
    found = summary(CELLS, "study", 2, "xnes")
    assert found is not None
    assert found.geometric_mean == pytest.approx((1.5 * 50 * (1 / 50) * 50) ** (1 / 4))
    assert (found.cells, found.worst, found.worst_ratio) == (4, "cigar", 50)
    assert (found.runs, found.solved, found.least, found.least_share) == (16, 9, "cigar", 0)
    assert summary(CELLS, "study", 3, "xnes") is None and summary(CELLS, "noise", 2, "xnes") is None


def test_one_method_beside_another() -> None:
    found = search_runs.beside(CELLS, "study", 2, "xnes", "cma-es")
    assert found is not None
    # sphere 300/400, cigar unsolved by one (50), slope solved by one only (1/50), aell1 800/9, cut off at 50
    assert found.ratio == pytest.approx((0.75 * 50 * (1 / 50) * 50) ** (1 / 4)) and found.cells == 4
    # Only the sphere is solved by both within the limits.
    assert found.error == pytest.approx(found.ratio * math.hypot(1 / 300, 1 / 400) / 4)
    assert search_runs.beside(CELLS, "study", 2, "fm-nes", "cma-es").ratio == pytest.approx(  # type: ignore[union-attr]
        (0.5 * 50 * 1 * 8 / 9) ** (1 / 4)  # slope: solved by neither
    )
    assert search_runs.beside(CELLS, "study", 3, "xnes", "cma-es") is None


def test_the_page_shows_the_default_beside_the_others_and_the_seeds() -> None:
    trials = trials_of("cigar", "afm-nes", [(100, True), (120, True)])
    trials += trials_of("cigar", "cma", [(200, True), (200, True)])
    fresh = [t._replace(key=t.key._replace(seed=t.key.seed + 1000)) for t in trials]
    text = report.page(fresh, None)
    assert "| study | 2 | cma | 1 | 0.55 ± 0.05 |" in text  # 110 ± 10 over 200 ± 0
    assert "**Seeds** 1000 to 1001; those below 24" in text


def test_wrong_successes() -> None:
    starts = {("sphere", 2, 0): 100.0, ("cigar", 2, 0): 1.0}

    def ended(problem: str, gap: float, said: bool) -> Trial:
        return Trial(Key("success", problem, 2, "fm-nes", 0), 0, 50, gap, said, "X")

    found = honesty(
        [
            ended("sphere", 0.9, True),  # near, and said, not exact
            ended("sphere", 9e-5, True),  # near, and said
            ended("sphere", 1.1, True),  # wrong
            ended("cigar", 0.9, True),  # wrong: near would be 0.01
            ended("cigar", 0.009, False),  # near, not said
            ended("cigar", math.inf, False),
        ],
        starts,
    )
    assert found == Honesty(runs=6, near=3, wrong=2, said=2, inexact=3, evaluations=50.0)


def test_the_page_shows_these_numbers() -> None:
    trials = trials_of("cigar", "fm-nes", [(100, True), (200, True), (300, False)])
    trials += trials_of("cigar", "cma-es", [(200, True), (200, True)])
    trials += trials_of("slope", "cma-es", [(200, False)])
    beam = [
        Trial(Key("success", "beam", 3, "cma-es", i), first, 3000, gap, said, "X")
        for i, (first, gap, said) in enumerate([(300, 1e-9, True), (500, 0.004, True), (0, 0.005, True)])
    ]
    text = report.page([*trials, *beam], "x.svg").splitlines()
    assert "| 2 | cigar | 2/3 | 300 ± 229 (0.67) ×1.50 | 200 ± 0 ×1.00 |" in text
    assert "| 2 | slope | 1 |  | – |" in text
    assert "| study | 2 | fm-nes | 1 | 1.50 | 1.50 (cigar) | 2 of 3 | 0.67 (cigar) |" in text
    assert "| cma-es | 3 | 500 | 1 | 1 |" in text  # 0.005 is more than 1 % of 0.46416
    assert "| counted | cma-es | 3 | 3 | 0 | 2 | 100.0% | 3000 |" in text
    assert f"![{report.ALTERNATIVE}](x.svg)" in text


# -- runs that are kept -----------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_to_the_same_page(tmp_path: Path) -> None:
    """Ctrl-C in the middle, then a line half written by a kill, then the rest; and packed away."""
    chosen = {"--problems": "sphere,ic-sphere", "--dimensions": "2", "--methods": "fm-nes,cma-es"}
    chosen |= {"--seeds": "40", "--workers": "1", "--out": str(tmp_path / "torn")}
    words = [word for pair in chosen.items() for word in pair]
    process = subprocess.Popen(
        [sys.executable, "-m", "fmnes", "bench", "search", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    runs = tmp_path / "torn" / "evaluations.csv"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and (not runs.exists() or len(runs.read_text().splitlines()) < 3):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "the same command goes on" in output
    before = runs.read_text()
    assert 2 <= len(before.splitlines()) < 160
    runs.write_text(before + "sphere,2,fm-n")

    def the_rest(folder: str) -> Path:
        return search(
            problems=["sphere", "ic-sphere"],
            dimensions=[2],
            methods=["fm-nes", "cma-es"],
            seeds=4,
            workers=2,
            out=tmp_path / folder,
        )

    page = the_rest("torn")
    assert runs.read_text().startswith(before)  # what was done was not done again
    kept = {t.key: t for t in read_trials(tmp_path / "torn")}
    # The same as if it had never stopped, but for the seeds beyond 4.
    the_rest("whole")
    whole = read_trials(tmp_path / "whole")
    assert len(whole) == 2 * 2 * 4 and all(kept[t.key] == t for t in whole)
    four = [line(t) for t in kept.values() if t.key.seed < 4]
    runs.write_text("\n".join([before.splitlines()[0], *four]) + "\n")
    the_rest("torn")
    assert page.read_text() == (tmp_path / "whole" / "search.md").read_text()
    svg = (tmp_path / "torn" / "search.svg").read_bytes()
    assert svg == (tmp_path / "whole" / "search.svg").read_bytes() and b"ic-sphere" in svg

    text = page.read_text()
    (tmp_path / "torn" / "evaluations.csv.gz").write_bytes(gzip.compress(runs.read_bytes()))
    runs.unlink()
    again = search(seeds=0, methods=["fm-nes"], out=tmp_path / "torn", report=tmp_path / "docs" / "page.md")
    assert again.read_text() == text.replace("search.svg", "page.svg")
    assert (tmp_path / "docs" / "page.svg").exists()


def test_other_seeds_are_run_and_a_sample_of_rows_is_made_again(tmp_path: Path) -> None:
    """What was written is what another process finds; a row that was changed is noticed."""
    out = tmp_path / "out"
    search(
        problems=["sphere"], dimensions=[2], methods=["cma-es"], seeds=3, first_seed=50, workers=1, out=out
    )
    assert {t.key.seed for t in read_trials(out)} == {50, 51, 52}
    assert search_rows.main(["--folder", str(out), "--workers", "1"]) == 0
    rows = out / "evaluations.csv"
    first, evaluations = rows.read_text().splitlines()[1].split(",")[4:6]
    rows.write_text(
        rows.read_text().replace(f",{first},{evaluations},", f",{first},{int(evaluations) + 1},", 1)
    )
    assert search_rows.main(["--folder", str(out), "--workers", "1"]) == 1


def test_bad_input_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for wrong, said in (
        ({"what": "speed"}, "what: found 'speed', wanted one of evaluations, success"),
        ({"problems": ["spheer"]}, "did you mean 'sphere'"),
        ({"methods": ["cma_es"]}, "did you mean 'cma-es'"),
        ({"dimensions": [1]}, "dimensions"),
        ({"seeds": -1}, "seeds"),
        ({"first_seed": -1}, "first_seed"),
    ):
        with pytest.raises(ArgumentError, match=said):
            search(**{"methods": ["fm-nes"], "out": out, **wrong})
    assert not out.exists()
    out.mkdir()
    (out / "thesis.tex").write_text("")
    with pytest.raises(ArgumentError, match="other files"):
        search(methods=["fm-nes"], seeds=0, out=out)


def test_clip_is_what_the_page_says() -> None:
    assert f"[1/{search_runs.CLIP:g}, {search_runs.CLIP:g}]" in report.INTRODUCTION
