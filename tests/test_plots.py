"""Plots of real runs: what stands on the axes. src/fmnes/plots/"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fmnes
from fmnes import plots
from fmnes.analysis.explanation import explanation_of
from fmnes.analysis.prediction import edge_through_best
from fmnes.plots.map import local_share, map_of
from fmnes.reading.data import Table, in_box, with_evaluations

SPACE = {
    "thickness": fmnes.Real(0.1, 10, log=True),
    "angle": fmnes.Real(start=3.0, sigma=0.5),
    "layers": fmnes.Integer(1, 12),
}
OF_ONE = (
    plots.convergence,
    plots.distribution,
    plots.failure_map,
    plots.failures,
    plots.parameters,
    plots.slices,
)
HOSTILE = "</text><script>alert(1)</script> $x_1$ & \x1b[31m"


def simulate(p: dict[str, Any]) -> float:
    if p["thickness"] * p["layers"] < 2:
        raise fmnes.Infeasible("too thin")
    if p["angle"] > 3.2:
        return float("nan")
    return p["thickness"] * p["layers"] + (p["angle"] - 2) ** 2


@pytest.fixture(scope="module")
def result() -> fmnes.Result:
    return fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=200, keep_evaluations=True)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plots") / "beam.run"
    fmnes.minimize(simulate, SPACE, rng=1, max_evaluations=200, run_dir=path)
    return path


def bowl(x: np.ndarray) -> float:
    return float(x @ x)


def marks(axes: Any, gid: str) -> Any:
    """The line of this kind; None if there is none."""
    found = [artist for artist in (*axes.lines, *axes.collections) if artist.get_gid() == gid]
    assert len(found) <= 1
    return found[0] if found else None


def words(figure: Any) -> str:
    """All that is written on it."""
    figure.canvas.draw()
    return "\n".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))


# -- what is drawn ----------------------------------------------------------------------------------------


def test_convergence_has_a_dot_for_each_value_a_tick_for_each_failure_and_the_best(result) -> None:
    axes = plots.convergence(result).axes[0]
    status, value = result.evaluations.status, result.evaluations.value
    dots, ticks, best = (marks(axes, gid) for gid in ("evaluations", "failed", "best"))
    assert np.array_equal(dots.get_xdata(), np.flatnonzero(status == "value") + 1)
    assert np.array_equal(dots.get_ydata(), value[status == "value"])
    assert np.array_equal(ticks.get_xdata(), np.flatnonzero(status == "infeasible") + 1)
    assert len(ticks.get_xdata()) == result.n_infeasible > 10
    assert (ticks.get_ydata() > 1).all() and ticks.get_transform() == axes.get_xaxis_transform()
    assert best.get_drawstyle() == "steps-post" and (np.diff(best.get_ydata()) <= 0).all()
    assert best.get_xdata()[-1] == result.nfev and best.get_ydata()[-1] == result.fun
    assert dots.get_marker() != ticks.get_marker() and dots.get_color() != ticks.get_color()
    assert axes.get_xlabel() == "evaluations" and axes.get_ylabel().startswith("value")
    assert f"{result.n_infeasible} failed" in axes.get_title(loc="left")


def test_a_result_a_directory_and_a_run_give_the_same_picture(result, run_dir) -> None:
    for plot in (plots.failures, plots.failure_map, plots.parameters):
        pictures = {plots.as_svg(plot(of)) for of in (result, run_dir, str(run_dir), fmnes.read_run(run_dir))}
        assert len(pictures) == 1, plot


def test_without_evaluations_the_dots_are_those_of_the_generations() -> None:
    result = fmnes.minimize(bowl, [1.0, 2.0], 0.5, rng=1, max_evaluations=100, surrogate=False)
    figure = plots.convergence(result)
    dots = marks(figure.axes[0], "evaluations")
    assert np.array_equal(dots.get_ydata(), result.history["generation_best"])
    assert marks(figure.axes[0], "best").get_ydata()[-1] == result.fun
    assert "the best of a generation" in words(figure)
    first = fmnes.minimize(bowl, [1.0, 2.0], 0.5, rng=1, max_evaluations=1)  # no generation is complete
    assert marks(plots.convergence(first).axes[0], "best").get_ydata()[-1] == first.fun == 5.0


def test_distribution_has_the_step_size_and_both_axes(result) -> None:
    axes = plots.distribution(result).axes[0]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    history = result.history
    assert axes.get_yscale() == "log"
    assert np.array_equal(lines["step size"], history["sigma"])
    assert np.allclose(lines["longest axis"], history["sigma"] * history["longest_axis"])
    assert np.allclose(lines["shortest axis"], history["sigma"] * history["shortest_axis"])


def test_failures_are_stacked_by_reason_to_their_share(result) -> None:
    axes = plots.failures(result).axes[0]
    rows = {bars.get_label(): bars for bars in axes.containers}
    counts = {f"{f.count} × {f.reason}" for f in result.failures}
    assert set(rows) == counts and len(counts) == 2
    tops = {}
    for bars in axes.containers:
        for bar in bars:
            tops[bar.get_x()] = max(tops.get(bar.get_x(), 0), bar.get_y() + bar.get_height())
    assert len(tops) == 20  # of ten evaluations each
    assert sum(tops.values()) * 10 / 100 == pytest.approx(result.n_infeasible)


def test_rare_reasons_are_other() -> None:
    def many(x: np.ndarray) -> float:
        raise fmnes.Infeasible(f"reason {int(abs(x[0]) * 97) % 9}")

    result = fmnes.minimize(many, [1.0, 2.0], 0.5, rng=1, max_evaluations=300, keep_evaluations=True)
    assert len(result.failures) == 9
    labels = [bars.get_label() for bars in plots.failures(result).axes[0].containers]
    assert labels[:6] == [f"{f.count} × {f.reason}" for f in result.failures[:6]]
    assert labels[6:] == [f"{sum(f.count for f in result.failures[6:])} × other (3 reasons)"]


def test_parameters_have_mean_deviation_and_best_by_name(result) -> None:
    figure = plots.parameters(result)
    assert len(figure.axes) == 3
    table = result.evaluations
    last = table.generation == table.generation.max()
    for axes, name in zip(figure.axes, SPACE, strict=True):
        assert axes.get_title(loc="left").startswith(name)
        assert axes.get_yscale() == ("log" if name == "thickness" else "linear")
        lines = {line.get_label(): line for line in axes.lines}
        points = table.parameters[name][last]
        middle = np.exp(np.log(points).mean()) if name == "thickness" else points.mean()
        assert lines["mean of a generation"].get_ydata()[-1] == pytest.approx(middle)
        assert set(lines["best point"].get_ydata()) == {result.x[name]}
        band = axes.collections[0].get_paths()[0].vertices[:, 1]
        if name == "angle":
            assert np.isclose(band, points.mean() + points.std()).any()
            assert np.isclose(band, points.mean() - points.std()).any()


def test_slices_have_each_parameter_and_each_pair(result) -> None:
    figure = plots.slices(result)
    assert len(figure.axes) == 6
    status = result.evaluations.status
    for axes in figure.axes:
        assert len(marks(axes, "evaluations").get_offsets()) == (status == "value").sum()
        assert len(marks(axes, "failed").get_xdata()) == (status == "infeasible").sum()
    below = figure.axes[1]  # angle over thickness
    bad = status == "infeasible"
    assert np.array_equal(marks(below, "failed").get_xdata(), result.evaluations.parameters["thickness"][bad])
    assert np.array_equal(marks(below, "failed").get_ydata(), result.evaluations.parameters["angle"][bad])
    assert below.get_xscale() == "log" and below.get_yscale() == "linear"
    assert marks(below, "failed").get_marker() == "x"
    assert {figure.axes[i].get_xlabel() for i in (3, 4, 5)} == set(SPACE)


def test_the_map_has_the_share_of_failures_where_points_are() -> None:
    """Of six parameters two decide: below the diagonal all fails, above it nothing."""

    def fails(x: np.ndarray) -> float | None:
        return None if x[1] + x[4] < 1 else bowl(x)

    settings = {"rng": 1, "max_evaluations": 400, "keep_evaluations": True, "surrogate": False}
    result = fmnes.minimize(fails, [0.5] * 6, 0.5, bounds=[(0, 1)] * 6, **settings)
    figure = plots.failure_map(result)
    axes, bar = figure.axes
    assert {axes.get_xlabel(), axes.get_ylabel()} == {"x1", "x4"}
    assert bar.get_ylabel() == "evaluated points nearby that failed, %"
    share = marks(axes, "map").get_array()
    assert share.min() >= 0 and share.max() <= 100
    middle = np.linspace(0, 1, 41)[:-1] + 1 / 80
    # The map has the range of the evaluated points, which is nearly all of the box.
    total = middle[:, None] + middle[None, :]
    low, high = share[total < 0.7].compressed(), share[total > 1.4].compressed()
    assert len(low) > 100 and low.mean() > 70 and len(high) > 100 and high.mean() < 20
    status, points = result.evaluations.status, result.evaluations.parameters
    for gid, kind in (("failed", "infeasible"), ("evaluations", "value")):
        assert np.array_equal(marks(axes, gid).get_xdata(), points[axes.get_xlabel()][status == kind])
    assert marks(axes, "failed").get_marker() != marks(axes, "evaluations").get_marker()


def test_places_far_from_all_points_are_not_on_the_map() -> None:
    rng = np.random.default_rng(1)
    points = np.concatenate([corner + 0.02 * rng.uniform(-1, 1, (40, 2)) for corner in (0.0, 1.0)])
    share = local_share(in_box(points), points[:, 0] < 0.5)
    assert share[0, 0] > 0.9 and share[-1, -1] < 0.1 and np.isnan(share[20, 20])
    assert np.isnan(share[0, -1]) and np.isnan(share[-1, 0])


def test_the_map_has_the_edge_that_a_model_expects() -> None:
    def fails(x: np.ndarray) -> float | None:
        return bowl(x) if x[0] + x[1] > 1.3 else None

    result = fmnes.minimize(fails, bounds=[(0, 3), (0, 3)], rng=1, max_evaluations=80, keep_evaluations=True)
    given, evaluations = with_evaluations(result)
    found = map_of(evaluations, explanation_of(evaluations, given.logs), given.logs)
    assert found is not None and found.edge is not None and found.edge.right > 0.8
    x, y = found.x[1::2], found.y[1::2]
    works = (x + y[:, None]) > 1.3
    assert np.mean((found.edge.margin > 0) == works) > 0.95
    axes = plots.failure_map(result).axes[0]
    assert marks(axes, "edge").get_label().startswith("expected edge (")


def test_random_failures_have_no_edge() -> None:
    drawn = 0
    for seed in range(10):
        rng = np.random.default_rng([seed, 7])
        points = dict(zip("ab", rng.uniform(size=(2, 100)), strict=True))
        nothing, failed = np.zeros(100, np.int64), rng.uniform(size=100) < 0.4
        value = np.where(failed, np.nan, points["a"])
        words_of = np.where(failed, "no", "").astype(object)
        evaluations = Table(nothing, nothing, value, failed, words_of, nothing > 0, points)
        middles = np.linspace(0, 1, 20)
        drawn += edge_through_best(evaluations, frozenset(), "a", "b", middles) is not None
    assert drawn <= 1


def test_the_map_has_log_scales_and_the_best_point(result) -> None:
    figure = plots.failure_map(result)
    axes = figure.axes[0]
    names = [axes.get_xlabel(), axes.get_ylabel()]
    assert [axes.get_xscale(), axes.get_yscale()] == [
        "log" if name == "thickness" else "linear" for name in names
    ]
    star = {line.get_label(): line for line in axes.lines}["best point"]
    assert [star.get_xdata()[0], star.get_ydata()[0]] == [result.x[name] for name in names]


def test_without_failures_or_with_one_parameter_there_is_no_map() -> None:
    result = fmnes.minimize(bowl, [1.0, 2.0], 0.5, rng=1, max_evaluations=30, keep_evaluations=True)
    assert "30 evaluations, none failed" in words(plots.failure_map(result))
    result = fmnes.minimize(
        lambda x: bowl(x) if x[0] > 0.5 else None,
        [1.0],
        0.5,
        rng=1,
        max_evaluations=30,
        keep_evaluations=True,
    )
    assert "a map needs two parameters" in words(plots.failure_map(result))


def test_of_many_parameters_slices_draw_those_that_tell_failures_apart() -> None:
    def fails(x: np.ndarray) -> float | None:
        return None if x[3] + x[6] > 0.5 else bowl(x)

    result = fmnes.minimize(fails, np.zeros(8), 1.0, rng=1, max_evaluations=300, keep_evaluations=True)
    figure = plots.slices(result)
    assert len(figure.axes) == 10
    assert {"x3", "x6"} <= {axes.get_xlabel() for axes in figure.axes}
    assert "4 of 8 parameters: those that separate failed points best" in words(figure)


def test_of_very_many_parameters_the_ones_that_moved_are_drawn() -> None:
    x0 = np.zeros(30)
    x0[17] = 50.0
    result = fmnes.minimize(bowl, x0, 1.0, rng=1, max_evaluations=1000, keep_evaluations=True)
    figure = plots.parameters(result)
    assert len(figure.axes) == 24 and "24 of 30 parameters" in words(figure)
    assert any(axes.get_title(loc="left").startswith("x17 ") for axes in figure.axes)


def test_compare_has_a_line_and_a_label_for_each(run_dir) -> None:
    results = [fmnes.minimize(bowl, [1.0, 2.0], 0.5, rng=i, max_evaluations=60 + 40 * i) for i in range(2)]
    figure = plots.compare(*results, run_dir)
    lines = [line for line in figure.axes[0].lines if line.get_gid() == "best"]
    assert [line.get_label().split(":")[0] for line in lines] == ["run 1", "run 2", "beam.run"]
    assert [line.get_ydata()[-1] for line in lines[:2]] == [result.fun for result in results]
    assert [line.get_xdata()[-1] for line in lines[:2]] == [60, 100]
    assert len({line.get_linestyle() for line in lines}) == len({line.get_color() for line in lines}) == 3
    named = plots.compare({"_a": results[0], "b": results[1]})
    assert {"_a", "b"} == {text.get_text().split(":")[0].strip() for text in named.legends[0].texts}
    assert "with" in words(plots.compare(results, labels=["one", "two"]))


# -- runs of all kinds ------------------------------------------------------------------------------------


def never(x: Any) -> float:
    raise fmnes.Infeasible("never")


def extreme(x: np.ndarray) -> float:
    return float([1e308, -1e308, 0.0, 1e-320][int(abs(x[0]) * 1e4) % 4])


@pytest.mark.parametrize(
    ("fun", "settings"),
    [
        (never, {"max_evaluations": 40}),
        (bowl, {"max_evaluations": 1}),
        (bowl, {"max_evaluations": 200, "target": 1e-5, "restarts": 2, "xtol": 0.5}),
        (lambda x: 3.0, {"max_evaluations": 50}),
        (lambda x: -bowl(x) if x[0] > 0.5 else None, {"max_evaluations": 50}),
        (extreme, {"max_evaluations": 60}),
    ],
)
def test_any_run_is_drawn(fun: Any, settings: dict[str, Any]) -> None:
    result = fmnes.minimize(fun, [1.0, 2.0], 0.5, rng=1, keep_evaluations=True, **settings)
    for plot in (*OF_ONE, plots.compare):
        ElementTree.fromstring(plots.as_svg(plot(result)))


def test_one_parameter_is_drawn() -> None:
    result = fmnes.minimize(bowl, [1.0], 0.5, rng=1, max_evaluations=40, keep_evaluations=True)
    assert len(plots.slices(result).axes) == len(plots.parameters(result).axes) == 1


def test_the_names_that_a_command_gave_are_those_of_its_best_point(tmp_path) -> None:
    """Its points are arrays all the same."""
    code = "import sys; a, b = map(float, sys.argv[1:]); print((a - 1) ** 2 + b**2 if b < 1 else 'nan')"
    command = fmnes.Command([sys.executable, "-S", "-c", code, "{a}", "{b}"], names=["a", "b"])
    result = fmnes.minimize(command, [2.0, 1.0], 0.3, rng=1, max_evaluations=12, run_dir=tmp_path / "run")
    figure = plots.parameters(tmp_path / "run")
    best = [{line.get_label(): line for line in axes.lines}["best point"] for axes in figure.axes]
    assert [line.get_ydata()[0] for line in best] == result.x.tolist()
    assert [axes.get_title(loc="left")[0] for axes in figure.axes] == ["a", "b"]
    assert len(plots.slices(tmp_path / "run").axes) == 3


def test_only_failures_say_so() -> None:
    result = fmnes.minimize(never, [1.0, 2.0], 0.5, rng=1, max_evaluations=40, keep_evaluations=True)
    figure = plots.convergence(result)
    assert "no evaluation has a value" in words(figure) and "no success" in words(figure)
    assert len(marks(figure.axes[0], "failed").get_xdata()) == result.nfev
    assert "no success in" in words(plots.compare(result))


def test_restarts_break_the_lines() -> None:
    result = fmnes.minimize(
        bowl,
        [1.0, 2.0],
        0.5,
        rng=1,
        target=-1.0,
        xtol=1e-3,
        restarts=2,
        max_evaluations=2000,
        keep_evaluations=True,
    )
    assert result.history["restart"].max() == 2
    for plot in (plots.convergence, plots.distribution, plots.parameters):
        figure = plot(result)
        assert "a restart or second look" in words(figure)
    sigma = next(line for line in plots.distribution(result).axes[0].lines if line.get_label() == "step size")
    assert np.isnan(sigma.get_ydata()).sum() == 2


def test_a_run_without_an_evaluation_says_so(tmp_path) -> None:
    """As one that was started a moment ago."""
    fmnes.minimize(bowl, [1.0, 2.0], 0.5, rng=1, max_evaluations=20, run_dir=tmp_path / "run")
    with sqlite3.connect(next((tmp_path / "run").glob("*.sqlite*"))) as log:
        log.execute("DELETE FROM evaluations")
    for plot in (plots.convergence, plots.failure_map, plots.failures, plots.parameters, plots.slices):
        assert "no evaluation yet" in words(plot(tmp_path / "run"))


def test_a_run_under_way_is_drawn(tmp_path) -> None:
    drawn = []

    def look(view: fmnes.View) -> None:
        if view.generation == 5:
            drawn.extend(plots.as_svg(plot(tmp_path / "run")) for plot in OF_ONE)

    fmnes.minimize(bowl, [1.0, 2.0], 0.5, rng=1, max_evaluations=60, run_dir=tmp_path / "run", callback=look)
    assert len(drawn) == len(OF_ONE) and "evaluations" in drawn[0]


# -- bad input --------------------------------------------------------------------------------------------


def test_what_is_missing_is_said() -> None:
    result = fmnes.minimize(bowl, [1.0, 2.0], 0.5, rng=1, max_evaluations=20)
    for plot in (plots.failure_map, plots.failures, plots.parameters, plots.slices):
        with pytest.raises(fmnes.ArgumentError, match=r"without its evaluations.*keep_evaluations=True"):
            plot(result)
    optimizer = fmnes.Optimizer([1.0, 2.0], 0.5)
    with pytest.raises(fmnes.ArgumentError, match="of an Optimizer"):
        plots.convergence(optimizer.result())
    with pytest.raises(fmnes.ArgumentError, match=r"run: found 3, wanted a fmnes\.Result"):
        plots.slices(3)
    with pytest.raises(fmnes.RunError):
        plots.convergence("nowhere")
    with pytest.raises(fmnes.ArgumentError, match="runs: found none"):
        plots.compare()
    with pytest.raises(fmnes.ArgumentError, match="labels: found 1, wanted 2"):
        plots.compare(result, result, labels=["a"])
    with pytest.raises(fmnes.ArgumentError, match="labels: found 'ab'"):
        plots.compare(result, result, labels="ab")
    with pytest.raises(fmnes.ArgumentError, match="figure: found 3"):
        plots.as_svg(3)


def test_without_matplotlib_the_install_line_is_said() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
import fmnes
result = fmnes.minimize(lambda x: float(x @ x), [1.0, 2.0], 0.5, rng=1, max_evaluations=20)
try:
    fmnes.plots.convergence(result)
except fmnes.MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert 'pip install "fmnes[plot]"' in done.stdout, done.stderr


def test_nothing_is_kept_by_pyplot() -> None:
    code = """
