"""`fmnes report`: one page, looked at in a real browser, whatever state the run is in, whatever it says."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fmnes
from fmnes.cli import app
from fmnes.html import document
from tests.browser import Browser, Page, open_browser

#: Markup, a script, a terminal's commands, and what would end an attribute.
HOSTILE = "<img src=x onerror='window.caught=1'><b>x</b></script>\x1b[31m\"'&amp;"
PARAMETERS = {
    "width": fmnes.Real(0.1, 10, log=True),
    HOSTILE: fmnes.Real(0, 5),
    "teeth": fmnes.Integer(1, 9),
}


def gear(point: dict[str, float]) -> float:
    width, height, teeth = point.values()
    if width * height < 2:
        raise fmnes.Infeasible(f"too thin {HOSTILE}")
    if teeth > 7:
        raise ValueError("no such wheel")
    return 10 * (width - 1) ** 2 + height**2 + (teeth - 3) ** 2


def command_line(*words: str | Path, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fmnes", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def write(run: Path) -> Path:
    page = run.parent / f"{run.name}.html"
    page.write_text(document.report(run))
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def gears(tmp_path_factory: pytest.TempPathFactory) -> tuple[fmnes.Result, Path]:
    run = tmp_path_factory.mktemp("gears") / "gears.run"
    result = fmnes.minimize(gear, PARAMETERS, rng=1, max_evaluations=300, run_dir=run)
    return result, write(run)


def check(page: Page) -> None:
    assert page.complaints == []
    assert page.sideways() == 0
    assert page.faint() == []
    assert page.foreign_requests() == []


def marks(page: Page, kind: str) -> int:
    """In the picture of the run's course."""
    found: int = page.evaluate(f"document.querySelectorAll('#course svg .{kind} use').length")
    return found


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 400])
def test_a_page_for_every_window(
    browser: Browser, gears: tuple[fmnes.Result, Path], width: int, dark: bool
) -> None:
    result, page_file = gears
    with browser.page(page_file.as_uri(), width, dark) as page:
        check(page)
        assert marks(page, "evaluations") == result.nfev - result.n_infeasible
        assert marks(page, "failed") == result.n_infeasible > 20
        behind = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert behind == ("rgb(22, 22, 22)" if dark else "rgb(255, 255, 255)")


def test_a_phone_shows_the_best_point_and_the_main_plots_whole(
    browser: Browser, gears: tuple[fmnes.Result, Path]
) -> None:
    hidden = """[...document.querySelectorAll('.wide')].filter((box) => box.scrollWidth > box.clientWidth + 1)
        .map((box) => box.closest('section').id)"""
    with browser.page(gears[1].as_uri(), 390) as page:
        assert set(page.evaluate(hidden)) <= {"where", "movement"}  # one panel for each parameter


def test_words_of_others_are_text(browser: Browser, gears: tuple[fmnes.Result, Path]) -> None:
    with browser.page(gears[1].as_uri()) as page:
        assert page.evaluate("window.caught") is None
        assert page.evaluate("document.querySelectorAll('script, b, main img, body > img').length") == 0
        shown = page.evaluate("document.body.innerText")
        assert f"too thin {HOSTILE}".replace("\x1b", "\\x1b") in shown
        assert "\x1b" not in gears[1].read_text()
        # If it were markup after all, the page's own policy forbids it to do anything.
        page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.caught=1\">')"
        )
        time.sleep(0.2)
        assert page.evaluate("window.caught") is None


