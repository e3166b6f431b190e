"""The text of the comparison page besides its numbers; it contains no numbers of its own."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    title: str
    page: str  # of the problem, from docs/benchmarks/
    value: str  # what is minimised, and its unit
    why: str  # which methods are ahead, which are behind, and why


ABOUT = """# Real problems: every method, the same budget

`python -m benchmarks.real PROBLEM ... --seeds N` makes the rows (`docs/benchmarks/real*.jsonl`; it needs
`pip install "fmnes[bench,scipy,optuna]"`), and `python -m benchmarks.real.report` this page.

Every method begins at the same start, in the same box, and is called as its own documentation recommends,
without settings made for the problem.

- A failed evaluation is +inf for methods that rank (`cma`, SciPy's differential evolution), an error for
  NOMAD, and a failed trial for Optuna.
- Each method knows which parameters are integers: `integer_variables` of `cma`, `BB_INPUT_TYPE` of NOMAD,
  `suggest_int` of Optuna (its CMA-ES with margin), `integrality` of SciPy.
- A method that stops before the budget is spent is not restarted; see the column *evaluations*.

Best values are medians over the seeds; smaller is better. With few seeds, the order of methods within each
other's quartiles is not significant. *Failed* is the share of all evaluations."""

PROBLEMS = {
    "lens": Words(
        "Lens",
        "../lens.md",
        "root mean square radius of the spots in µm",
        "The first methods of the table find the same kind of lens, and the seeds do not separate them. A "
        "better lens has two elements that touch at the edge; some runs find it. `cma` and NOMAD found it "
        "more often than the default. NOMAD made the same run with two pairs of seeds. A run of `cma` may "
        "end early if nearly all of its first points fail. TPE models one parameter at a time, but here the "
        "best value of each depends on all others. Differential evolution takes steps as long as its "
        "population is wide, and many of them fail.",
    ),
    "lens-glasses": Words(
        "Lens, with glasses from a catalogue",
        "../lens.md#other-lenses",
        "the same, with three additional integers",
        "Curvatures cannot compensate for a wrong glass, and the runs of every method end in different "
        "glasses: the quartiles are wide, and a few seeds do not rank the first methods of the table. "
        "If much depends on integers, search more than once, with `restarts=` or other seeds.",
    ),
    "double-gauss": Words(
        "Double Gauss",
        "../lens.md",
        "root mean square radius of the spots in µm",
        "The start consists of flat plates, from which many steps fail. A search may end in several kinds "
        "of lenses, so the quartiles are wide. Methods that learn the dependence between parameters are far "
        "ahead of those that do not.",
    ),
    "airfoil": Words(
        "Air foil",
        "../airfoil.md",
        "drag in counts, computed by XFOIL",
        "XFOIL prints the drag to a tenth of a count, and several methods reach the same tenth or the next, "
        "so the order of the first methods says little. An evaluation takes longer than the computations of "
        "any of the methods.",
    ),
    "airfoil-wide": Words(
        "Air foil, in wider ranges",
        "../airfoil.md#comparison-with-other-methods",
        "the same, with most shapes failing",
        "The searches end in different sections: the first methods of the table are within each other's "
        "quartiles, and five seeds do not separate them. These ranges were set before any of the rows "
        "existed, and not changed.",
    ),
    "gene-network": Words(
        "Gene network",
        "../gene-network.md",
        "the error of the time courses",
        "With sixty parameters and a small budget no method converges, so the speed of descent counts. The "
        "default is behind `fm-nes`: with this many parameters its shape learns at half the published rate, "
        "and with that rate it would be ahead (figures with more seeds are on [the problem's "
        "page](../gene-network.md#comparison-with-other-methods)). Hardly anything fails in the region that "
        "the methods search, so the handling of failures has no effect. NOMAD runs without its quadratic "
        "models, which take nearly all of its time with this many parameters. Differential evolution does "
        "not improve on the start.",
    ),
    "op-amp": Words(
        "Op-amp",
        "../op-amp.md",
        "power in mW, computed by ngspice",
        "Nearly half of the circuits near the best one do not settle in time.",
    ),
    "training": Words(
        "Training that diverges",
        "../training.md",
        "mean squared error on held-out samples",
        "Most of the methods are within each other's quartiles, including the default. The loss jumps as "
        "parameters change, the budget is a few dozen generations, and only a few trainings in a hundred "
        "diverge near the best points. Learning from failures, and learning how parameters interact, has "
        "little time to pay off.",
    ),
}
