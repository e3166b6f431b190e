"""The gene network: the S-system against a literal one, every way to fail, one network and many."""

from __future__ import annotations

import doctest
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from benchmarks.real import trial
from examples.gene_network import recovered, run
from fmnes import ArgumentError
from fmnes_bench import gene_network
from fmnes_bench.gene_network import courses, slope
from fmnes_bench.peers import PEERS, is_installed

from .reference import s_system

PROBLEM = gene_network.problem()


def literal(network: gene_network.Network) -> tuple[Any, ...]:
    return tuple(part.tolist() for part in network)


def test_the_right_hand_side_is_that_of_the_literal_system() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        network = gene_network.Network(*rng.uniform(0.1, 20, (2, 5)), *rng.uniform(-3, 3, (2, 5, 5)))
        x = rng.uniform(0.1, 2, (3, 5))
        ours = (x * slope(network, 3)(np.log(x).reshape(-1)).reshape(3, 5)).tolist()
        for i in range(3):
            assert ours[i] == pytest.approx(s_system.slope(x[i].tolist(), *literal(network)), rel=1e-9)


def test_the_data_are_those_of_the_published_network() -> None:
    """Its five equations, written out as they are printed."""
    x = np.random.default_rng(2).uniform(0.2, 1.5, 5)
    x1, x2, x3, x4, x5 = x
    printed = [
        5 * x3 / x5 - 10 * x1**2,
        10 * x1**2 - 10 * x2**2,
        10 / x2 - 10 / x2 * x3**2,
        8 * x3**2 / x5 - 10 * x4**2,
        10 * x4**2 - 10 * x5**2,
    ]
    true = literal(PROBLEM.network(PROBLEM.true))
    assert s_system.slope(x.tolist(), *true) == pytest.approx(printed)
    assert PROBLEM.observed.shape == (11, 10, 5) and (PROBLEM.observed[0] == PROBLEM.initial).all()
    for state in (0, 2, 7):
        for time in (3, 10):
            ends = s_system.integrate(PROBLEM.initial[state], true, PROBLEM.times[time], 100 * time)
            assert PROBLEM.observed[time, state] == pytest.approx(ends, rel=1e-7)


def test_another_network_is_integrated_as_the_literal_one_is() -> None:
    rng = np.random.default_rng(3)
    point = np.array(list(PROBLEM.start.values())) + np.r_[np.zeros(10), rng.normal(0, 0.3, 50)]
    found = PROBLEM.courses(point)
    ends = s_system.integrate(PROBLEM.initial[4], literal(PROBLEM.network(point)), 0.5, 2000)
    assert found[-1, 4] == pytest.approx(ends, rel=1e-3)  # steps have a tolerance of 1e-4
    exact = courses(PROBLEM.network(point), PROBLEM.initial, PROBLEM.times, tolerance=1e-10)
    assert exact[-1, 4] == pytest.approx(ends, rel=1e-7)
    errors = [(found[t, s, k] / PROBLEM.observed[t, s, k] - 1) ** 2 for t, s, k in np.ndindex(11, 10, 5) if t]
    assert PROBLEM.fun(point) == pytest.approx(np.sqrt(sum(errors) / 500))


def test_the_truth_is_a_minimum_and_the_start_is_no_failure() -> None:
    assert PROBLEM.fun(PROBLEM.true) < 1e-4
    assert 0.1 < PROBLEM.fun(PROBLEM.start) < 1
    for name, p in PROBLEM.parameters.items():
        assert p.lower is not None and p.upper is not None
        assert p.lower <= PROBLEM.true[name] <= p.upper


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"alpha2": 100, "g22": 3}, "X2 explodes"),
        ({"beta4": 100, "h44": 0, "alpha4": 0.1}, "X4 dies out"),
        ({"g22": float("inf")}, "wanted numbers"),
        ({"alpha1": 0.0}, "above 0"),
    ],
)
def test_what_has_no_course_fails_with_its_reason(change: dict[str, float], reason: str) -> None:
    point = PROBLEM.start | change
    error = fmnes.Infeasible if reason[0] == "X" else ArgumentError
    for call in (PROBLEM.fun, PROBLEM.courses):
        with pytest.raises(error, match=reason):
            call(point)
    if reason[0] == "X":
        assert PROBLEM.reasons(point) == [reason]


def test_an_integration_has_a_limit() -> None:
    hasty = gene_network.problem(limit=50)
    with pytest.raises(fmnes.Infeasible, match="needs more than 50 right-hand sides"):
        hasty.fun(PROBLEM.true)
    for limit in (0, True, 1.5, "many"):
        with pytest.raises(ArgumentError, match="limit"):
            gene_network.problem(limit=limit)  # type: ignore[arg-type]


def test_many_networks_are_the_same_as_one_after_another() -> None:
    rng = np.random.default_rng(4)
    lower, upper = np.array([(p.lower, p.upper) for p in PROBLEM.parameters.values()]).T
    start = np.array(list(PROBLEM.start.values()))
    points = start + rng.uniform(0, 0.5, (30, 1)) * (rng.uniform(lower, upper, (30, 60)) - start)
    values, reasons = PROBLEM.fun(points), PROBLEM.reasons(points)
    assert 3 < np.isinf(values).sum() < 27 and not np.isnan(values).any()
    for point, value, reason in zip(points, values, reasons, strict=True):
        assert bool(reason) == np.isinf(value)
        if not reason:
            assert PROBLEM.fun(dict(zip(PROBLEM.parameters, point.tolist(), strict=True))) == value
    columns = dict(zip(PROBLEM.parameters, points.T, strict=True))
    assert (PROBLEM.fun(columns) == values).all() and len(PROBLEM.fun(points[:0])) == 0


