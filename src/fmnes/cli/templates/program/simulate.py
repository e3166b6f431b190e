"""A stand-in for your simulation: the lightest beam that carries its load.

Reads an input file of its own kind and prints a listing, or fails as real ones do. It knows nothing of fmnes.
"""

import sys

beam = {}
with open(sys.argv[1]) as file:
    for line in file:
        name, equals, number = line.partition("=")
        if equals:
            beam[name.strip()] = float(number)

if beam["width"] > 4 * beam["height"]:
    sys.exit("mesh generation failed")  # an exit code and a message on stderr
print("mesh ok")
mass = beam["density"] * beam["width"] * beam["height"] * beam["span"]
stiffness = 2e7 * beam["density"] ** 0.5 * beam["width"] * beam["height"] ** 3
deflection = beam["load"] / stiffness
print("deflection", deflection)
if deflection > 0.02:
    print("ERROR: the beam broke")  # and the exit code is 0
else:
    print("mass", mass)
