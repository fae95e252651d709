"""Gateways: a channel's part in a federation, and links between channels of one process.

A `Hub` belongs to one channel. For each neighbour it connects a consumer that wants only what the channels
behind that neighbour want, and follows their changes. Links only carry frames; those between processes and
through a broker have files of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Protocol

from timebound.channel.base.consumer import Consumer
from timebound.channel.base.dependency import Key
from timebound.channel.base.errors import ChannelError
from timebound.channel.base.event import TIMEOUT, TOGETHER, Event
from timebound.channel.carrier import Carrier
from timebound.channel.federation.link_state import (
    MEDIUM_PREFIX,
    Advert,
    Carried,
    Federation,
    Frame,
    SeenEvents,
)


class FrameLink(Protocol):
    """Carries frames to one neighbour, in order, without ever blocking the caller for long."""

    def send(self, frame: Frame) -> None: ...


class Coalesced:
    """An action that runs in one thread at a time, and once more if it was called meanwhile.

    So the last run always sees the latest state, and no caller waits.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._is_due = False
        self._running = Lock()

    def __call__(self) -> None:
        self._is_due = True
        while self._is_due and self._running.acquire(False):
            try:
                self._is_due = False
                self._action()
            finally:
                self._running.release()


class Hub:
    """The part of one channel in a federation; get it with `hub_of`."""

    def __init__(self, channel: Carrier) -> None:
        self.channel = channel
        # Guards the fields below; never held while calling the channel or a link, which have their own.
        self._lock = Lock()
        self._federation = Federation(channel.name)
        self._links: dict[str, FrameLink] = {}
        self._consumers: dict[str, Consumer] = {}
        self._seen = SeenEvents()
        # How many adverts were learnt, and how many of them the routes take into account.
        self._learnt = 0
        self._followed = 0
        # Higher than any number that an earlier run of this channel can have used.
        self._sequence = time.time_ns()
        self.advertise = Coalesced(self._advertise)
        self._follow = Coalesced(self._redirect)
        channel.add_listener(self.advertise)

    def add_link(self, neighbour: str, link: FrameLink) -> None:
        """Join a neighbour; both learn what all others want.

        Raises:
            ChannelError: the neighbour is this channel itself, or is joined already.
        """
        with self._lock:
            if neighbour == self.channel.name:
                raise ChannelError(
                    f"channel {neighbour!r} cannot be joined to itself or to another of that name"
                )
            if neighbour in self._links:
                raise ChannelError(f"channel {self.channel.name!r} is already joined to {neighbour!r}")
            self._links[neighbour] = link
            known = self._federation.adverts()
        consumer = self.channel.connect_gateway(
            lambda event: self._forward(neighbour, event), f"gateway to {neighbour}"
        )
        with self._lock:
            self._consumers[neighbour] = consumer
        for advert in known:
            link.send(advert)
        self.advertise()
        # Also if the advert is unchanged, because the neighbour was away only for a moment.
        self._follow()

    def remove_link(self, neighbour: str, link: FrameLink | None = None) -> None:
        """Disconnect a neighbour; with a link, only if it is still joined by that one."""
        with self._lock:
            current = self._links.get(neighbour)
            if current is None or (link is not None and link is not current):
                return
            del self._links[neighbour]
            consumer = self._consumers.pop(neighbour, None)
        if consumer is not None:
            consumer.disconnect()
        self.advertise()

    def neighbours(self) -> list[str]:
        with self._lock:
            return sorted(self._links)

    def has_settled(self) -> bool:
        """Whether the next event pushed is routed by everything known of other channels."""
        with self._lock:
            return self._followed == self._learnt

    def adverts(self) -> list[Advert]:
        """Return the adverts of all known channels, this one included, by name."""
        with self._lock:
            return self._federation.adverts()

    def advert_of(self, channel: str) -> Advert | None:
        with self._lock:
            return self._federation.advert_of(channel)

    def next_hops(self, event_type: str, source: str) -> tuple[str, ...]:
        """Return the neighbours to which an event pushed into this channel is passed now."""
        with self._lock:
            return self._federation.next_hops(self.channel.name, event_type, source)

    def wants_from(self, medium: str) -> list[Key]:
        """Return what this channel and those behind it have to take from a shared medium."""
        with self._lock:
            return self._federation.wants_from(medium)

    def _advertise(self) -> None:
        """Advertise this channel's neighbours and wants to all channels, if they changed."""
        name = self.channel.name
        wants = tuple(self.channel.wants())
        with self._lock:
            neighbours = tuple(sorted(self._links))
            current = self._federation.advert_of(name)
            if current is not None and (current.neighbours, current.wants) == (neighbours, wants):
                return
            version = time.time_ns() if current is None else max(current.version + 1, time.time_ns())
            advert = Advert(name, version, neighbours, wants)
            self._federation.learn(advert)
            self._learnt += 1
        self._spread(advert, "")

    def receive(self, neighbour: str, frame: Frame) -> None:
        """Handle a frame from a neighbour."""
        if isinstance(frame, Advert):
            self._receive_advert(neighbour, frame)
        else:
            self._receive_event(frame)

    def _receive_advert(self, neighbour: str, advert: Advert) -> None:
        with self._lock:
            is_own = advert.channel == self.channel.name
            is_news = self._federation.learn(advert)
            self._learnt += is_news
        if not is_news:
            return
        if is_own:
            # From an earlier run of this channel: advertise the present state under a higher version.
            self.advertise()
            self._follow()
        else:
            self._spread(advert, neighbour)

    def _spread(self, advert: Advert, neighbour_from: str) -> None:
        """Route by a new advert, and pass it on to all neighbours but the one it came from."""
        self._follow()
        with self._lock:
            links = [link for name, link in self._links.items() if name != neighbour_from]
        for link in links:
            link.send(advert)

    def _redirect(self) -> None:
        with self._lock:
            learnt = self._learnt
            wanted = [
                (consumer, self._federation.wants_beyond(name)) for name, consumer in self._consumers.items()
            ]
        for consumer, keys in wanted:
            self.channel.redirect(consumer, keys)
        with self._lock:
            self._followed = learnt

    def _receive_event(self, carried: Carried) -> None:
        with self._lock:
            if carried.origin == self.channel.name or not self._seen.is_new(carried.origin, carried.sequence):
                return
        now_ns = self.channel.now_ns()
        self.channel.inject(
            Event(carried.type, carried.source, carried.payload, now_ns, carried.origin, carried.sequence)
        )

    def _forward(self, neighbour: str, event: Event) -> None:
        if event.type in (TIMEOUT, TOGETHER):
            return
        with self._lock:
            if event.sequence == 0:
                self._sequence += 1
                event.sequence = self._sequence
            hops = self._federation.next_hops(event.origin, event.type, event.source)
            link = self._links.get(neighbour) if neighbour in hops else None
        if link is not None:
            link.send(Carried(event.type, event.source, event.payload, event.origin, event.sequence))


