"""Gateways between channels of one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from timebound.channel import ChannelBuilder, ChannelError, Event, EventChannel, Gateway, all_of, build
from timebound.channel.base.dependency import Key
from timebound.channel.federation.gateway import hub_of
from timebound.channel.federation.link_state import Advert, Carried, Frame


class CountingLink:
    """Stands between two hubs and counts the events that pass."""

    def __init__(self, sender: EventChannel, receiver: EventChannel) -> None:
        self._sender = sender.name
        self._receiver = hub_of(receiver)
        self.events: list[Carried] = []

    def send(self, frame: Frame) -> None:
        if isinstance(frame, Carried):
            self.events.append(frame)
        self._receiver.receive(self._sender, frame)


def channels(names: str) -> list[EventChannel]:
    made = [ChannelBuilder(name).filtering().build() for name in names]
    for channel in made:
        channel.start()
    return made


def join(first: EventChannel, second: EventChannel) -> tuple[CountingLink, CountingLink]:
    there, back = CountingLink(first, second), CountingLink(second, first)
    hub_of(first).add_link(second.name, there)
    hub_of(second).add_link(first.name, back)
    for advert in hub_of(first).adverts():
        hub_of(second).receive(first.name, advert)
    return there, back


Row = tuple[str, object, str, str]


def collect(channel: EventChannel, *types: str) -> list[Row]:
    got: list[Row] = []
    for event_type in types:
        channel.connect(lambda e: got.append((e.type, e.payload, e.source, e.origin)), event_type)
    return got


def test_only_what_the_far_consumers_want_crosses_in_one_copy() -> None:
    left, right = channels("lr")
    there, back = join(left, right)
    got = collect(right, "x")
    again = collect(right, "x")
    supplier = left.supplier("s", "x", "y")

    supplier.push("x", 1)
    supplier.push("y", 2)

    assert got == again == [("x", 1, "s", "l")]
    assert len(there.events) == 1
    assert back.events == []


def test_gateway_follows_changes_of_what_is_wanted() -> None:
    left, right = channels("lr")
    there, _ = join(left, right)
    supplier = left.supplier("s", "x")
    supplier.push("x", 1)
    got: list[object] = []
    consumer = right.connect(lambda e: got.append(e.payload), "x")
    supplier.push("x", 2)
    consumer.disconnect()
    supplier.push("x", 3)

    assert got == [2]
    assert len(there.events) == 1


def test_in_a_cycle_of_three_each_channel_gets_one_copy_and_nothing_loops() -> None:
    a, b, c = channels("abc")
    links = [*join(a, b), *join(b, c), *join(c, a)]
    got = {channel.name: collect(channel, "x") for channel in (a, b, c)}

    a.supplier("s", "x").push("x", 1)

    assert got == {name: [("x", 1, "s", "a")] for name in "abc"}
    assert sum(len(link.events) for link in links) == 2


def test_cycle_carries_each_origin_once_also_for_consumers_of_several_types() -> None:
    a, b, c = channels("abc")
    links = [*join(a, b), *join(b, c), *join(c, a)]
    got = {channel.name: collect(channel, "x", "y") for channel in (a, b, c)}

    for channel in (a, b, c):
        supplier = channel.supplier(f"s{channel.name}", "x", "y")
        supplier.push("x", 1)
        supplier.push("y", 2)

    assert all(len(events) == len(set(events)) == 6 for events in got.values())
    assert sum(len(link.events) for link in links) == 12


def test_channel_in_the_middle_forwards_and_a_cut_cycle_heals() -> None:
    a, b, c = channels("abc")
    join(a, b)
    join(b, c)
    join(c, a)
    got = collect(c, "x")
    supplier = a.supplier("s", "x")
    supplier.push("x", 1)
    hub_of(a).remove_link("c")
    hub_of(c).remove_link("a")
    supplier.push("x", 2)

    assert [row[1] for row in got] == [1, 2]


def test_conjunction_may_have_parts_from_several_channels() -> None:
    left, right = channels("lr")
    join(left, right)
    got: list[list[object]] = []
    right.connect(lambda e: got.append([p.payload for p in e.parts]), all_of("x", "y"))

    left.supplier("s", "x").push("x", 1)
    right.supplier("t", "y").push("y", 2)

    assert got == [[1, 2]]


def test_many_wants_still_cross_exactly() -> None:
    left, right = channels("lr")
    there, _ = join(left, right)
    got = collect(right, *[f"t{n}" for n in range(100)])
    supplier = left.supplier("s", "t7", "t99", "other")
    for event_type in ("t7", "other", "t99"):
        supplier.push(event_type, event_type)

    assert [row[1] for row in got] == ["t7", "t99"]
    assert len(there.events) == 2


def test_broadcast_channels_exchange_everything() -> None:
    left, right = build("broadcast", name="l"), build("broadcast", name="r")
    got: list[object] = []
    with left, right, Gateway(left, right):
        right.connect(lambda e: got.append(e.payload))
        left.supplier("s", "x", "y").push("y", 1)

    assert got == [1]


def test_closed_gateway_carries_nothing_and_can_be_made_again() -> None:
    left, right = channels("lr")
    got = collect(right, "x")
    supplier = left.supplier("s", "x")
    with Gateway(left, right):
        supplier.push("x", 1)
        with pytest.raises(ChannelError, match="already joined to 'r'"):
            Gateway(left, right)
    supplier.push("x", 2)
    with Gateway(left, right):
        supplier.push("x", 3)

    assert [row[1] for row in got] == [1, 3]


def test_namesakes_cannot_be_joined() -> None:
    first, second = channels("xx")

    with pytest.raises(ChannelError, match="need different names"):
        Gateway(first, second)


def test_advert_of_an_earlier_life_is_answered_with_a_newer_one() -> None:
    left, right = channels("lr")
    _, back = join(left, right)
    collect(left, "x")
    hub = hub_of(left)
    old = next(a for a in hub.adverts() if a.channel == "l")

    hub.receive("r", type(old)("l", old.version + 1000, (), ()))

    now = next(a for a in hub_of(right).adverts() if a.channel == "l")
    assert now.wants == (("x", ""),)
    assert now.version == old.version + 1001 or now.version > old.version
    assert back.events == []


class Interrupting(tuple[Key, ...]):
    """Wants whose reading lets another thread act first, as a switch of threads may at any moment."""

    act: Callable[[], object] = list

    def __iter__(self) -> Iterator[Key]:
        acting = Thread(target=self.act)
        acting.start()
        # Long enough for it to be done, unless it has to wait for the reader.
        acting.join(0.2)
        return super().__iter__()


class Nowhere:
    def send(self, frame: Frame) -> None:
        """Take a frame and forget it."""


def test_advert_that_comes_while_a_way_is_worked_out_counts_afterwards() -> None:
    (channel,) = channels("l")
    hub = hub_of(channel)
    hub.add_link("r", Nowhere())
    wants = Interrupting([("y", "")])
    hub.receive("r", Advert("r", 1, ("l", "m"), ()))
    hub.receive("r", Advert("m", 1, ("r",), wants))
    wants.act = lambda: hub.receive("r", Advert("r", 2, ("l", "m"), (("x", ""),)))

    hub.next_hops("x", "s")

    wants.act = list
    until = time.monotonic() + 10.0
    while hub.next_hops("x", "s") != ("r",):
        assert time.monotonic() < until, "the way worked out from the older advert is still remembered"


def test_event_keeps_source_and_gets_local_time() -> None:
    left = ChannelBuilder("l").filtering().clock(lambda: 5).build()
    right = ChannelBuilder("r").filtering().clock(lambda: 900).build()
    got: list[Event] = []
    with left, right, Gateway(left, right):
        right.connect(got.append, "x")
        left.supplier("s", "x").push("x", 1)

    assert [(e.source, e.time_ns, e.origin) for e in got] == [("s", 900, "l")]
