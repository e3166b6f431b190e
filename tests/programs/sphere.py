"""sphere.py PARAMS RESULTS [X0 ...]: the sum of squares, written to RESULTS, after checking what came in."""

import json
import sys

with open(sys.argv[1]) as file:
    params = json.load(file)
assert json.load(sys.stdin) == params
assert [float(x) for x in sys.argv[3:]] == params["x"][: len(sys.argv) - 3]
if "params" in params:
    assert list(params["params"].values()) == params["x"]
print("not the value: 99")
with open(sys.argv[2], "w") as file:
    json.dump({"f": sum(x * x for x in params["x"])}, file, indent=1)
