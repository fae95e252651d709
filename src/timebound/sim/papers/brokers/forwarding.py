"""Forwarders of brokers that match again at every hop, or that never drop a message.

Brokers that match again send to every next hop with a matching subscription, so copies may meet: second
copies are dropped on arrival, or travel on without being delivered again. Brokers that never drop queue
endless entries: without a time limit, in the fixed order of their strategy.
"""

from __future__ import annotations

import math
from typing import Final

from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.base import STATIC, Strategy
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.fifo import Fifo
from timebound.core.link.strategy.remaining_lifetime import RemainingLifetime
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.link import MeshLink
from timebound.core.mesh.message import Copy, InTransit, Placement, Seen
from timebound.core.mesh.options import TREE, MeshOptions
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.routes import Router
from timebound.core.mesh.table import HomeGroup, SubscriptionTable
from timebound.core.values.message import Message
from timebound.records import Reason

_NS_PER_MS: Final = 1_000_000
# The end of an average lifetime without end: after all others.
_LATEST: Final = 1 << 60


class MatchingRouter(Router):
    """Every matching next hop as this broker sees it, regardless of what other brokers send."""

    __slots__ = ()

    def __init__(self, name: str, link_state: LinkState, table: SubscriptionTable) -> None:
        super().__init__(name, link_state, table, TREE)

    def _place_single(self, copy: Copy, transit: InTransit) -> list[HomeGroup]:
        next_hops = self.link_state.tree(self.name).next_hops_from(self.name)
        by_neighbour: dict[str, list[HomeGroup]] = {}
        ended: list[HomeGroup] = []
        for group in copy.what.groups(self.table):
            hop = next_hops.get(group.home)
            if hop is None:
                if group.home == self.name:
                    ended.append(group)
            elif self._is_open(hop.neighbour, copy):
                by_neighbour.setdefault(hop.neighbour, []).append(group)
                transit.places[group.home] = 1
        for neighbour, groups in by_neighbour.items():
            transit.placements.append(Placement(transit, neighbour, groups))
        return ended


class PaperForwarder(Forwarder):
    """A forwarder that matches again at every hop, never drops, or both.

    With `matches_again`, second copies go no further unless `forwards_duplicates`. With `order`, nothing
    expires: queues keep the fixed order of that strategy, and the options name `Fixed` as theirs.
    """

    __slots__ = ("_forwards_duplicates", "_order", "_received")

    def __init__(
        self,
        name: str,
        link_state: LinkState,
        table: SubscriptionTable,
        options: MeshOptions,
        account: MeshAccount,
        *,
        matches_again: bool = False,
        forwards_duplicates: bool = False,
        order: Strategy | None = None,
    ) -> None:
        super().__init__(name, link_state, table, options, account)
        self._received = Seen() if matches_again else None
        self._forwards_duplicates = forwards_duplicates
        self._order = order
        if matches_again:
            assert options.routing == TREE, "late binding names the homes of a copy and never matches again"
            self.router = MatchingRouter(name, link_state, table)
            self.links = self.router.links

    def _place(self, copy: Copy, now_ns: int) -> None:
        what = copy.what
        if self._received is None or self._received.add(what.origin, what.started_ns, what.number):
            super()._place(copy, now_ns)
            return
        self.account.duplicates += 1
        if self._forwards_duplicates:
            transit = InTransit(copy, now_ns)
            self.router.place(copy, transit)
            self._queue(transit, now_ns)

    def _make_copy(self, transit: InTransit, targets: set[str]) -> Copy:
        if self._received is None:
            return super()._make_copy(transit, targets)
        # Copies that may meet may also go in circles: only the sender is named.
        return Copy(transit.what, (self.name,), transit.hops + 1, None)

    def _make_entry(self, placement: Placement, link: MeshLink) -> Entry:
        if self._order is None:
            return super()._make_entry(placement, link)
        what = placement.transit.what
        audience = self.router.audience(link, placement.groups)
        return endless_entry(placement, what.message, what.size_bytes, audience, self._order)

    def _lose(self, placement: Placement, reason: Reason, time_ns: int) -> None:
        # Where copies are matched again another one may still arrive; what never did is counted at the end.
        if self._received is None:
            super()._lose(placement, reason, time_ns)


def endless_entry(
    item: object, message: Message, size_bytes: int, audience: Audience, strategy: Strategy
) -> Entry:
    """Return an entry without limits, whose priority keeps the order that a static strategy gives it."""
    assert strategy.kind == STATIC, "only an order that never changes can be kept"
    priority = message.priority
    if isinstance(strategy, Fifo):
        priority = 0
    elif isinstance(strategy, RemainingLifetime):
        total = 0.0
        for term in audience.terms:
            allowed = term.allowed
            if message.timeout_ns and message.timeout_ns < allowed:
                allowed = float(message.timeout_ns)
            total += allowed * float(term.count)
        end = float(message.published_ns) + total / float(audience.subscriptions)
        priority = -int(end) // _NS_PER_MS if end < math.inf else -_LATEST
    return Entry(item, size_bytes, message.published_ns, Audience([Term()]), 0, priority)
