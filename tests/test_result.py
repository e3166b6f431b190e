"""A result as people see it and as a value: text, the table of a notebook, equality, what it holds."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import re
import typing
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import Failure, Result, StopReason, View
from fmnes.constraints import ConstraintResult
from fmnes.result import Best, Columns, Noise
from fmnes.run.history import COLUMNS, History
from tests.rows import through

nan, inf = math.nan, math.inf


def half(x: np.ndarray) -> float:
    if x[0] < 0.1:
        raise fmnes.Infeasible("too thin")
    return float(x @ x)


@pytest.fixture(scope="module")
def found() -> Result:
    return fmnes.minimize(half, [1.0, 2.0], 0.5, rng=1, max_evaluations=200)


def named(result: Result) -> Result:
    point = {"width": 1.25, "layers": 4}
    parameters = {"width": fmnes.Real(0, 10), "layers": fmnes.Integer(1, 12)}
    return replace(result, x=point, x_mean=point, parameters=parameters)


def empty(**change: Any) -> Result:
    given = {"x": None, "fun": inf, "success": False, "stop_reason": None, "message": "", "nfev": 0, "nit": 0}
    given |= {"n_infeasible": 0, "x_mean": np.zeros(2), "seed": None}
    return Result(**{**given, **change})


# -- text -------------------------------------------------------------------------------------------------


def test_repr_says_in_a_few_lines_what_came_of_it(found: Result) -> None:
    lines = repr(found).splitlines()
    assert lines[0] == "fmnes.Result" and len(lines) == 6
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[1:]}
    assert told == {
        "x": f"[{found.x[0]:.8g}, {found.x[1]:.8g}]",
        "fun": f"{found.fun:.8g}",
        "success": "False",
        "stop_reason": f"MAX_EVALUATIONS: {found.message}",
        "nfev": f"200 evaluations, {found.n_infeasible} of them failed",
    }
    assert found.n_infeasible > 0 and all(hasattr(found, name) for name in told)
    assert "none failed" in repr(replace(found, n_infeasible=0))


def test_print_shows_x_by_name_and_why_evaluations_failed(found: Result) -> None:
    lines = [line.split() for line in str(named(found)).splitlines()]
    assert lines[1] == ["x", "width", "=", "1.25"] and lines[2] == ["layers", "=", "4"]
    assert lines[-1] == ["failures", str(found.n_infeasible), "×", "too", "thin"]
    assert "x            {'width': 1.25, 'layers': 4}" in repr(named(found))
    assert str(found).startswith(repr(found))  # without names it is the same, and the failures
    many = replace(found, failures=[replace(found.failures[0], reason=f"reason {i}") for i in range(9)])
    assert "reason 2" in str(many) and "reason 3" not in str(many) and "... 6 more reasons" in str(many)


@pytest.mark.parametrize("d", [1, 12, 13, 100, 1_000_000])
def test_a_long_point_is_cut_to_its_first_and_last_entries(found: Result, d: int) -> None:
    x = np.arange(float(d))
    line = repr(replace(found, x=x)).splitlines()[1]
    shown = [entry.strip() for entry in line.split(maxsplit=1)[1].strip("[]").split(",")]
    wanted = x.tolist() if d <= 12 else [*x[:8], "...", *x[-3:]]
    assert shown == [value if value == "..." else f"{value:.8g}" for value in wanted]
    by_name = {f"p{i}": i for i in range(min(d, 100))}
    text = str(replace(found, x=by_name))
    assert ("... " in text) == (d > 12) and f"p{len(by_name) - 1} = " in text
    assert (f"... {len(by_name) - 11} more" in text) == (d > 12)
    assert len(text.splitlines()) <= 19


def test_text_of_nothing_and_of_everything() -> None:
    assert "None: no feasible point" in repr(empty()) and "inf" in repr(empty())
    running = fmnes.Optimizer([1.0], 1.0).result()
    assert "stop_reason  None: still running" in repr(running)
    assert "12 known points" in str(empty(n_repeated=12))
    for x in (np.array([nan, inf]), np.empty(0), {"a": nan}):
        assert "x  " in repr(empty(x=x)) and "x  " in str(empty(x=x))


HOSTILE = "<script>alert(1)</script>\x1b[2J\n\r\0\u202e\ud800&\"'`</td></svg>"


def test_words_of_others_are_plain_text_in_one_line(found: Result) -> None:
    failure = Failure(HOSTILE, 3, np.zeros((1, 2)), HOSTILE)
    hostile = replace(found, x={HOSTILE: 1.0, "b" * 1000: 2}, message=HOSTILE * 100, failures=[failure])
    for text in (repr(hostile), str(hostile)):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert max(map(len, text.splitlines())) < 400
        text.encode()
    assert len(repr(hostile).splitlines()) == 6 and len(str(hostile).splitlines()) == 8
    assert "\\x1b[2J" in str(hostile)


# -- notebooks --------------------------------------------------------------------------------------------


def rows_of(html: str) -> dict[str, str]:
    """{head: cell} of the table; raises for what is not well-formed."""
    tree = ElementTree.fromstring(html.replace("<br>", "<br/>"))
    rows = {}
    for row in tree.findall(".//tr"):
        head, cell = row.findall("*")
        rows["".join(head.itertext())] = "\n".join(cell.itertext())
    return rows


def line_of(html: str) -> np.ndarray:
    """The points of the course. (n, 2)"""
    (points,) = re.findall(r'points="([^"]*)"', html)
    return np.array([[float(number) for number in point.split(",")] for point in points.split()])


def test_a_notebook_has_a_table_and_the_course_of_the_run(found: Result) -> None:
    html = named(found)._repr_html_()
    rows = rows_of(html)
    assert rows["x"] == "width = 1.25\nlayers = 4" and rows["fun"] == f"{found.fun:.8g}"
    assert rows["nfev"] == f"200 evaluations, {found.n_infeasible} of them failed"
    assert rows["stop_reason"].startswith("MAX_EVALUATIONS: ") and rows["success"] == "False"
    assert rows["failures"] == f"{found.n_infeasible} × too thin"
    points = line_of(html)
    # The best falls, which on a screen is down, and the evaluations go on.
    assert (np.diff(points[:, 0]) > 0).all() and (np.diff(points[:, 1]) >= 0).all()
    assert points[-1, 0] == 320 and points[0, 1] == 3 and points[-1, 1] == 77
    assert "in 200 evaluations" in html or f"in {found.history['evaluations'][-1]} evaluations" in html
    assert "on a log scale" in html


def test_the_table_needs_nothing_and_has_the_colours_of_the_page(found: Result) -> None:
    html = found._repr_html_()
    assert "currentColor" in html and not re.search(r"#[0-9a-f]{3}|rgb|background|black|white", html)
    assert not re.search(r"<script|<link|<style|http|url\(|src=|href=| on\w+=", html)


def test_markup_of_others_is_text(found: Result) -> None:
    failure = Failure(HOSTILE, 3, np.zeros((1, 2)), HOSTILE)
    html = replace(found, x={HOSTILE: 1.0}, message=HOSTILE, failures=[failure])._repr_html_()
    rows = rows_of(html)
    assert rows["x"].startswith("<script>alert(1)</script>\\x1b[2J\\n") and rows["x"].endswith(" = 1")
    assert rows["failures"].startswith("3 × <script>") and "<script" not in html
    html.encode()


def history_of(best: Any, evaluations: Any = None) -> Columns:
    evaluations = np.arange(1, len(best) + 1) * 10 if evaluations is None else evaluations
    return {"best": np.array(best, dtype=float), "evaluations": np.array(evaluations, dtype=np.int64)}


#: (best values, is there a line?)
COURSES: dict[str, tuple[Any, bool]] = {
    "none": ([], False),
    "one": ([1.0], False),
    "two": ([2.0, 1.0], True),
    "never feasible": ([inf] * 5, False),
    "late": ([inf, inf, 3.0, 2.0, 2.0], True),
    "once": ([inf, inf, 3.0], False),
    "NaN": ([nan, 3.0, nan, 1.0], True),
    "flat": ([3.0] * 5, True),
    "zero": ([0.0, 0.0], True),
    "below zero": ([3.0, 0.0, -3.0], True),
    "to zero": ([3.0, 1e-300, 0.0], True),
    "all floats": ([1.7e308, 1.0, -1.7e308], True),
    "all scales": ([1.7e308, 1.0, 5e-324], True),
    "very long": (np.geomspace(1e9, 1e-9, 32_768), True),
}


@through("name", COURSES)
def test_every_course_can_be_drawn(name: str) -> None:
    best, drawn = COURSES[name]
    html = empty(history=history_of(best))._repr_html_()
    rows_of(html)
    assert ("<svg" in html) == drawn and len(html) < 20_000
    if drawn:
        points = line_of(html)
        assert np.isfinite(points).all() and 2 <= len(points) <= 121
        assert (points >= 0).all() and (points[:, 0] <= 320).all() and (points[:, 1] <= 80).all()
        assert (np.diff(points[:, 1]) >= 0).all()


def test_a_course_is_even_over_the_evaluations_and_ends_with_the_last() -> None:
    evaluations = np.r_[np.arange(1, 10_001), 20_000]
    points = line_of(empty(history=history_of(np.linspace(9, 1, 10_001), evaluations))._repr_html_())
    assert points[-1].tolist() == [320.0, 77.0] and np.diff(points[:-1, 0]).max() < 3


def test_without_a_history_there_is_a_table_alone() -> None:
    for history in ({}, {"best": np.ones(3)}):
        assert "<svg" not in empty(history=history)._repr_html_()
    assert rows_of(fmnes.Optimizer([1.0], 1.0).result()._repr_html_())["x"] == "None: no feasible point"


def test_the_table_is_small_whatever_the_run_was() -> None:
    failures = [Failure(HOSTILE * 1000 + str(i), i, np.zeros((1, 2)), "") for i in range(1000)]
    x: dict[str, Any] = {f"{i}" + '"' * 10_000: float(i) for i in range(1000)}
    best = np.geomspace(1e300, 1e-300, 32_768)
    result = empty(x=x, message="&" * 10**6, failures=failures, history=history_of(best))
    assert len(result._repr_html_().encode()) < 20_000
    rows_of(result._repr_html_())


# -- equality and copies ----------------------------------------------------------------------------------


def test_the_same_seed_gives_an_equal_result(found: Result) -> None:
    again = fmnes.minimize(half, [1.0, 2.0], 0.5, rng=1, max_evaluations=200)
    assert found == again and (found != again) is False
    assert (found.history["seconds"] != again.history["seconds"]).any()  # all but the time it took
    assert found != fmnes.minimize(half, [1.0, 2.0], 0.5, rng=2, max_evaluations=200)


OTHER: dict[str, Any] = {
    "x": np.array([1.0, 2.0]),
    "fun": 17.0,
    "success": True,
    "stop_reason": StopReason.XTOL,
    "message": "other",
    "nfev": 1,
    "nit": 1,
    "n_infeasible": 1,
    "x_mean": np.array([1.0, 2.0]),
    "seed": 2,
    "failures": [],
    "history": {},
    "second_looks": 7,
    "covariance": None,
    "sigma0": 3.0,
    "n_repeated": 1,
    "parameters": {"a": fmnes.Real(0, 1), "b": fmnes.Real(0, 1)},
    "constraints": {"a": ConstraintResult(1.0, None, 2.0, 0.0, True, False, 0.0)},
    "noise": Noise(0.1, 0.5, 3, "one"),
    "fun_error": 0.1,
    "best_seen": Best(np.array([1.0, 2.0]), 1.0, 3),
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Result) if field.compare])
def test_a_result_with_one_other_field_is_another(found: Result, name: str) -> None:
    assert name in OTHER, "say here what else it may be"
    other = replace(found, **{name: OTHER[name]})
    assert other != found and (other == found) is False and other == copy.deepcopy(other)


def test_equality_is_by_value(found: Result) -> None:
    again = replace(found, x=found.x.copy(), covariance=found.covariance.copy(), history=dict(found.history))
    assert again == found and again is not found
    assert replace(found, sigma0=nan) == replace(found, sigma0=float("nan")) != found
    assert replace(found, x=np.array([nan, 1.0])) == replace(found, x=np.array([nan, 1.0]))
    assert replace(found, x=np.array([nan, 1.0])) != replace(found, x=np.array([nan, 2.0]))
    assert replace(found, x=found.x[:1]) != found and replace(found, x=None) != found
    assert replace(found, x=found.x.tolist()) != found  # another kind of point
    assert named(found) == named(found) != replace(named(found), x={"width": 1.25, "layers": 5})
    worse = {**found.history, "best": found.history["best"] + 1}
    assert replace(found, history=worse) != found
    less = {name: column for name, column in found.history.items() if name != "sigma"}
    assert replace(found, history=less) != found
    assert found != 3 and found != "result" and (found == object()) is False
    assert found.__eq__(3) is NotImplemented


def test_views_failures_and_bests_are_equal_by_value() -> None:
    def view(**change: Any) -> View:
        opt = fmnes.Optimizer([1.0, 2.0], 0.5, rng=1)
        opt.tell([half(x) for x in opt.ask()])
        return replace(opt.view(), **change)

    assert view() == view() and view() != view(mean=np.zeros(2)) and view() != view(axis_lengths=np.zeros(2))
    assert view(feasible_share=nan) == view(feasible_share=nan) != view()
    assert view() != view(best=Best(np.zeros(2), 1.0, 1)) and view() != "view"
    assert view(mean={"a": 1.0}) == view(mean={"a": 1.0}) != view(mean={"a": 2.0})
    point = np.array([1.0, 2.0])
    assert Best(point, 1.0, 3) == Best(point.copy(), 1.0, 3) == (point.copy(), 1.0, 3)
    assert Best(point, 1.0, 3) != Best(point + 1, 1.0, 3) and Best(point, 1.0, 3) != Best(point, 1.0, 4)
    assert (Best(point, 1.0, 3) != Best(point.copy(), 1.0, 3)) is False and Best(point, 1.0, 3) != 5
    failure = Failure("why", 2, np.ones((1, 2)), "")
    assert failure == replace(failure, x=np.ones((1, 2))) != replace(failure, x=np.zeros((1, 2)))
    assert failure != replace(failure, reason="other") and failure != ("why", 2)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]
)
def test_copies_and_pickles_are_equal(found: Result, copied: Any) -> None:
    views: list[View] = []
    fmnes.minimize(half, [1.0, 2.0], 0.5, rng=1, max_evaluations=40, callback=views.append)
    for value in (found, named(found), empty(), found.failures[0], views[-1], views[-1].best):
        assert copied(value) == value and type(copied(value)) is type(value)
        assert repr(copied(value)) == repr(value)


def test_what_holds_arrays_has_no_hash_and_cannot_be_changed(found: Result) -> None:
    opt = fmnes.Optimizer([1.0], 1.0)
    for value in (found, found.failures[0], opt.view(), Best(np.ones(2), 1.0, 1)):
        with pytest.raises(TypeError, match="unhashable"):
            hash(value)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.fun = 0.0  # type: ignore[misc]


# -- what it holds ----------------------------------------------------------------------------------------


def test_the_history_holds_the_documented_columns(found: Result) -> None:
    assert tuple(found.history) == COLUMNS == tuple(Columns.__annotations__)
    for name, hint in typing.get_type_hints(Columns).items():
        column = found.history[name]  # type: ignore[literal-required]
        assert column.dtype == typing.get_args(typing.get_args(hint)[1])[0], name
        assert column.shape == (found.nit,)
    assert tuple(History().columns()) == COLUMNS


def test_failed_evaluations_are_counted_in_one_way() -> None:
    """In the view and in the result; points outside the bounds cost none, and are not among them."""
    seen: list[tuple[View, int]] = []
    failed = 0

    def fun(x: np.ndarray) -> float:
        nonlocal failed
        failed += x[0] > 0.9
        return nan if x[0] > 0.9 else float(x @ x)

    result = fmnes.minimize(
        fun,
        [0.95, 0.5],  # the start fails: it counts too
        0.3,
        bounds=(0, 1),
        bounds_as="failure",
        rng=1,
        restarts=2,
        max_evaluations=3000,
        callback=lambda view: seen.append((view, failed)),
    )
    assert result.n_infeasible == failed > 1 and result.history["restart"][-1] >= 2
    assert all(view.n_infeasible == count for view, count in seen)


def test_the_share_of_a_generation_is_of_its_points_also_of_those_outside_the_bounds() -> None:
    opt = fmnes.Optimizer([0.0, 0.5], 0.1, bounds=(0, 1), bounds_as="failure", population_size=20, rng=1)
    inside = opt.ask()
    assert 0 < len(inside) < 20
    opt.tell([nan, *(1.0 for _ in inside[1:])])
    view = opt.view()
    assert view.feasible_share == (len(inside) - 1) / 20
    assert (view.n_infeasible, view.evaluations) == (1, len(inside))


def test_every_field_is_in_the_docs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "results.md").read_text(encoding="utf-8")
    result, history, view = (
        part.split("\n## ")[0] for part in re.split(r"\n## The (?=result|history|view)", page)[1:]
    )
    for part, kind in ((result, Result), (history, Columns), (view, View)):
        told = {
            word for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for word in row.split("`")[1::2]
        }
        assert told - {"vector"} == {name for name in kind.__annotations__}, kind
