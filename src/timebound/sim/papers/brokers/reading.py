"""What a broker does where the papers leave it open, and the broker that a reading makes.

`Reading` has one field for each open question; its defaults are the literal reading (docs/reproduction.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from timebound.core.link.strategy.base import Strategy
from timebound.core.link.strategy.fixed import Fixed
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.link.strategy.remaining_lifetime import RemainingLifetime
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.options import LATE, TREE, MeshOptions
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.table import SubscriptionTable
from timebound.sim.papers.brokers.forwarding import PaperForwarder
from timebound.sim.papers.brokers.lifetime import AliveLifetime

# Brokers that match again at every hop follow their own path trees.
MATCHING: Final = ("match", "match-all")
ROUTINGS: Final = {"tree": TREE, "late": LATE, "match": TREE, "match-all": TREE}
DROPS: Final = ("hopeless", "expired", "none")
LIFETIMES: Final = ("all", "alive")
# No ε at all: only what has expired is dropped. See docs/reproduction.md.
_EXPIRED_ONLY: Final = 1e-300

MakeForwarder = Callable[[str, LinkState, SubscriptionTable, MeshOptions, MeshAccount], Forwarder]


@dataclass(frozen=True, slots=True)
class Reading:
    """Behaviour of the broker where the papers leave it open."""

    routing: str = "tree"
    drops: str = "hopeless"  # hopeless: ε-drop for all strategies; expired, none: for FIFO, RL and FIX only
    lifetime: str = "all"  # RL averages over all subscriptions, or over those "alive"


@dataclass(frozen=True, slots=True)
class ReadBroker:
    """The parts of a broker that depend on the reading; `strategy` is that of its options."""

    strategy: Strategy
    routing: int
    epsilon: float
    make_forwarder: MakeForwarder


def read_broker(reading: Reading, name: str, mix: float, epsilon: float) -> ReadBroker:
    """Return the broker of a reading, with a strategy and an ε: the product's own, unless it reads otherwise.

    Raises:
        ValueError: there is no strategy of this name, or the mix is out of range.
    """
    strategy = _strategy(reading, name, mix)
    # The other readings of early drop are about strategies that know no probabilities.
    drops = "hopeless" if strategy.weighs_worth else reading.drops
    drops_nothing = drops == "none"
    return ReadBroker(
        strategy=Fixed() if drops_nothing else strategy,
        routing=ROUTINGS[reading.routing],
        epsilon=_EXPIRED_ONLY if drops == "expired" else epsilon,
        make_forwarder=_make_forwarder(reading, strategy if drops_nothing else None),
    )


def _strategy(reading: Reading, name: str, mix: float) -> Strategy:
    strategy = strategy_named(name, mix=mix)
    is_lifetime = isinstance(strategy, RemainingLifetime)
    return AliveLifetime() if is_lifetime and reading.lifetime == "alive" else strategy


def _make_forwarder(reading: Reading, order: Strategy | None) -> MakeForwarder:
    """Return what makes forwarders; with `order`, those that never drop and keep that order."""
    matches_again = reading.routing in MATCHING
    if not matches_again and order is None:
        return Forwarder
    return partial(
        PaperForwarder,
        matches_again=matches_again,
        forwards_duplicates=reading.routing == "match-all",
        order=order,
    )
