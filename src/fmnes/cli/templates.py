"""What `fmnes init` writes: a commented problem file and a small simulator that fails here and there."""

PROBLEM = """\
# What to optimise. Try it:  fmnes minimize problem.toml
#
# The program is started once for every point, in a fresh directory, without a shell. In its arguments
#   {here}     stands for the directory of this file
#   {params}   for a JSON file with the point: {"x": [...], "params": {"width": ..., ...}}
#   {width}    for the value of a parameter
# It prints the value to minimise on its last line: a number, or FAIL and a reason.
# A crash, an exit code other than 0, NaN or a timeout also count as a failed point.
# Exit code 75 says that the machine failed, not the point (a licence, a network): that point is tried again.
command = ["PYTHON", "{here}/simulate.py", "{params}"]

[parameters.width]
start = 0.3          # where to begin
step = 0.1           # about how far away the best value may be
lower = 0.01         # optional bounds: no point is outside
upper = 1.0

[parameters.height]
start = 0.3
step = 0.1
lower = 0.01
upper = 1.0

[parameters.density]
start = 1000.0
step = 3.0           # on a log scale the step is a factor
lower = 100.0
upper = 20000.0
scale = "log"

[run]
max_evaluations = 400
workers = 2          # programs at a time
timeout = 20         # seconds before a program is killed, with everything it has started
retries = 2          # further tries of a point that was lost to the machine
# target = 1.0       # stop as soon as a value is this low
# method = "afm-nes" # or fm-nes as published, dx-nes-ic, xnes, cma-es; for thousands of parameters cr-fm-nes
# seed = 1           # the same seed gives the same run
"""

SIMULATOR = '''\
"""A stand-in for your simulation: the lightest beam that carries its load.

Reads the point from the JSON file named on the command line and prints one number, or fails as real ones do.
"""

import json
import sys

with open(sys.argv[1]) as file:
    beam = json.load(file)["params"]

mass = beam["density"] * beam["width"] * beam["height"] * 2.0
stiffness = 2e7 * beam["density"] ** 0.5 * beam["width"] * beam["height"] ** 3
deflection = 500.0 / stiffness
if deflection > 0.02:
    print("FAIL the beam broke")          # the simulation's own word for a bad point
elif beam["width"] > 4 * beam["height"]:
    sys.exit("mesh generation failed")    # an exit code and a message on stderr
else:
    print("mesh ok, solved")              # output before the last line does not matter
    print(mass)
'''
