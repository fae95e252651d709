"""Publishers and subscriptions of a run.

Every publisher draws from its own stream, in a fixed order per message, so the load does not depend
on what the brokers do with it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from timebound.core.mesh.message import MeshMessage
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.message import Message
from timebound.sim.kernel.draws import Draw
from timebound.sim.kernel.streams import Streams
from timebound.sim.mesh.setting import PublisherSetting, SubscriptionSetting
from timebound.sim.mesh.topology import Topology
from timebound.units import MILLISECOND, MINUTE

POISSON: Final = 0
PERIODIC: Final = 1
BURSTY: Final = 2
_ARRIVALS: Final = {"poisson": POISSON, "periodic": PERIODIC, "bursty": BURSTY}
_NO_PAYLOAD: Final = b""


class Source:
    """One publisher: the times and contents of its messages."""

    __slots__ = (
        "_arrivals",
        "_attributes",
        "_burst",
        "_left",
        "_mean_ns",
        "_priority",
        "_random",
        "_size",
        "_timeout",
        "_topic",
        "client_id",
        "home",
    )

    def __init__(self, client_id: str, home: str, setting: PublisherSetting, random: Random) -> None:
        self.client_id = client_id
        self.home = home
        self._random = random
        self._arrivals = _ARRIVALS[setting.arrivals]
        self._mean_ns = MINUTE / setting.rate_per_minute
        self._burst = setting.burst
        self._left = 0  # messages left of the burst
        self._topic = setting.topic
        self._size = setting.size_bytes
        self._attributes: list[tuple[str, Draw]] = list(setting.attributes)
        self._timeout = setting.timeout_ms
        self._priority = setting.priority

    def first_ns(self) -> int:
        """Return the time of the first message; of a periodic publisher, anywhere in its first period."""
        if self._arrivals == PERIODIC:
            return int(self._random.random() * self._mean_ns)
        return self.next_ns(0)

    def next_ns(self, now_ns: int) -> int:
        """Return the time of the message after one at `now_ns`."""
        if self._arrivals == PERIODIC:
            return now_ns + int(self._mean_ns)
        if self._arrivals == BURSTY:
            if self._left:
                self._left -= 1
                return now_ns
            self._left = self._burst - 1
            return now_ns + int(self._random.expovariate(1.0 / (self._mean_ns * self._burst)))
        return now_ns + int(self._random.expovariate(1.0 / self._mean_ns))

    def message(self, sequence: int, now_ns: int) -> MeshMessage:
        """Draw the next message."""
        random = self._random
        properties = tuple([(name, repr(draw.draw(random))) for name, draw in self._attributes])
        size_bytes = max(int(self._size.draw(random)), 1)
        timeout_ns = 0
        if self._timeout is not None:
            timeout_ns = max(int(self._timeout.draw(random) * MILLISECOND), 1)
        priority = 0 if self._priority is None else int(self._priority.draw(random))
        message = Message(
            self._topic,
            _NO_PAYLOAD,
            0,
            False,
            now_ns,
            self.client_id,
            user_properties=properties,
            timeout_ns=timeout_ns,
            priority=priority,
            sequence=sequence,
        )
        return MeshMessage(message, self.home, size_bytes)


def make_sources(
    settings: tuple[PublisherSetting, ...], topology: Topology, streams: Streams
) -> list[tuple[Source, PublisherSetting]]:
    """Make all publishers, in a fixed order."""
    sources = []
    number = 0
    for setting in settings:
        for broker in setting.brokers or topology.at_layer(setting.layer):
            for _ in range(setting.count):
                number += 1
                name = f"{setting.name}{number}"
                source = Source(name, broker, setting, streams.stream(f"publisher {name}"))
                sources.append((source, setting))
    return sources


def make_subscriptions(
    settings: tuple[SubscriptionSetting, ...], topology: Topology, streams: Streams
) -> list[MeshSubscription]:
    """Make all subscriptions, in a fixed order."""
    random = streams.stream("subscriptions")
    subscriptions = []
    number = 0
    for setting in settings:
        for broker in setting.brokers or topology.at_layer(setting.layer):
            for _ in range(setting.count):
                number += 1
                subscriptions.append(_subscription(f"{setting.name}{number}", broker, setting, random))
    return subscriptions


def _subscription(
    client_id: str, broker: str, setting: SubscriptionSetting, random: Random
) -> MeshSubscription:
    where = setting.where
    for name, draw in setting.draws:
        where = where.replace("{" + name + "}", repr(draw.draw(random)))
    return MeshSubscription(
        client_id=client_id,
        home=broker,
        topic_filter=setting.topic_filter,
        terms=replace(random.choice(setting.terms), where=where),
        last_mile_ns=setting.last_mile_ns,
    )