def hub_of(channel: Carrier) -> Hub:
    """Return the hub of a channel, made on first use."""
    with channel.federation_lock:
        hub = channel.federation
        if hub is None:
            hub = channel.federation = Hub(channel)
    assert isinstance(hub, Hub)
    return hub


class _Direct:
    """A link inside one process: a call."""

    def __init__(self, sender: str, receiver: Hub) -> None:
        self._sender = sender
        self._receiver = receiver

    def send(self, frame: Frame) -> None:
        self._receiver.receive(self._sender, frame)


class Gateway:
    """Joins two channels of one process, both ways."""

    def __init__(self, first: Carrier, second: Carrier) -> None:
        self._hubs = (hub_of(first), hub_of(second))
        self._names = (first.name, second.name)
        if first.name.startswith(MEDIUM_PREFIX) or first.name == second.name:
            raise ChannelError(
                f"channels {first.name!r} and {second.name!r} need different names to be joined"
            )
        self._hubs[0].add_link(second.name, _Direct(first.name, self._hubs[1]))
        self._hubs[1].add_link(first.name, _Direct(second.name, self._hubs[0]))
        # The first side's advert went out before the second side had its link.
        for advert in self._hubs[0].adverts():
            self._hubs[1].receive(first.name, advert)

    def close(self) -> None:
        """Separate the channels."""
        self._hubs[0].remove_link(self._names[1])
        self._hubs[1].remove_link(self._names[0])

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
