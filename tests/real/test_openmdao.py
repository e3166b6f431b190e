"""The driver for OpenMDAO on OpenMDAO's own problems, and on a beam whose analysis fails."""

from __future__ import annotations

import re
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


def paraboloid(driver: Any, *, set_up: bool = True, **scaling: float) -> Any:
    """Its minimum −27.333 is at (6.667, −7.333)."""
    problem = om.Problem(driver=driver)
    problem.model.add_subsystem("comp", Paraboloid(), promotes=["*"])
    problem.model.set_input_defaults("x", 0.0)
    problem.model.set_input_defaults("y", 0.0)
    problem.model.add_design_var("x", lower=-50, upper=50, **scaling)
    problem.model.add_design_var("y", lower=-50, upper=50)
    problem.model.add_objective("f_xy")
    if set_up:
        problem.setup()
    return problem


@pytest.mark.parametrize(
    "scaling", [{}, {"ref": 100.0, "ref0": -20.0}, {"scaler": 0.01, "adder": 3.0}, {"ref": -2.0}]
)
def test_the_paraboloid_also_scaled(scaling: dict[str, float]) -> None:
    problem = paraboloid(FMNESDriver(max_evaluations=2000, rng=1), **scaling)
    problem.run_driver()
    assert problem.driver.result.success and problem.driver.result.exit_status in {"XTOL", "FTOL"}
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


def constrained(driver: Any, constraint: dict[str, Any], expression: str = "g = x - y") -> Any:
    """The paraboloid, with a limit on an output."""
    problem = paraboloid(driver, set_up=False)
    problem.model.add_subsystem("limit", om.ExecComp(expression), promotes=["*"])
    problem.model.add_constraint("g", **constraint)
    problem.setup()
    return problem


@pytest.mark.parametrize(
    "constraint",
    [
        {"lower": 15.0},
        {"lower": 15.0, "upper": 40.0},
        {"equals": 15.0},
        {"lower": 15.0, "ref": 200.0, "ref0": 15.0},
        {"lower": 15.0, "ref": -50.0},  # turned around: at most −0.3 in the driver's units
        {"equals": 15.0, "scaler": 0.1, "adder": 2.0},
    ],
    ids=str,
)
def test_a_constraint_that_is_active_is_met_by_its_value(constraint: dict[str, Any]) -> None:
    """OpenMDAO's own documentation has this problem: −27.083 at (7.1667, −7.8333), where x − y = 15."""
    problem = constrained(FMNESDriver(max_evaluations=4000, rng=1), constraint)
    result = problem.run_driver()
    search = problem.driver.search
    assert result.success and search.feasible and set(search.constraints) == {"g"}
    assert search.n_failed == 0  # a violated constraint is no failure
    assert problem.get_val("f_xy")[0] == pytest.approx(-27.0833, abs=1e-3)
    assert problem.get_val("x")[0] == pytest.approx(7.1667, abs=2e-2)
    assert problem.get_val("g")[0] == pytest.approx(15.0, abs=1e-3)


def test_every_number_of_an_array_has_its_own_limits() -> None:
    g = {"lower": np.array([15.0, -1e30]), "upper": np.array([1e30, 3.0])}
    problem = paraboloid(FMNESDriver(max_evaluations=4000, rng=2), set_up=False)
    both = om.ExecComp("g = x - b * y", g=np.zeros(2), b=np.array([1.0, 0.0]))
    problem.model.add_subsystem("limit", both, promotes=["*"])
    problem.model.add_constraint("g", **g)
    problem.setup()
    problem.run_driver()
    found = problem.driver.search.constraints
    assert (found["g[0]"].lower, found["g[0]"].upper) == (15.0, None)
    assert (found["g[1]"].lower, found["g[1]"].upper) == (None, 3.0)
    assert problem.driver.search.feasible
    assert problem.get_val("g") == pytest.approx([15.0, 3.0], abs=1e-3)  # (3, −12), the corner of both


