"""Every example at reduced size, with its real simulator: it says what it found, and draws it."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from examples.__main__ import NAMES, main, ran
from examples.training.network import LOG, RANGES, backward, forward, loss
from examples.training.run import middle

ROOT = Path(__file__).parents[2]


#: Run by tests of their own, in the same way, which look at more of what comes of them.
ELSEWHERE = ("airfoil", "op_amp", "crashing_program")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_an_example_runs_and_draws(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "lens":  # one of them by the command itself
        command = [sys.executable, "-m", "examples", name, "--quick", "--out", str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        said = done.stdout
    else:
        main([name, "--quick", "--out", str(tmp_path)])
        said = capsys.readouterr().out
    assert "%" in said  # the share that failed
    assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_a_folder_that_cannot_be_made_is_told_before_the_search(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=r"--out: found .*file, wanted a folder"):
        import_module(f"examples.{name}.run").main(["--out", str(tmp_path / "file")])
    assert not capsys.readouterr().out


def test_without_a_package_an_example_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("examples.training.run.find_spec", lambda name: None)
    assert not ran("training", quick=True)
    assert (
        'training was left out: optuna is not installed: pip install "fmnes[optuna]"'
        in capsys.readouterr().err
    )
    with pytest.raises(SystemExit, match="not run: training"):
        main(["training", "--quick"])
    with pytest.raises(SystemExit):
        main(["trainings"])
    assert "found 'trainings', wanted some of lens" in capsys.readouterr().err


def test_what_cannot_be_installed_is_named_with_the_line_to_type(tmp_path: Path) -> None:
    for program in ("bash", "id", "env"):  # and no apt-get
        found = subprocess.run(["which", program], capture_output=True, text=True, check=True).stdout.strip()
        (tmp_path / program).symlink_to(found)

    def install(*programs: str) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "examples" / "install"), *programs]
        return subprocess.run(
            command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=300, check=False
        )

    assert install("bash", "env").returncode == 0
    done = install("bash", "xfoil", "gcc")
    assert done.returncode == 1 and done.stderr.endswith("apt-get install xfoil gcc libc6-dev\n")


def test_a_training_is_a_function_of_its_parameters_and_diverges_at_a_high_rate() -> None:
    assert set(LOG) < set(RANGES) and RANGES.keys() == middle().keys()
    start = middle()
    assert 0.1 < loss(**start) == loss(**start) < 1
    assert loss(**{**start, "rate": 10.0}) != loss(**{**start, "rate": 10.0})  # NaN
    assert loss(**{**start, "rate": 1e-3}) > loss(**start)  # too slow


def test_the_slopes_of_the_training_are_those_of_its_loss() -> None:
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal((1, m, n)) for m, n in ((2, 5), (5, 5), (5, 1))]
    offsets = [rng.standard_normal((1, 1, n)) for n in (5, 5, 1)]
    x, y = rng.standard_normal((1, 7, 2)), rng.standard_normal((1, 7, 1))

    def squares() -> float:
        return float(np.sum((forward(weights, offsets, x)[-1] - y) ** 2))

    layers = forward(weights, offsets, x)
    slopes = backward(weights, layers, 2 * (layers[-1] - y))
    for array, slope in zip((*weights, *offsets), slopes, strict=True):
        for place in np.ndindex(array.shape):
            kept, values = array[place], []
            for step in (1e-6, -1e-6):
                array[place] = kept + step
                values.append(squares())
            array[place] = kept
            assert slope[place] == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-4)