import sys, fmnes
result = fmnes.minimize(lambda x: float(x @ x), [1.0, 2.0], 0.5, rng=1, max_evaluations=20)
fmnes.plots.as_svg(fmnes.plots.convergence(result))
assert "matplotlib.figure" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


# -- words, and SVG ---------------------------------------------------------------------------------------


def test_names_and_reasons_are_text() -> None:
    def fails(p: dict[str, float]) -> float:
        if p[HOSTILE] > 1:
            raise fmnes.Infeasible(HOSTILE + " and more" * 50)
        return p[HOSTILE] ** 2 + p["$a$"] ** 2

    space = {HOSTILE: fmnes.Real(start=1.0, sigma=0.5), "$a$": fmnes.Real(start=1.0, sigma=0.5)}
    result = fmnes.minimize(fails, space, rng=1, max_evaluations=60, keep_evaluations=True)
    for plot in (plots.failures, plots.parameters, plots.slices):
        svg = plots.as_svg(plot(result))
        assert "<script" not in svg and "\x1b" not in svg and "and more" * 9 not in svg
        shown = " ".join(ElementTree.fromstring(svg).itertext())
        assert "$x_1$" in shown or "</text><script>alert(" in shown
    assert "$a$" in " ".join(ElementTree.fromstring(plots.as_svg(plots.slices(result))).itertext())


