"""A user's script with a mistake on each line that says so: type checkers report these lines, no others."""

from __future__ import annotations

import numpy as np

import fmnes
from fmnes import problems

space = {"width": fmnes.Real(0.1, 10), "layers": fmnes.Integer(1, 12)}


def of_array(x: np.ndarray) -> float:
    return float(x @ x)


def of_dict(p: dict[str, float]) -> float:
    return p["width"]


def of_text(x: np.ndarray) -> str:
    return "1.0"


# Misspelt names
fmnes.minimise(of_array, [1.0, 2.0], 0.5)  # mistake
fmnes.problems.gett("sphere")  # mistake
problems.reel.lens.triplet()  # mistake
print(fmnes.StopReason.TARGETS)  # mistake

# Misspelt settings
fmnes.AFMNES(max_populaton_size=20)  # mistake
fmnes.DXNESIC(refrsh=1)  # mistake
fmnes.FMNES(rigde_threshold=1.3)  # mistake
fmnes.XNES(popsize=10)  # mistake
fmnes.CMAES(parameter="2006")  # mistake
fmnes.CRFMNES(maximum_change=0.5)  # mistake
fmnes.Resampling(fmnes.XNES(), max_redraw=9)  # mistake
fmnes.Real(0, 1, logs=True)  # mistake
fmnes.Integer(0, 1, step=2)  # mistake
fmnes.Categorical(["a", "b"], begin="a")  # mistake
fmnes.Categorical(7)  # mistake
fmnes.Categorical()  # mistake
fmnes.Command(["./simulate"], time_out=60)  # mistake
fmnes.FileQueue("queue", leese=60)  # mistake
fmnes.minimize(of_array, [1.0, 2.0], 0.5, max_evalutions=100)  # mistake
fmnes.minimize(of_dict, space, worker=2)  # mistake
fmnes.resume("run", of_dict, max_evals=100)  # mistake
fmnes.Optimizer([1.0, 2.0], 0.5, seed=1)  # mistake

# Wrong values
fmnes.AFMNES(shape_rate="publish")  # mistake
fmnes.DXNESIC(alpha="tabels")  # mistake
fmnes.minimize(of_array, [1.0, 2.0], 0.5, bounds_as="maps")  # mistake
fmnes.minimize(of_array, [1.0, 2.0], 0.5, restarts="bipopp")  # mistake
fmnes.minimize(of_dict, space, max_evaluations="100")  # mistake
fmnes.minimize(of_dict, {"width": (0, 1)})  # mistake
fmnes.minimize(of_dict, space, bounds=[(0, 1), (0, 1)])  # mistake

# An objective of the wrong kind
fmnes.minimize(of_text, [1.0, 2.0], 0.5)  # mistake
fmnes.minimize(of_dict, [1.0, 2.0], 0.5)  # mistake
fmnes.minimize(of_array, space)  # mistake

# Results of the wrong kind
fmnes.minimize(of_array, [1.0, 2.0], 0.5).x["width"]  # mistake
print(fmnes.minimize(of_dict, space).x.shape)  # mistake
print(fmnes.minimize(of_dict, space).nfevs)  # mistake
print(fmnes.Optimizer(space).ask().shape)  # mistake
