"""A stored run directory stays readable: the formats of docs/stability.md are frozen.

`python -m tests.test_frozen_formats` writes it: for a new format only, and into a new folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import fmnes
from fmnes.run import state

STORED = Path(__file__).parent / "data" / "format-1"
GENERATIONS = 6
#: Not empty: the next evaluation is interrupted.
interrupt: list[bool] = []


def simulate(p: dict[str, float]) -> tuple[float, dict[str, float]]:
    if interrupt:
        raise KeyboardInterrupt
    if p["width"] > 3:
        raise fmnes.Infeasible("mesh failed")
    return (p["width"] - 1) ** 2 + p["layers"], {"stress": 2 * p["width"]}


def make() -> None:
    space = {"width": fmnes.Real(0, 4, start=2.5), "layers": fmnes.Integer(1, 5)}

    def observe(view: fmnes.View) -> None:
        if view.generation == GENERATIONS:
            interrupt.append(True)

    # Every evaluation is before the last snapshot. A resume then replays none: their points may differ in the
    # last bit on another processor.
    state.SNAPSHOT_SECONDS = 0.0
    fmnes.minimize(simulate, space, rng=1, surrogate=False, callback=observe, run_dir=STORED)
    for name in ("lock", "snapshot.first.npz", "snapshot.previous.npz"):
        (STORED / name).unlink(missing_ok=True)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED, tmp_path / "a.run"))


def test_its_evaluations_are_read(run_dir: Path) -> None:
    table = fmnes.read_run(run_dir).evaluations
    width, layers, value = table["width"], table["layers"], table["value"]
    failed = table["status"] == "infeasible"
    assert len(table) > 30 and 0 < failed.sum() < 10
    assert (failed == (width > 3)).all() and (table["reason"] == "mesh failed").sum() == failed.sum()
    works = ~failed
    np.testing.assert_allclose(value[works], ((width - 1) ** 2 + layers)[works], rtol=1e-12)
    np.testing.assert_allclose(table["stress"][works].astype(float), 2 * width[works], rtol=1e-12)


def test_its_result_is_read(run_dir: Path) -> None:
    run = fmnes.read_run(run_dir)
    result = run.result
    assert result is not None and result.stop_reason is fmnes.StopReason.INTERRUPTED
    assert result.nit == GENERATIONS and result.nfev == len(run.evaluations)
    assert isinstance(result.x, dict) and result.fun == pytest.approx(simulate(result.x)[0], rel=1e-12)
    assert result.failures[0].reason == "mesh failed" and result.n_infeasible == result.failures[0].count
    assert run.parameters is not None and list(run.parameters) == ["width", "layers"]


@pytest.mark.filterwarnings("ignore")  # it was made by another NumPy, perhaps
def test_it_is_resumed(run_dir: Path) -> None:
    before = fmnes.read_run(run_dir).result
    result = fmnes.resume(run_dir, simulate, max_evaluations=100)
    assert before is not None and before.nfev < 50
    assert result.nfev == 100 and result.fun <= before.fun


if __name__ == "__main__":
    make()
