"""The amplifier of docs/op-amp.md, simulated by ngspice: apt-get install ngspice"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fmnes
from examples.__main__ import main as examples
from examples.op_amp import steps
from examples.op_amp.run import FALLING, QUICK, main, simulated
from fmnes.cli.problem_file import read_problem

HERE = Path(__file__).parents[2] / "examples" / "op_amp"
needs_ngspice = pytest.mark.skipif(
    shutil.which("ngspice") is None and os.environ.get("FMNES_SIMULATORS") != "required",
    reason="there is no ngspice here",
)
START = {
    "bias": 20.0,
    "tail": 10.0,
    "sink": 60.0,
    "pair": 10.0,
    "mirror": 10.0,
    "output": 200.0,
    "resistor": 1.0,
    "capacitor": 1.0,
}


def circuit(folder: Path = HERE) -> fmnes.Command:
    return replace(read_problem(folder / "problem.toml").command, keep="none")


@needs_ngspice
def test_it_runs_as_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples(["op_amp", "--quick", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "start: 1.011 mW" in said
    assert "both edges tested: " in said and "only the rising edge tested: " in said
    run = fmnes.read_run(tmp_path / "op_amp.run")
    table = run.evaluations
    assert len(table) == QUICK and 0 < np.isnan(table.value).sum() < QUICK
    settled = ~np.isnan(table.value)
    assert (table.outputs["rising"][settled] <= 10).all() and (table.outputs["falling"][settled] <= 10).all()
    assert 'class="failed"' in (tmp_path / "op_amp.svg").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"op_amp.run", "op_amp.svg"}
    with pytest.raises(SystemExit, match="an earlier run"):
        main(["--out", str(tmp_path)])


@needs_ngspice
def test_a_weak_sink_is_seen_by_the_falling_edge_alone() -> None:
    both = circuit()
    rising_only = replace(both, fail_if=[text for text in both.fail_if if text != FALLING])
    weak = {**START, "sink": 20.0, "output": 66.0}
    with pytest.raises(fmnes.Infeasible, match=FALLING):
        both(weak)
    assert rising_only(weak) < both(START)
    step = simulated(rising_only, weak)
    assert steps.settling(step, steps.RISING) < 100 < steps.settling(step, steps.FALLING)


@needs_ngspice
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bias": 2.0}, "the rising edge does not settle"),
        ({"tail": 100.0, "sink": 2.0}, "it does not follow at rest"),
    ],
)
def test_what_does_not_follow_fails_with_its_reason(change: dict[str, float], reason: str) -> None:
    with pytest.raises(fmnes.Infeasible, match=reason):
        circuit()({**START, **change})


@needs_ngspice
def test_a_simulation_that_ends_early_has_failed(tmp_path: Path) -> None:
    for name in ("problem.toml", "follower.cir.in"):
        shutil.copy(HERE / name, tmp_path)
    netlist = tmp_path / "follower.cir.in"
    text = netlist.read_text()
    assert "tran 2n 1.1u" in text
    netlist.write_text(text.replace("tran 2n 1.1u", "tran 2n 0.5u"))  # it ends before the pulse falls
    with pytest.raises(fmnes.Infeasible, match="at=1099n failed!"):
        circuit(tmp_path)(START)


def test_without_ngspice_the_line_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt-get install ngspice"):
        main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_settling_is_when_it_stays_near() -> None:
    time = np.arange(0.0, 1100.0, 2.0)
    given = np.where((time > 100) & (time <= 600), 2.2, 1.2)
    late = np.where((time > 100) & (time <= 640), 2.2, 1.2)
    rings = np.where(time == 300, 2.3, given)
    assert steps.settling(steps.Step(time, given, rings), steps.RISING) == pytest.approx(201.8)
    assert steps.settling(steps.Step(time, given, late), steps.FALLING) == pytest.approx(41.98)
    assert steps.settling(steps.Step(time, given, np.full(len(time), 2.2)), steps.FALLING) == np.inf
