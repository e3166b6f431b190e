"""The wheel and the source archive: built, installed where there is nothing else, and tried."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import PackagePath, distribution
from pathlib import Path

import pytest

import fmnes

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src" / "fmnes"
SECONDS = 300.0


def run(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(project: Path, into: Path, *kinds: str) -> None:
    """By the build backend itself, which needs no network."""
    wanted = [word for kind in kinds for word in ("-t", kind)]
    run(sys.executable, "-m", "hatchling", "build", *wanted, "-d", str(into), cwd=project)


def files_of(wheel: Path) -> dict[str, bytes]:
    """But for the list of its own files."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def ours() -> set[str]:
    packages = (SOURCE, SOURCE.with_name("fmnes_bench"))
    found = (path for package in packages for path in package.rglob("*") if path.is_file())
    return {path.relative_to(SOURCE.parent).as_posix() for path in found if "__pycache__" not in path.parts}


def closure(*names: str) -> set[str]:
    """These distributions and all that they need."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            for line in distribution(name).requires or []:
                if ";" not in line:  # no extra, and nothing for another Python or system
                    waiting.append(re.split(r"[^\w.-]", line, maxsplit=1)[0])
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(PROJECT, folder, "wheel", "sdist")
    return folder


def test_the_wheel_has_what_is_ours_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    files = files_of(wheel)
    info = f"fmnes-{fmnes.__version__}.dist-info/"
    assert {name for name in files if not name.startswith(info)} == ours()
    assert {"fmnes/py.typed", "fmnes/cli/templates/program/problem.toml"} <= set(files)
    assert {name.removeprefix(info) for name in files if name.startswith(info)} == {
        "METADATA",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }


def test_the_source_archive_has_what_it_should_and_makes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (wheel,), (archive,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    project = tmp_path / f"fmnes-{fmnes.__version__}"
    expected = {"src", "tests", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO"}
    assert {path.name for path in project.iterdir()} - {".gitignore"} == expected
    assert [path for path in project.rglob("*") if path.name == "__pycache__" or path.suffix == ".pyc"] == []
    build(project, tmp_path / "again", "wheel")
    assert files_of(tmp_path / "again" / wheel.name) == files_of(wheel)


def test_the_wheel_runs_where_only_what_it_asks_for_is(built: Path, tmp_path: Path) -> None:
    """Its dependencies are linked from this environment, so that no network is needed: its own, and then
    those of the extra `cli`."""
    (wheel,) = built.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    needed = closure("numpy", "cloudpickle")
    link(needed, site)
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps"]
    run(*pip, str(wheel), cwd=tmp_path)

    code = (
        "import fmnes; r = fmnes.minimize(lambda x: float(x @ x), [1.0, 2.0], 0.5, rng=1, workers=2, "
        "max_evaluations=100); print(fmnes.__file__); assert r.fun < 1e-3"
    )
    assert run(str(python), "-I", "-c", code, cwd=tmp_path).startswith(str(site))
    program = str(python.with_name("fmnes"))
    assert run(program, "--version", cwd=tmp_path).strip() == fmnes.__version__
    refused = subprocess.run([program, "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert refused.returncode == 1 and 'pip install "fmnes[cli]"' in refused.stderr

    link(closure("typer", "rich") - needed, site)
    assert fmnes.__version__ in run(program, "--version", cwd=tmp_path)
    demo = json.loads(run(program, "demo", "--json", "--max-evaluations", "50", cwd=tmp_path))
    assert demo["fun"] < 386  # µm, of the lens that it begins with
    run(program, "init", "mine", cwd=tmp_path)


def link(names: set[str], site: Path) -> None:
    for name in names:
        one = distribution(name)
        for top in {file.parts[0] for file in one.files or [] if _installed(file)}:
            (site / top).symlink_to(Path(str(one.locate_file(top))))


def test_the_recipe_for_conda_agrees_with_the_project() -> None:
    """It is read as YAML; its two expressions are the version and the interpreter."""
    yaml = pytest.importorskip("yaml")
    text = (PROJECT / "conda" / "meta.yaml").read_text()
    load = re.search(r'load_file="(.+?)", regex_pattern=\'(.+?)\', from_recipe_dir=True', text)
    assert load is not None
    version = re.search(load[2], (PROJECT / "conda" / load[1]).read_text())
    assert version is not None and version[1] == fmnes.__version__
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("{%"))
    assert set(re.findall("{{ (.+?) }}", body)) == {"version", "PYTHON"}
    recipe = yaml.safe_load(body.replace("{{ version }}", version[1]).replace("{{ PYTHON }}", "python"))

    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    project = declared["project"]
    python = f"python{project['requires-python']}"
    run_needs = [python, *project["dependencies"], *project["optional-dependencies"]["cli"]]
    requirements = {
        part: {need.replace(" ", "") for need in found} for part, found in recipe["requirements"].items()
    }
    assert requirements["run"] == set(run_needs)
    (backend,) = declared["build-system"]["requires"]
    assert {python, "pip"} < requirements["host"] and any(n.startswith(backend) for n in requirements["host"])
    assert recipe["package"] == {"name": project["name"], "version": fmnes.__version__}
    assert recipe["build"]["entry_points"] == [f"fmnes = {project['scripts']['fmnes']}"]
    assert recipe["about"]["license"] == project["license"]
    source = PROJECT / "conda" / recipe["source"]["path"]
    assert (source / recipe["about"]["license_file"]).is_file() and (source / "pyproject.toml").is_file()


def _installed(file: PackagePath) -> bool:
    """Not a script, which lies elsewhere."""
    return file.parts[0] not in ("..", "__pycache__")
