"""The packages: built as `python -m build` builds them, installed in an empty environment, and used there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRY = ROOT / "tools" / "try-package"
CONSTRAINTS = ROOT / "constraints.txt"
# Compiling takes a minute or two on an idle machine.
BUILD_TIMEOUT_S = 900
PYTHONS = ("3.11", "3.12", "3.13")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * BUILD_TIMEOUT_S),
]


def call(*words: str | Path, folder: Path, **environment: str) -> str:
    """Run a command with nothing of this environment in its way; return what it printed."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        list(map(str, words)),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**kept, **environment},
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-2_000:]}{done.stderr[-4_000:]}"
    return done.stdout


def interpreter(version: str) -> Path | None:
    """Find a Python of this version on the machine: on PATH, or one that pyenv keeps."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    for found in (on_path, *sorted(kept.glob(f"{version}.*/bin/python"))):
        if found is None:
            continue
        # A shim is there even for a version that is not chosen.
        done = subprocess.run([found, "-c", "import ensurepip, venv"], capture_output=True, check=False)
        if done.returncode == 0:
            return Path(found)
    return None


def environment(folder: Path, version: str, *packages: str | Path) -> Path:
    """Make an empty environment with these packages and what they need; return its Python."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    call(python, "-m", "venv", folder, folder=folder.parent)
    inside = folder / "bin" / "python"
    call(inside, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, *packages, folder=folder)
    return inside


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what belongs to the project, so that nothing of an earlier build gets in."""
    folder = tmp_path_factory.mktemp("sources") / "timebound"
    unwanted = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "data", "*.so")
    shutil.copytree(ROOT, folder, ignore=unwanted)
    return folder


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("builder") / "venv", "3.11", "build", "cibuildwheel")


@pytest.fixture(scope="module")
def packages(builder: Path, sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source package, and the wheel that was compiled from it."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler is installed")
    folder = tmp_path_factory.mktemp("packages")
    call(builder, "-m", "build", "--outdir", folder, folder=sources)
    return folder


@pytest.fixture(scope="module")
def pure_wheel(builder: Path, sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pure")
    call(builder, "-m", "build", "--wheel", "--outdir", folder, folder=sources, TIMEBOUND_PURE="1")
    (wheel,) = folder.iterdir()
    return wheel


def test_the_compiled_wheel_runs_a_broker_in_an_empty_environment(packages: Path, tmp_path: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    python = environment(tmp_path / "venv", "3.11", wheel)

    printed = call(python, TRY, "compiled", folder=tmp_path)

    assert "-cp311-cp311-" in wheel.name
    assert printed.endswith(": ok\n")


def test_the_source_package_has_what_is_needed_to_build_configure_and_deploy(packages: Path) -> None:
    (archive,) = packages.glob("*.tar.gz")

    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}

    assert {"setup.py", "pyproject.toml", "constraints.txt", "LICENSE", "README.md"} <= names
    assert {"src/timebound/py.typed", "examples/timebound.toml", "deploy/timebound.service"} <= names
    assert not [
        name for name in names if name.startswith(("tests", "build", ".venv")) or name.endswith(".so")
    ]


def test_the_pure_wheel_is_for_every_machine_and_every_python(pure_wheel: Path) -> None:
    assert pure_wheel.name.endswith("-py3-none-any.whl")


@pytest.mark.parametrize("version", PYTHONS)
def test_the_pure_wheel_runs_a_broker_in_an_empty_environment(
    pure_wheel: Path, version: str, tmp_path: Path
) -> None:
    python = environment(tmp_path / "venv", version, pure_wheel)

    printed = call(python, TRY, "plain", folder=tmp_path)

    assert f"(plain), Python {version}." in printed


@pytest.mark.parametrize(
    ("platform", "systems"),
    [("linux", ("manylinux_x86_64", "manylinux_aarch64")), ("macos", ("macosx_x86_64", "macosx_arm64"))],
)
def test_wheels_are_built_for_these_machines_and_pythons(
    builder: Path, sources: Path, platform: str, systems: tuple[str, ...]
) -> None:
    words = ("-m", "cibuildwheel", "--print-build-identifiers", "--platform", platform)

    printed = call(builder, *words, folder=sources).split()

    wanted = {f"cp{version.replace('.', '')}-{system}" for version in PYTHONS for system in systems}
    assert set(printed) == wanted


def test_the_project_names_the_pythons_that_it_is_tested_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    named = [name.rpartition(" ")[2] for name in project["classifiers"] if "Python :: 3." in name]

    assert tuple(named) == PYTHONS
    assert project["requires-python"] == f">={PYTHONS[0]}"
