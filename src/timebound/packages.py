"""Packages that only some commands need: checked before long work, missing ones reported together.

They are only looked up here, which costs no time; their users import them.
"""

from __future__ import annotations

import importlib.util
from typing import Final

from timebound.errors import ConfigError

# The extra of this package that installs each: see pyproject.toml.
_EXTRAS: Final = {
    "matplotlib": "plot",
    "numpy": "trace",
    "pandas": "spark",
    "pyarrow": "trace",
    "pyspark": "spark",
}
FOR_PLOTS: Final = ("matplotlib",)
# Parquet files, journals and the service for them, reports.
FOR_TRACES: Final = ("numpy", "pyarrow")
FOR_SPARK: Final = ("numpy", "pandas", "pyarrow", "pyspark")
# The extra for Spark includes that for traces.
_LESS: Final = "trace"
_MORE: Final = "spark"


def missing(*packages: str) -> list[str]:
    """Return the packages that are not installed."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def advice(what: str, absent: list[str]) -> str:
    """Return which packages `what` needs, and how to install them."""
    extras = sorted({_EXTRAS[name] for name in absent})
    if _MORE in extras and _LESS in extras:
        extras.remove(_LESS)
    noun, them = ("package", "it") if len(absent) == 1 else ("packages", "them")
    return (
        f"{what} needs the {noun} {' and '.join(absent)}; "
        f"install {them} in a clone of the project with: {install_command(*extras)}"
    )


def install_command(*extras: str) -> str:
    """Return how to install this package with extras; the docs write it in the same way.

    Decided here alone: until the package is published, it is installed from a clone of the project.
    """
    return f"pip install '.[{','.join(extras)}]'"


def require(what: str, *packages: str, key: str = "") -> None:
    """Check that packages are installed, before work that needs them begins.

    Raises:
        ConfigError: some are missing; names them all and how to install them.
    """
    absent = missing(*packages)
    if absent:
        raise ConfigError(advice(what, absent), key=key)
