"""The driver for OpenMDAO on OpenMDAO's own problems, and on a beam whose analysis fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes

om = pytest.importorskip("openmdao.api")
from openmdao.test_suite.components.paraboloid import Paraboloid  # noqa: E402
from openmdao.test_suite.components.sellar import SellarDerivatives  # noqa: E402

from fmnes.integrations.openmdao import FMNESDriver  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # OpenMDAO writes reports
    monkeypatch.setenv("OPENMDAO_REPORTS", "0")


def paraboloid(driver: Any, **scaling: float) -> Any:
    """Its minimum −27.333 is at (6.667, −7.333)."""
    problem = om.Problem(driver=driver)
    problem.model.add_subsystem("comp", Paraboloid(), promotes=["*"])
    problem.model.add_design_var("x", lower=-50, upper=50, **scaling)
    problem.model.add_design_var("y", lower=-50, upper=50)
    problem.model.add_objective("f_xy")
    problem.setup()
    return problem


@pytest.mark.parametrize("scaling", [{}, {"ref": 100.0, "ref0": -20.0}, {"scaler": 0.01, "adder": 3.0}])
def test_the_paraboloid_also_scaled(scaling: dict[str, float]) -> None:
    problem = paraboloid(FMNESDriver(max_evaluations=800, rng=1), **scaling)
    problem.run_driver()
    assert problem.driver.result.success
    assert problem.get_val("x")[0] == pytest.approx(20 / 3, abs=1e-4)
    assert problem.get_val("y")[0] == pytest.approx(-22 / 3, abs=1e-4)
    assert problem.get_val("f_xy")[0] == pytest.approx(-82 / 3, abs=1e-6)
    assert problem.driver.result.model_evals == problem.driver.search.nfev + 1


def test_run_driver_twice_begins_where_the_model_is_and_repeats_a_seed() -> None:
    problem = paraboloid(FMNESDriver(max_evaluations=60, rng=1))
    problem.run_driver()
    first = problem.driver.search
    problem.run_driver()
    assert problem.driver.search.fun <= first.fun and problem.driver.search is not first
    problem.set_val("x", 0.0)
    problem.set_val("y", 0.0)
    again = paraboloid(FMNESDriver(max_evaluations=60, rng=1))
    again.run_driver()
    assert again.driver.search == first


@pytest.mark.parametrize("seed", [1, 2])
def test_sellar(seed: int) -> None:
    """Its minimum 3.18339 is at z = (1.9776, 0), x = 0, where con1 is active."""
    problem = om.Problem(
        model=SellarDerivatives(),
        driver=FMNESDriver(max_evaluations=1500, rng=seed, options={"surrogate": False}),
    )
    model = problem.model
    model.add_design_var("z", lower=np.array([-10.0, 0.0]), upper=np.array([10.0, 10.0]))
    model.add_design_var("x", lower=0.0, upper=10.0)
    model.add_objective("obj")
    model.add_constraint("con1", upper=0.0)
    model.add_constraint("con2", upper=0.0)
    problem.setup()
    problem.set_solver_print(-1)
    problem.run_driver()
    assert problem.get_val("obj")[0] == pytest.approx(3.18339, abs=1e-3)
    assert problem.get_val("z") == pytest.approx([1.9776, 0.0], abs=1e-2)
    assert max(problem.driver.violations().values()) <= 1e-6
    assert {f.reason for f in problem.driver.search.failures} <= {
        f"constraint {name} violated" for name in ("con_cmp1.con1", "con_cmp2.con2", "con1", "con2")
    }


class Beam(om.ExplicitComponent):  # type: ignore[name-defined,misc]
    """A cantilever of rectangular section, whose analysis fails where it buckles."""

    def setup(self) -> None:
        self.add_input("height", 0.2, units="m")
        self.add_input("width", 0.1, units="m")
        self.add_discrete_input("bolts", 4)
        self.add_output("mass", units="kg")
        self.add_output("stress", units="Pa")

    def compute(
        self, inputs: Any, outputs: Any, discrete_inputs: Any = None, discrete_outputs: Any = None
    ) -> None:
        height, width = inputs["height"][0], inputs["width"][0]
        bolts = discrete_inputs["bolts"]
        if height > 8 * width:
            raise om.AnalysisError("lateral buckling: no equilibrium found")
        outputs["mass"] = 7800 * 2.0 * height * width + 0.5 * abs(bolts - 6)
        outputs["stress"] = 6 * 2e4 * 2.0 / (width * height**2)


def beam(driver: Any) -> Any:
    problem = om.Problem(driver=driver)
    problem.model.add_subsystem("beam", Beam(), promotes=["*"])
    problem.model.add_design_var("height", lower=5.0, upper=50.0, units="cm")
    problem.model.add_design_var("width", lower=0.01, upper=0.3, ref=0.1)
    problem.model.add_design_var("bolts", lower=2, upper=12)
    problem.model.add_objective("mass", ref=100.0)
    problem.model.add_constraint("stress", upper=150.0, units="MPa", ref=100.0)
    problem.setup()
    return problem


def test_a_beam_whose_analysis_fails_with_a_discrete_variable_units_and_a_recorder(tmp_path: Path) -> None:
    driver = FMNESDriver(max_evaluations=1200, rng=1)
    problem = beam(driver)
    driver.add_recorder(om.SqliteRecorder(str(tmp_path / "cases.sql")))
    problem.run_driver()
    problem.cleanup()
    # The mass falls with the height until it buckles: width = h/8, and the stress is at its limit.
    height = (6 * 2e4 * 2.0 * 8 / 150e6) ** (1 / 3)
    assert problem.get_val("height")[0] == pytest.approx(height, rel=2e-3)
    assert problem.get_val("width")[0] == pytest.approx(height / 8, rel=5e-3)
    assert problem.get_val("bolts") == 6
    assert problem.get_val("mass")[0] == pytest.approx(100 * driver.search.fun)
    reasons = {failure.reason for failure in driver.search.failures}
    assert any("lateral buckling: no equilibrium found" in reason for reason in reasons)
    assert any(reason.startswith("constraint") for reason in reasons)
    path = next(tmp_path.rglob("cases.sql"))
    cases = om.CaseReader(str(path)).list_cases("driver", out_stream=None)
    assert len(cases) > driver.search.nfev - driver.search.n_infeasible


def test_a_bug_ends_the_run_and_what_cannot_be_meant_is_refused_in_words() -> None:
    class Broken(om.ExplicitComponent):  # type: ignore[name-defined,misc]
        def setup(self) -> None:
            self.add_input("x", 1.0)
            self.add_output("f")

        def compute(self, inputs: Any, outputs: Any) -> None:
            raise KeyError("a bug")

    def problem(driver: Any, **ends: float) -> Any:
        made = om.Problem(driver=driver)
        made.model.add_subsystem("part", Broken(), promotes=["*"])
        made.model.add_design_var("x", **ends)
        made.model.add_objective("f")
        made.setup()
        return made

    with pytest.raises(KeyError, match="a bug"):
        problem(FMNESDriver(rng=1), lower=0.0, upper=1.0).run_driver()
    with pytest.raises(fmnes.ArgumentError, match="sigma0: found none"):
        problem(FMNESDriver(rng=1)).run_driver()
    with pytest.raises(fmnes.ArgumentError, match="options: found 'workers'"):
        FMNESDriver(options={"workers": 2})


def test_nothing_that_works_is_a_failed_run() -> None:
    class Never(om.ExplicitComponent):  # type: ignore[name-defined,misc]
        def setup(self) -> None:
            self.add_input("x", 1.0)
            self.add_output("f")

        def compute(self, inputs: Any, outputs: Any) -> None:
            raise om.AnalysisError("never")

    problem = om.Problem(driver=FMNESDriver(rng=1, max_evaluations=40))
    problem.model.add_subsystem("part", Never(), promotes=["*"])
    problem.model.add_design_var("x", lower=0.0, upper=2.0)
    problem.model.add_objective("f")
    problem.setup()
    problem.run_driver()
    assert not problem.driver.result.success and problem.driver.search.n_infeasible == 40