def test_it_tells_the_whole_story(browser: Browser, gears: tuple[fmnes.Result, Path]) -> None:
    result, page_file = gears
    with browser.page(page_file.as_uri()) as page:

        def told(part: str) -> str:
            words: str = page.evaluate(f"document.getElementById('{part}').innerText")
            return words

        assert "gear" in told("head") and "300" in told("head") and f"{result.fun:.8g}" in told("head")
        assert "the evaluation budget is spent (300 of 300)" in told("next")
        assert f"fmnes.resume('{page_file.with_suffix('')}', gear, max_evaluations=600)" in told("next")
        assert "The search had not converged" in told("next")
        for value in result.x.values():
            assert f"{value:.8g}" in told("best")
        assert "0.1 … 10, log" in told("best") and "at evaluation" in told("best")
        # The marks in the ranges: the width on its logarithmic scale.
        left = page.evaluate("parseFloat(document.querySelector('.range i').style.left)")
        assert left == pytest.approx(50 + 50 * math.log10(result.x["width"]), abs=0.1)
        assert all(f"{failure.count} × " in told("failures") for failure in result.failures)
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert "raise ValueError" in told("failures") or "no such wheel" not in told("failures")
        assert "afm-nes" in told("settings") and fmnes.__version__ in told("settings")
        assert np.__version__ in told("settings") and "seed" in told("settings")
        titles = page.evaluate("[...document.querySelectorAll('h2')].map(h => h.innerText)")
        assert titles[3:10] == [
            "Where it fails",
            "Why evaluations failed",
            "What failures have in common, and which parameters matter",
            "When it fails",
            "The parameters",
            "Step sizes",
            "Settings",
        ]


PROGRAM = """
import sys
a, b = map(float, sys.argv[1:])
if a < 0:
    print("the mesh is <i>tangled</i>", file=sys.stderr)
    sys.exit(3)
print(a**2 + b**2)
"""


def test_a_program_with_its_output_and_its_directory(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "simulate.py").write_text(PROGRAM)
    command = fmnes.Command([sys.executable, str(tmp_path / "simulate.py"), "{a}", "{b}"])
    parameters = {"a": fmnes.Real(-2, 2, start=1.0), "b": fmnes.Real(-2, 2)}
    run = tmp_path / "program.run"
    fmnes.minimize(command, parameters, rng=1, max_evaluations=20, run_dir=run)
    with browser.page(write(run).as_uri()) as page:
        check(page)
        told = page.evaluate("document.getElementById('failures').innerText")
        assert "× exited with code 3" in told and "the mesh is <i>tangled</i>" in told
        (kept,) = [line for line in told.splitlines() if line.startswith("Its directory: ")]
        assert Path(kept.removeprefix("Its directory: ")).parent == run / "kept"
        assert "simulate.py" in page.evaluate("document.getElementById('head').innerText")


def test_the_edge_of_the_failing_region_is_named(browser: Browser, tmp_path: Path) -> None:
    def edge(x: np.ndarray) -> float:
        return float(np.sum(x)) if (x >= 0).all() else math.nan

    run = tmp_path / "edge.run"
    result = fmnes.minimize(edge, [1.0, 1.0], 0.5, rng=1, max_evaluations=20_000, run_dir=run)
    assert result.success and result.second_looks
    with browser.page(write(run).as_uri()) as page:
        told = page.evaluate("document.getElementById('next').innerText")
        assert "edge of the failing region" in told and "found nothing better" in told
        assert "It ended as a success." in told


GOING = """
import sys, time, fmnes
def slow(x):
    time.sleep(0.01)
    return float(x @ x)
fmnes.minimize(slow, [1.0, 1.0], 0.5, rng=1, run_dir=sys.argv[1], restarts=1000)
"""


def test_a_run_under_way_and_then_killed(browser: Browser, tmp_path: Path) -> None:
    run = tmp_path / "going.run"
    driver = subprocess.Popen([sys.executable, "-c", GOING, str(run)])
    try:
        while not run.exists() or not (run / "config.json").exists() or fmnes.read_run(run).answered < 10:
            time.sleep(0.05)
        with browser.page(write(run).as_uri()) as page:
            check(page)
            told = page.evaluate("document.getElementById('next').innerText")
            assert f"Running (process {driver.pid}" in told and "fmnes stop" in told
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    with browser.page(write(run).as_uri()) as page:
        check(page)
        told = page.evaluate("document.getElementById('next').innerText")
        assert "The process that ran it is gone." in told and "fmnes.resume(" in told
        assert marks(page, "evaluations") == fmnes.read_run(run).answered


@pytest.mark.parametrize("evaluations", [1, 60])
def test_nothing_has_succeeded(browser: Browser, tmp_path: Path, evaluations: int) -> None:
    def never(x: np.ndarray) -> float:
        raise fmnes.Infeasible("the solver diverged")

    run = tmp_path / "never.run"
    fmnes.minimize(never, [1.0, 1.0], 0.5, rng=1, max_evaluations=evaluations, run_dir=run)
    with browser.page(write(run).as_uri(), width=400) as page:
        check(page)
        assert "No evaluation has succeeded so far" in page.evaluate("document.body.innerText")
        assert marks(page, "failed") == evaluations