def test_without_a_feasible_point_the_run_has_failed_and_the_model_is_at_the_least_violation() -> None:
    problem = constrained(FMNESDriver(max_evaluations=600, rng=1), {"lower": 150.0})
    result = problem.run_driver()
    assert not result.success and not problem.driver.search.feasible
    assert problem.get_val("g")[0] == pytest.approx(100.0, abs=1.0)  # the corner of the ranges


@pytest.mark.parametrize("seed", [1, 2])
def test_sellar(seed: int) -> None:
    """Its minimum 3.18339 is at z = (1.9776, 0), x = 0, where con1 is active."""
    coupled = om.NonlinearBlockGS(maxiter=50, err_on_non_converge=True)
    model = SellarDerivatives(nonlinear_solver=coupled)
    problem = om.Problem(model=model, driver=FMNESDriver(max_evaluations=3000, rng=seed))
    model.add_design_var("z", lower=np.array([-10.0, 0.0]), upper=np.array([10.0, 10.0]))
    model.add_design_var("x", lower=0.0, upper=10.0)
    model.add_objective("obj")
    model.add_constraint("con1", upper=0.0)
    model.add_constraint("con2", upper=0.0)
    problem.setup()
    problem.set_solver_print(-1)
    problem.run_driver()
    search = problem.driver.search
    assert problem.get_val("obj")[0] == pytest.approx(3.18339, abs=1e-3)
    assert problem.get_val("z") == pytest.approx([1.9776, 0.0], abs=1e-2)
    assert search.feasible and search.success and set(search.constraints) == {"con1", "con2"}
    assert problem.get_val("obj")[0] == search.fun  # to the last bit, whatever was evaluated before


class Coupled(om.ImplicitComponent):  # type: ignore[name-defined,misc]
    """y = x + y³/4 has no solution from x = 0.77 on: Newton's method then leaves NaN or nonsense."""

    def setup(self) -> None:
        self.add_input("x", 0.0)
        self.add_output("y", 0.0)
        self.declare_partials("*", "*")

    def apply_nonlinear(self, inputs: Any, outputs: Any, residuals: Any) -> None:
        residuals["y"] = outputs["y"] - inputs["x"] - outputs["y"] ** 3 / 4

    def linearize(self, inputs: Any, outputs: Any, partials: Any) -> None:
        partials["y", "x"] = -1.0
        partials["y", "y"] = 1.0 - 0.75 * outputs["y"] ** 2

    def solve_nonlinear(self, inputs: Any, outputs: Any) -> None:
        y = outputs["y"][0]
        for _ in range(30):
            y += (inputs["x"][0] + y**3 / 4 - y) / (1 - 0.75 * y**2)
        if not abs(y - inputs["x"][0] - y**3 / 4) < 1e-12:
            outputs["y"] = np.nan
            raise om.AnalysisError("Newton's method did not converge")
        outputs["y"] = y


def test_a_solver_that_failed_does_not_spoil_the_next_evaluation() -> None:
    """It begins with y of the run before: with NaN, if that has failed."""
    problem = om.Problem(driver=FMNESDriver(max_evaluations=400, rng=1))
    problem.model.add_subsystem("part", Coupled(), promotes=["*"])
    problem.model.add_subsystem("cost", om.ExecComp("f = (y - 0.5)**2"), promotes=["*"])
    problem.model.add_design_var("x", lower=-2.0, upper=4.0)
    problem.model.add_objective("f")
    problem.setup()
    problem.set_val("x", 0.4)
    problem.run_driver()
    search = problem.driver.search
    assert 5 <= search.n_failed <= 200
    assert problem.get_val("y")[0] == pytest.approx(0.5, abs=1e-4) and search.fun < 1e-8


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
    driver = FMNESDriver(max_evaluations=2500, rng=1)
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
    (failure,) = driver.search.failures
    assert re.fullmatch("AnalysisError: .*lateral buckling: no equilibrium found", failure.reason)
    assert driver.search.feasible and driver.search.constraints["stress"].active
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
    for option, words in {
        "workers": "which FMNESDriver does not support",
        "constraints": "which the model gives",
        "rng": r"wanted FMNESDriver\(rng=...\)",
    }.items():
        with pytest.raises(fmnes.ArgumentError, match=f"options: found '{option}', {words}"):
            FMNESDriver(options={option: 2})


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
