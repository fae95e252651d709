"""FIFO: in order of arrival, as in most brokers. The baseline for all other strategies."""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import STATIC, Strategy, StrategyKind
from timebound.core.link.strategy.entry import Entry


class Fifo(Strategy):
    """First come, first sent."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("fifo", STATIC, False)

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        # All values are equal: ties are broken by arrival.
        return 0.0


KIND: Final = StrategyKind("fifo", "the one that came first", lambda mix: Fifo(), order=10)
