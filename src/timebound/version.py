"""The version of the package, and whether its hot modules are compiled."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"


def is_compiled() -> bool:
    """Whether the core is compiled; plain Python behaves the same, but slower."""
    from timebound.core import broker

    return not str(broker.__file__).endswith(".py")