def test_names_in_other_scripts_are_text() -> None:
    space = {"幅": fmnes.Real(0, 1), "_x": fmnes.Real(0, 1)}
    result = fmnes.minimize(lambda p: p["幅"], space, rng=1, max_evaluations=30, keep_evaluations=True)
    assert "幅" in plots.as_svg(plots.slices(result))


def test_the_svg_has_a_mark_for_each_evaluation_and_no_ids_to_clash(result) -> None:
    svg = plots.as_svg(plots.convergence(result))
    assert svg.startswith("<svg") and "date" not in svg and "<style" not in svg
    assert svg == plots.as_svg(plots.convergence(result))
    root = ElementTree.fromstring(svg)
    drawn = {
        group.get("class"): len(group.findall(".//{*}use")) for group in root.iter() if group.get("class")
    }
    assert drawn["failed"] == result.n_infeasible
    assert drawn["evaluations"] == result.nfev - result.n_infeasible
    assert 'id="axes' not in svg and 'id="figure' not in svg


def test_a_long_run_is_quick_and_small_and_says_what_it_leaves_out() -> None:
    """10^5 evaluations have their own measurement in the docs; here somewhat more than are drawn."""

    def fails(X: np.ndarray) -> np.ndarray:
        return np.where(X[:, 0] > 0.7, np.nan, (X**2).sum(axis=1))

    result = fmnes.minimize(
        fails,
        np.ones(6),
        0.5,
        rng=1,
        vectorized=True,
        max_evaluations=5_000,
        ftol=None,
        xtol=None,
        restarts=100,
        keep_evaluations=True,
    )
    assert len(result.evaluations) == 5_000
    for plot in (plots.convergence, plots.slices):
        assert len(plots.as_svg(plot(result))) < 600_000
    figure = plots.slices(result)
    first = figure.axes[0]
    shown = len(marks(first, "evaluations").get_offsets()) + len(marks(first, "failed").get_xdata())
    assert f"{shown:,} evaluations are drawn" in words(figure) and shown <= 4000
    axes = plots.convergence(result).axes[0]
    dots = marks(axes, "evaluations")
    assert dots.get_rasterized() and len(dots.get_xdata()) == 5_000 - result.n_infeasible
