"""Other systems: real runs in processes from which the functions were taken that macOS or Windows lack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fmnes

HERE = Path(__file__).parent / "platforms"
SOURCE = str(Path(fmnes.__file__).parents[1])
SECONDS = 300.0


def run(system: str | None, *arguments: str, cwd: Path, code: int = 0) -> str:
    """What `python ARGUMENTS` prints on a system (None: this one), with a warning an error."""
    places = [str(HERE / system)] if system else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*places, SOURCE])}
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def script(system: str | None, text: str, cwd: Path) -> Any:
    """What a script prints as JSON, from a file: processes look for it there."""
    cwd.mkdir()
    (cwd / "script.py").write_text(text, encoding="utf-8")
    return json.loads(run(system, "script.py", cwd=cwd))


WORKERS = """
import collections, json, os, signal, subprocess, sys, time
import fmnes
from fmnes.evaluation.evaluator import Task, evaluate_all
from fmnes.outcome import EvaluationId
from fmnes.evaluation.workers.pool import Workers
import numpy as np

LEFT, SEEN = os.path.abspath("left"), os.path.abspath("seen")

def simulate(x):
    if x[0] == 0.0:
        with open(SEEN, "w") as file:
            print(sys.platform, hasattr(os, "waitid"), file=file)
    if x[0] == 1.0:
        os.kill(os.getpid(), signal.SIGSEGV)
    if x[0] == 2.0:
        subprocess.Popen(["sh", "-c", f"echo $$ > {LEFT}; exec sleep 600"])
        while not os.path.exists(LEFT) or not os.path.getsize(LEFT):
            time.sleep(0.01)
        os._exit(3)
    if x[0] == 3.0:
        time.sleep(600)
    if x[0] < -1.0:
        return float("nan")
    return float(x @ x)

def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # By another program: here there is no /proc.
    state = subprocess.run(["cat", f"/proc/{pid}/stat"], capture_output=True, text=True).stdout
    return state.rpartition(")")[2].split()[:1] not in ([], ["Z"])

if __name__ == "__main__":
    options = {"workers": 2, "rng": 1, "run_dir": "run", "sigma0": 0.5}
    first = fmnes.minimize(simulate, [0.5, 1.0], max_evaluations=20, **options)
    result = fmnes.resume("run", simulate, max_evaluations=40)
    tasks = [Task(np.array([float(i), 0.5]), EvaluationId(0, 0, i)) for i in range(4)]
    with Workers(simulate, 2, timeout=8) as pool:
        outcomes = dict(evaluate_all(pool, tasks))
    left = int(open(LEFT).read())
    for _ in range(1000):
        if not alive(left):
            break
        time.sleep(0.01)
    print(json.dumps([
        open(SEEN).read().split(), first.nfev, result.nfev, result.x.tolist(), result.fun, alive(left),
        [(i, outcomes[i].status, outcomes[i].fault) for i in range(4)],
    ]))
"""

COMMAND = """
import json, os, subprocess, sys, time
import fmnes

if __name__ == "__main__":
    words = (
        "import json, os, subprocess, sys; x = json.load(sys.stdin)['x']; "
        "subprocess.Popen(['sleep', '600']) if x[0] > 0 else None; "
        "sys.exit(5) if x[0] < -0.5 else None; "
        "os.mkdir('deep'); open('deep/file', 'w').close(); os.chmod('deep', 0o500); print(sum(x))"
    )
    command = fmnes.Command([sys.executable, "-c", words], timeout=60, directory=os.path.abspath("work"))
    options = {"workers": 2, "max_evaluations": 12, "rng": 3, "run_dir": "run", "sigma0": 0.5}
    result = fmnes.minimize(command, [0.1, 0.2], **options)
    slow = fmnes.Command(["sleep", "600"], timeout=1)
    try:
        slow([0.0])
    except fmnes.Infeasible as error:
        said = str(error)
    kept = sorted(name.rpartition("-")[0] for name in os.listdir("work"))
    print(json.dumps([result.nfev, result.fun, result.x.tolist(), said, kept]))
