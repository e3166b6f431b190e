"""What the page of the comparison says besides its numbers, of which there are none here."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    title: str
    page: str  # of the problem, from docs/benchmarks/
    value: str  # what is minimised, and its unit
    why: str  # who wins, who does not, and why


ABOUT = """# Real problems: every method, the same budget

`python -m benchmarks.real PROBLEM ... --seeds N` makes the rows (`docs/benchmarks/real*.jsonl`; it needs
`pip install "fmnes[bench,scipy,optuna]"`), and `python -m benchmarks.real.report` this page.

Every method begins at the same start, in the same box, and is called as its own documentation shows,
without settings made for the problem. A failed evaluation is +inf to those that rank (`cma`, SciPy's
differential evolution), an error to NOMAD, and a failed trial to Optuna. Each method knows which parameters
are integers: `integer_variables` of `cma`, `BB_INPUT_TYPE` of NOMAD, `suggest_int` of Optuna (its CMA-ES with
margin), `integrality` of SciPy. A method that stops before the budget is spent is not restarted: the column
*evaluations* says so.

Best values are medians over the seeds, and the smaller is better. Few seeds do not put methods in order
that are within each other's quartiles. *Failed* is the share of all evaluations."""

PROBLEMS = {
    "lens": Words(
        "Lens",
        "../lens.md",
        "root mean square radius of the spots in µm",
        "The first of the table have found the same kind of lens, and the seeds do not put them in "
        "order. A better one has two lenses that touch at the edge; a search comes to it now and then. "
        "`cma` and NOMAD came to it more often than the default. NOMAD made the same run "
        "with two pairs of seeds. "
        "A run of `cma` may end early, where nearly all of its first points fail. TPE looks at one "
        "parameter at a time, and here what is good for one depends on all others. Differential "
        "evolution takes steps as long as its population is wide, and many of them fail.",
    ),
    "lens-glasses": Words(
        "Lens, with glasses from a catalogue",
        "../lens.md#other-lenses",
        "the same, with three whole numbers besides",
        "Curvatures cannot compensate for a wrong glass, and the runs of every method end in different "
        "glasses: the quartiles are wide, and a few seeds do not rank the first methods of the table. "
        "If much depends on integers, search more than once, with `restarts=` or other seeds.",
    ),
    "double-gauss": Words(
        "Double Gauss",
        "../lens.md",
        "root mean square radius of the spots in µm",
        "It begins with flat plates, from which many steps fail. There are several kinds of lenses "
        "in which a search may end, so the quartiles are wide. The methods that learn how parameters go "
        "together are far ahead of those that do not.",
    ),
    "airfoil": Words(
        "Air foil",
        "../airfoil.md",
        "drag in counts, as XFOIL finds it",
        "XFOIL prints the drag to a tenth of a count, and several methods come to the same tenth or the"
        " next: the order of the first says little. An evaluation takes longer than what any of the "
        "methods thinks.",
    ),
    "airfoil-wide": Words(
        "Air foil, in wider ranges",
        "../airfoil.md#comparison-with-other-methods",
        "the same, with most shapes failing",
        "The searches end in different sections: the first of the table are within each other's "
        "quartiles, and five seeds do not put them in order. These ranges were set before any of the rows "
        "was there, and not changed.",
    ),
    "gene-network": Words(
        "Gene network",
        "../gene-network.md",
        "the error of the time courses",
        "Sixty parameters and a small budget: nobody comes to the end, and what counts is who goes "
        "down fastest. The default is behind `fm-nes`: with so many parameters its shape learns at half "
        "the published rate, and with that rate it would be ahead (figures with more seeds are on [the "
        "problem's page](../gene-network.md#comparison-with-other-methods)). Hardly anything fails where they "
        "look, so that what it does about failures has nothing to win here. NOMAD goes without its "
        "quadratic models, which take nearly all of its time with so many parameters. "
        "Differential evolution does not get away from the start.",
    ),
    "op-amp": Words(
        "Op-amp",
        "../op-amp.md",
        "power in mW, as ngspice finds it",
        "Nearly half of the circuits near the best one do not settle in time.",
    ),
    "training": Words(
        "Training that diverges",
        "../training.md",
        "mean squared error on samples that were held out",
        "Most of the methods are within each other's quartiles, the default among them. The loss jumps as "
        "parameters move, the budget is a few dozen generations, and only a few trainings in a hundred "
        "diverge near the best points: learning from failures, and how parameters go together, has little "
        "time to pay.",
    ),
}
