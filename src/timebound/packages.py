"""Packages that only some commands need: asked for before any long work, missing ones named together.

Importing them is left to those who use them; here they are only looked for, which costs no time.
"""

from __future__ import annotations

import importlib.util
from typing import Final

from timebound.errors import ConfigError

# By which extra of this package each is installed: see pyproject.toml.
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
# The extra for Spark brings what the one for traces does.
_LESS: Final = "trace"
_MORE: Final = "spark"


def missing(*packages: str) -> list[str]:
    """Those of the packages that are not installed."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def advice(what: str, absent: list[str]) -> str:
    """What needs the absent packages, and how to install them."""
    extras = sorted({_EXTRAS[name] for name in absent})
    if _MORE in extras and _LESS in extras:
        extras.remove(_LESS)
    noun, them = ("package", "it") if len(absent) == 1 else ("packages", "them")
    return (
        f"{what} needs the {noun} {' and '.join(absent)}; "
        f"install {them} with: pip install 'timebound[{','.join(extras)}]'"
    )


def require(what: str, *packages: str, key: str = "") -> None:
    """Make sure that packages are installed, before anything is begun that needs them.

    Raises:
        ConfigError: some are not; names them all and says how to install them.
    """
    absent = missing(*packages)
    if absent:
        raise ConfigError(advice(what, absent), key=key)
