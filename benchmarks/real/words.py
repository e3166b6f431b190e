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
differential evolution), an error to NOMAD, and a failed trial to Optuna. Who stops before the budget is
spent stops: the column *evaluations* says so.

Best values are medians over the seeds, and the smaller is better. Few seeds do not put methods in order
that are within each other's quartiles. *Failed* is the share of all evaluations. *Seconds* are about those
of a run on one core, the evaluations included; the machine had other work to do, so no more than their
order of magnitude means anything."""

PROBLEMS = {
    "lens": Words(
        "Lens",
        "../lens.md",
        "root mean square radius of the spots in µm",
        "The first of the table have found the same kind of lens, and the seeds do not put them in "
        "order. A better one has two lenses that touch at the edge; a search comes to it now and then. "
        "A run of `cma` may end early, where nearly all of its first points fail. NOMAD does not depend"
        " on its seed here, and TPE takes minutes a run: they were not run as often. TPE looks at one "
        "parameter at a time, and here what is good for one depends on all others. Differential "
        "evolution takes steps as long as its population is wide, and many of them fail.",
    ),
    "lens-glasses": Words(
        "Lens, with glasses from a catalogue",
        "../lens.md#other-lenses",
        "the same, with three whole numbers besides",
        "The default does not win here, `fm-nes` does. A wrong glass cannot be made good by curvatures,"
        " and in most of these runs the default, whose steps shrink sooner, had settled on its glasses "
        "earlier. Who looks for whole numbers on which much depends should try `method='fm-nes'` as "
        "well, or `restarts=`.",
    ),
    "double-gauss": Words(
        "Double Gauss",
        "../lens.md",
        "root mean square radius of the spots in µm",
        "It begins with flat plates, from which many steps fail. In most runs `cma` and our own "
        "`cma-es` stop long before the budget is spent, not far from where they began. `cma` does not "
        "evaluate the start itself, and so may end above it. The methods that are made for failures go "
        "on.",
    ),
    "airfoil": Words(
        "Air foil",
        "../airfoil.md",
        "drag in counts, as XFOIL finds it",
        "XFOIL is not smooth: whether it converges, and where the flow turns turbulent, hangs on "
        "details of the shape, so the last tenths of a count say little.",
    ),
    "gene-network": Words(
        "Gene network",
        "../gene-network.md",
        "the error of the time courses",
        "Sixty parameters and a small budget: nobody comes to the end, and what counts is who goes down"
        " fastest. NOMAD runs without its quadratic models, which would take nearly all of its time with so "
        "many parameters.",
    ),
    "training": Words(
        "Training that diverges",
        "../training.md",
        "mean squared error on samples that were held out",
        "Most methods are within each other's quartiles, and the default is not the first. The loss "
        "jumps as parameters move, the budget is a few dozen generations, and only a few trainings in a"
        " hundred diverge where one looks: learning from failures, and how parameters go together, has "
        "little time to pay. NOMAD does not depend on its seed here, so it has made the same run each "
        "time.",
    ),
}