"""


def on_both(text: str, folder: Path) -> tuple[Any, Any]:
    """Here and on macOS, at the same time: they mostly wait."""
    with ThreadPoolExecutor(2) as pool:
        here = pool.submit(script, None, text, folder / "linux")
        there = pool.submit(script, "macos", text, folder / "macos")
        return here.result(), there.result()


def test_workers_on_macos_do_what_they_do_on_linux(tmp_path: Path) -> None:
    here, there = on_both(WORKERS, tmp_path)
    assert there.pop(0) == ["darwin", "False"] and here.pop(0)[0] == "linux"
    assert there == here
    assert there[5] == [
        [0, "value", ""],
        [1, "infeasible", "SIGSEGV"],
        [2, "infeasible", "exit 3"],
        [3, "infeasible", "timeout"],
    ]
    assert there[0] == 20 and there[1] == 40 and there[4] is False


def test_programs_on_macos_do_what_they_do_on_linux(tmp_path: Path) -> None:
    here, there = on_both(COMMAND, tmp_path)
    assert there == here
    assert there[0] == 12 and "timed out" in there[3]


def test_a_limit_of_memory_is_refused_on_macos(tmp_path: Path) -> None:
    told = "import fmnes; fmnes.Command(['sleep', '1'], memory_limit='1 GB')([0.0])"
    assert "memory_limit" in run("macos", "-c", told, cwd=tmp_path, code=1)


WINDOWS = """
import json, os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import fmnes
from fmnes.storage.lock import RunLock

def simulate(x):
    if x[0] < 0:
        raise fmnes.Infeasible("no mesh")
    return float((x - 1) @ (x - 1))

def refused(act):
    try:
        act()
    except fmnes.FmnesError as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"

if __name__ == "__main__":
    options = {"rng": 1, "sigma0": 0.5, "max_evaluations": 60}
    plain = fmnes.minimize(simulate, [1.5, 2.0], **options)
    kept = fmnes.minimize(simulate, [1.5, 2.0], run_dir="run", **options)
    more = fmnes.resume("run", simulate, max_evaluations=120)
    again = "import fmnes; from script import simulate; fmnes.resume('run', simulate, max_evaluations=130)"
    lock = RunLock("run/lock")
    told = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True).stderr
    lock.release()
    opt = fmnes.Optimizer([1.5, 2.0], 0.5, rng=1)
    points = opt.ask()
    opt.tell([simulate(x) if x[0] >= 0 else np.nan for x in points])
    with ThreadPoolExecutor(2) as pool:
        spread = fmnes.minimize(simulate, [1.5, 2.0], executor=pool, **options)
        refusals = {} if sys.platform != "win32" else {
            "workers": refused(lambda: fmnes.minimize(simulate, [1.5, 2.0], workers=2, **options)),
            "timeout": refused(lambda: fmnes.minimize(simulate, [1.5, 2.0], timeout=9.0, **options)),
            "Command": refused(lambda: fmnes.minimize(fmnes.Command(["sim"]), [1.5, 2.0], **options)),
            "call": refused(lambda: fmnes.Command([sys.executable])([1.0])),
            "executor": refused(
                lambda: fmnes.minimize(simulate, [1.5, 2.0], executor=pool, timeout=9, **options)
            ),
        }
    rows = fmnes.read_run("run").evaluations
    print(json.dumps({
        "results": [plain.fun, kept.fun, more.nfev, more.fun, spread.fun, len(points), len(rows)],
        "told": told.splitlines()[-1:], "refusals": refusals,
    }))
"""


OTHER_COMMANDS = """
import sys
from fmnes.cli import app
for name in sys.argv[1:]:
    words = ["--json", "--max-evaluations", "50"] if name == "demo" else ["run"]
    assert not app([name, *words], standalone_mode=False)
"""


def test_all_but_supervised_processes_works_on_windows(tmp_path: Path) -> None:
    here = script(None, WINDOWS, tmp_path / "linux")
    there = script("windows", WINDOWS, tmp_path / "windows")
    assert there["results"] == here["results"]
    assert "in use by process" in there["told"][0]
    assert sorted(there["refusals"]) == ["Command", "call", "executor", "timeout", "workers"]
    for words in there["refusals"].values():
        assert "found on win32" in words and "WSL" in words and "ProcessPoolExecutor()" in words
    # The command line, on what that run has left: as a program, and the others in one process.
    run("windows", "-m", "fmnes", "show", "run", cwd=tmp_path / "windows")
    run("windows", "-c", OTHER_COMMANDS, "demo", "export", "report", cwd=tmp_path / "windows")
