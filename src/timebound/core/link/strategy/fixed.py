"""FIX: by the fixed priority of the message, then in order of arrival."""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import STATIC, Strategy, StrategyKind
from timebound.core.link.strategy.entry import Entry


class Fixed(Strategy):
    """The highest priority first."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("fixed", STATIC, False)

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        return float(entry.priority)


KIND: Final = StrategyKind(
    "fixed", "the highest priority, then the first", lambda mix: Fixed(), order=20, uses_priority=True
)
