"""The filtering module: which consumers an event reaches.

A route is computed once for each event type and source, and again only when a consumer connects or
disconnects, so a push is one look-up. `Subscriptions` reads the consumers' dependencies; `Broadcast`
leaves filtering and correlation out and delivers every event to every consumer.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from timebound.channel.base.consumer import PLAIN, Consumer
from timebound.channel.base.dependency import fits, key_of
from timebound.core.correlation.expression import SIGNALS_MAX


class RouteEntry:
    """One consumer on a route; `mask` is PLAIN, or the leaves of its dependency that the event fits."""

    __slots__ = ("consumer", "mask")

    def __init__(self, consumer: Consumer, mask: int) -> None:
        self.consumer: Final = consumer
        self.mask: Final = mask


Route = list[RouteEntry]


@mypyc_attr(allow_interpreted_subclasses=True)
class Filtering:
    """Decides whether a consumer receives an event of a type and source."""

    # Whether consumers may state dependencies and predicates. A module of your own sets it in `__init__`:
    # the compiled class does not see class attributes of a class derived from it.
    has_dependencies = False

    @abstractmethod
    def mask(self, consumer: Consumer, event_type: str, source: str) -> int:
        """Return 0 when the consumer does not want the event, else PLAIN or the leaves it fits."""

    def route(self, consumers: list[Consumer], event_type: str, source: str) -> Route:
        """Return the consumers of an event, in the order of `consumers`."""
        entries: Route = []
        for consumer in consumers:
            mask = self.mask(consumer, event_type, source)
            if mask != 0:
                entries.append(RouteEntry(consumer, mask))
        return entries


class Subscriptions(Filtering):
    """Delivers by type, source, predicate and correlation."""

    has_dependencies = True

    def mask(self, consumer: Consumer, event_type: str, source: str) -> int:
        mask = 0
        for index, leaf in enumerate(consumer.correlator.leaves):
            if fits(key_of(leaf), event_type, source):
                mask |= 1 << index
        if mask != 0 and consumer.correlator.is_stateless and consumer.where is None:
            return PLAIN
        if mask != 0 and consumer.generation != 0:
            mask |= consumer.generation << SIGNALS_MAX
        return mask


class Broadcast(Filtering):
    """Delivers every event to every consumer, except to those that only asked for timers.

    A gateway keeps its filter, which is what the far channels want.
    """

    def mask(self, consumer: Consumer, event_type: str, source: str) -> int:
        leaves = consumer.correlator.leaves
        if not consumer.is_gateway:
            return PLAIN if leaves else 0
        for leaf in leaves:
            if fits(key_of(leaf), event_type, source):
                return PLAIN
        return 0