def test_nothing_is_printed_whatever_fails(capfd: pytest.CaptureFixture[str]) -> None:
    """The integrator has messages of its own."""
    rng = np.random.default_rng(5)
    lower, upper = np.array([(p.lower, p.upper) for p in PROBLEM.parameters.values()]).T
    reasons = PROBLEM.reasons(rng.uniform(lower, upper, (150, 60)))
    kinds = {reason.split(" ", 1)[-1].removeprefix("more than ") for reason in reasons if reason}
    assert {"explodes", "dies out"} < kinds and any("right-hand" in kind for kind in kinds)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PROBLEM.fun(np.zeros(59)), r"found shape \(59,\), wanted \(60,\) or \(n, 60\)"),
        (lambda: PROBLEM.fun({"alpha1": 1.0}), "without 'alpha2'"),
        (lambda: PROBLEM.network(np.ones((2, 60))), "found 2 networks, wanted one"),
        (lambda: PROBLEM.courses(PROBLEM.true, times=[0.1, 0.2]), "from 0 on"),
    ],
)
def test_what_cannot_be_meant_is_refused(call: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        call()


def test_without_scipy_the_line_that_installs_it() -> None:
    code = """
import sys
sys.modules["scipy"] = sys.modules["scipy.integrate"] = None
from fmnes_bench import gene_network
try:
    gene_network.problem()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert 'pip install "fmnes[scipy]"' in done.stdout, done.stderr


def test_its_examples_run_and_it_can_be_sent_to_a_worker() -> None:
    found = doctest.testmod(gene_network)
    assert found.attempted == 18 and not found.failed
    sent = pickle.loads(pickle.dumps(PROBLEM))
    assert sent.fun(PROBLEM.start) == PROBLEM.fun(PROBLEM.start)


def test_the_picture_has_data_courses_and_the_best_so_far() -> None:
    wide = run.with_step(PROBLEM.parameters, 0.25)  # so that many fail
    result = fmnes.minimize(PROBLEM.fun, wide, max_evaluations=30, rng=1, keep_evaluations=True)
    figure = gene_network.draw(PROBLEM, PROBLEM.start, PROBLEM.true, states=(1, 5), result=result)
    *panels, below = figure.axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "before, off by 25.0%: X2 high at first",
        "X1 and X2 high at first",
        "after, off by 0.0%: X2 high at first",
        "X1 and X2 high at first",
    ]
    for axes, state in zip(panels, (1, 5, 1, 5), strict=True):
        dots = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata())]
        curves = [line for line in axes.lines if len(line.get_xdata()) == 101]
        for gene, (dot, curve) in enumerate(zip(dots, curves, strict=True)):
            assert (dot.get_ydata() == PROBLEM.observed[:, state, gene]).all()
            meets = np.allclose(curve.get_ydata()[::10], dot.get_ydata(), rtol=1e-3)
            assert meets == (axes in panels[2:])
    best, failed = below.lines
    assert best.get_ydata()[-1] == result.fun and len(failed.get_xdata()) == result.n_infeasible > 5
    assert len(gene_network.draw(PROBLEM, PROBLEM.start, PROBLEM.true).axes) == 6
    for wrong in ([], [10], [0.5]):
        with pytest.raises(ArgumentError, match="wanted some of 0 to 9"):
            gene_network.draw(PROBLEM, PROBLEM.start, PROBLEM.true, states=wrong)


def test_the_example_says_what_it_found_and_draws_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.main(["--evaluations", "40", "--first-step", "0.25", "--out", str(tmp_path / "new")])
    said = capsys.readouterr().out
    assert "off by 25.0%" in said and "40 evaluations" in said and "right-hand sides" in said
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["gene_network.svg"]
    assert "best so far" in (tmp_path / "new" / "gene_network.svg").read_text()


def test_what_is_recovered_is_counted_against_the_truth() -> None:
    found = recovered.compare(PROBLEM, PROBLEM.true)
    assert found[:4] == (50, 13, 13, 37) and found.rate_factor == pytest.approx(1)
    start = recovered.compare(PROBLEM, PROBLEM.start)
    assert start.orders == start.start == 37 and start.acting == 0 and start.signs == 5
    along = recovered.sensitivities(PROBLEM)
    assert len(along) == 60 and (np.diff(along) <= 0).all()
    # Against the error itself, along one parameter: its column of the derivatives is no longer than all.
    up = PROBLEM.true | {"g21": 2.015}  # a hundredth of a quarter of its range
    assert 0 < 100 * PROBLEM.fun(up) < along[0]


@pytest.mark.parametrize("method", ["afm-nes", "nomad"])  # NOMAD goes without its models here
def test_it_is_a_task_of_the_benchmark(method: str) -> None:
    if method in PEERS and not is_installed(method):
        pytest.skip(f"{method} is not installed")
    row = trial.run("gene-network", method, 1, budget=70)
    assert row["evaluations"] == 70 and row["best"] <= PROBLEM.fun(PROBLEM.start)