def test_long_points_are_cut(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its pictures, which are of some of them only (tests/test_plots.py) and take long."""
    monkeypatch.setattr(document, "drawings", lambda run: {})
    run = tmp_path / "long.run"
    fmnes.minimize(lambda x: float(x @ x), np.ones(500), 0.5, rng=1, max_evaluations=30, run_dir=run)
    with browser.page(write(run).as_uri(), width=400) as page:
        check(page)
        assert page.evaluate("document.querySelectorAll('#best tbody tr').length") == 41
        assert "460 more" in page.evaluate("document.getElementById('best').innerText")


def test_the_command_writes_one_file_and_says_where(tmp_path: Path) -> None:
    run = tmp_path / "small.run"
    fmnes.minimize(lambda x: float(x @ x), [1.0, 1.0], 0.5, rng=1, max_evaluations=30, run_dir=run)
    before = sorted(path.name for path in run.iterdir())
    done = command_line("report", "small.run", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the report is small.run/report.html\n", "")
    assert sorted(path.name for path in run.iterdir()) == sorted([*before, "report.html"])
    assert not app(["report", str(run)], standalone_mode=False)  # over the one from before
    assert not app(["report", str(run), "--output", str(tmp_path / "mine.html")], standalone_mode=False)
    assert (tmp_path / "mine.html").read_text().startswith("<!doctype html>")
    assert fmnes.resume(run, lambda x: float(x @ x), max_evaluations=40).nfev == 40  # it is in nobody's way


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    run = tmp_path / "small.run"
    fmnes.minimize(lambda x: float(x @ x), [1.0, 1.0], 0.5, rng=1, max_evaluations=30, run_dir=run)
    (run / "report.html").write_text("<p>my own notes</p>")
    for words, told in (
        ([run], "found a file that is not a report, wanted another place"),
        (
            [run, "--output", tmp_path / "no" / "such.html"],
            "could not be written (No such file or directory)",
        ),
        ([tmp_path], f"did you mean '{run}'?"),
        ([tmp_path / "smal.run"], "did you mean 'small.run'?"),
    ):
        with pytest.raises(fmnes.FmnesError, match=re.escape(told)):
            app(["report", *map(str, words)], standalone_mode=False)
    assert (run / "report.html").read_text() == "<p>my own notes</p>"
    log = run / "evaluations.sqlite"
    log.write_bytes(log.read_bytes()[:5000])
    done = command_line("report", run, "--output", tmp_path / "mine.html")
    assert done.returncode == 2 and "found a damaged evaluation log" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "mine.html").exists()


@pytest.mark.parametrize("words", [["report", "a.run"], ["watch", "a.run"], ["minimize", "--open", "p.toml"]])
def test_without_matplotlib_the_install_line_is_said(tmp_path: Path, words: list[str]) -> None:
    fmnes.minimize(lambda x: float(x @ x), [1.0], 0.5, rng=1, max_evaluations=9, run_dir=tmp_path / "a.run")
    (tmp_path / "p.toml").write_text('command = ["echo", "{a}"]\n[parameters.a]\nlower = 0\nupper = 1\n')
    code = "import sys; sys.modules['matplotlib'] = None; from fmnes.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0
    assert 'pip install "fmnes[plot]"' in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "p.run").exists()


def test_a_run_on_the_command_line_ends_with_the_reports_line(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        'command = ["echo", "{a}"]\n[parameters.a]\nlower = 0\nupper = 1\n[run]\nmax_evaluations = 9\n'
    )
    done = command_line("minimize", "p.toml", cwd=str(tmp_path))
    assert "as a page with pictures:  fmnes report p.run\n" in done.stdout
    (tmp_path / "q.toml").write_text('command = ["false", "{a}"]\n[parameters.a]\nlower = 0\nupper = 1\n')
    done = command_line("minimize", "q.toml", cwd=str(tmp_path))
    assert done.returncode == 2 and "as a page with pictures:  fmnes report q.run\n" in done.stderr
    assert not app(["report", str(tmp_path / "q.run")], standalone_mode=False)
    assert "repeated" in (tmp_path / "q.run" / "report.html").read_text()
