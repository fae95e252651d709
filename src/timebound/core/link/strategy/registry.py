"""Strategies by the names that configuration uses.

A strategy is one file of this package that has a `KIND`; nothing else names it. A new file is found without a
change elsewhere, and its place in lists depends on what it says, not on the order of imports.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

import timebound.core.link.strategy as package
from timebound.core.link.strategy.base import Strategy, StrategyKind


def _find_kinds() -> dict[str, StrategyKind]:
    """Read the `KIND` of every module beside this one; raises ValueError if two have the same name."""
    found: list[StrategyKind] = []
    for name in sorted([module.name for module in pkgutil.iter_modules(package.__path__)]):
        if name == "registry":
            continue
        kind = getattr(importlib.import_module(f"{package.__name__}.{name}"), "KIND", None)
        if isinstance(kind, StrategyKind):
            found.append(kind)
    found.sort(key=_place)
    kinds = {kind.name: kind for kind in found}
    if len(kinds) < len(found):
        raise ValueError(f"two strategies have one name: {', '.join([kind.name for kind in found])}")
    return kinds


def _place(kind: StrategyKind) -> tuple[int, str]:
    return kind.order, kind.name


def _default_of(kinds: dict[str, StrategyKind]) -> str:
    """Return the name of the kind that says it is the default; raises ValueError unless exactly one does."""
    names = [kind.name for kind in kinds.values() if kind.is_default]
    if len(names) != 1:
        raise ValueError(f"one strategy must be the default; these are: {', '.join(names) or 'none'}")
    return names[0]


STRATEGIES: Final = _find_kinds()
STRATEGY_NAMES: Final = tuple(STRATEGIES)
DEFAULT_STRATEGY: Final = _default_of(STRATEGIES)


def kind_named(name: str) -> StrategyKind:
    """Return what is known about a strategy; raises ValueError if there is none of this name."""
    kind = STRATEGIES.get(name)
    if kind is None:
        raise ValueError(f"strategy {name!r} is unknown; choose one of {', '.join(STRATEGY_NAMES)}")
    return kind


def strategy_named(name: str, *, mix: float = -1.0) -> Strategy:
    """Make a strategy; `mix` is for those that mix two aims, -1 its default.

    Raises:
        ValueError: there is no such strategy, or the mix is out of range.
    """
    kind = kind_named(name)
    return kind.make(kind.mix_default if mix == -1.0 else mix)
