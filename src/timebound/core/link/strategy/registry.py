"""Strategies by their names in the configuration."""

from __future__ import annotations

from typing import Final

from timebound.core.link.strategy.base import Strategy
from timebound.core.link.strategy.eb import ExpectedBenefit
from timebound.core.link.strategy.ebpc import WEIGHT_DEFAULT as EBPC_WEIGHT
from timebound.core.link.strategy.ebpc import BenefitAndCost
from timebound.core.link.strategy.fifo import Fifo
from timebound.core.link.strategy.fixed import Fixed
from timebound.core.link.strategy.mtep import WEIGHT_DEFAULT as MTEP_WEIGHT
from timebound.core.link.strategy.mtep import TotalEarning
from timebound.core.link.strategy.pc import PostponingCost
from timebound.core.link.strategy.remaining_lifetime import RemainingLifetime
from timebound.core.link.strategy.worth import LOOKAHEAD, PATIENCE_NS, Worth

DEFAULT_STRATEGY: Final = "worth"
STRATEGY_NAMES: Final = ("fifo", "fixed", "remaining-lifetime", "eb", "pc", "ebpc", "mtep", "worth")


def strategy_named(
    name: str,
    *,
    weight: float = -1.0,
    lookahead: float = LOOKAHEAD,
    patience_ns: int = PATIENCE_NS,
) -> Strategy:
    """Make a strategy; `weight` is r of ebpc and w of mtep (-1 = default), the rest is for worth.

    Raises:
        ValueError: the strategy is unknown, or an option is out of range.
    """
    if name == "fifo":
        return Fifo()
    if name == "fixed":
        return Fixed()
    if name == "remaining-lifetime":
        return RemainingLifetime()
    if name == "eb":
        return ExpectedBenefit()
    if name == "pc":
        return PostponingCost()
    if name == "ebpc":
        return BenefitAndCost(EBPC_WEIGHT if weight == -1.0 else weight)
    if name == "mtep":
        return TotalEarning(MTEP_WEIGHT if weight == -1.0 else weight)
    if name == "worth":
        return Worth(lookahead, patience_ns)
    raise ValueError(f"strategy {name!r} is unknown; choose one of {', '.join(STRATEGY_NAMES)}")
