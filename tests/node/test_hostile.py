"""Packets that make the broker work, beside a pair that behaves; `benchmarks/hostile.py` measures."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable

import pytest
from tests.conftest import StartBroker
from tests.peer import Peer, join, props

from timebound.errors import TimeboundError
from timebound.wire.codec import encode
from timebound.wire.packets import Packet, Publish, Subscribe, SubscribeEntry, make_publish

# Each attack held everybody up for longer than twice that, most of them for minutes when not compiled;
# now it is some milliseconds. A busy machine must not make the difference.
DELAY_S_MAX = 2.0
MEASURED_S = 2.0
FILTERS = 992


def overlapping(count: int) -> list[str]:
    """Topic filters that all select the topic `x/x/x/x/x/x/x/x/x/x`."""
    return ["/".join(each) for each in itertools.islice(itertools.product("+x", repeat=10), count)]


def subscribe(filters: Iterable[str], where: str = "") -> Packet:
    terms = [("where", where)] if where else []
    return Subscribe(1, [SubscribeEntry(name) for name in filters], props(user_properties=terms))


def search() -> Iterable[Packet]:
    where = " OR ".join(f"p LIKE '%{'a' * 20}{number}%'" for number in range(100))
    yield subscribe(overlapping(FILTERS), where)
    for size in (8_000, 60_000, 1_000_000) * 3:
        yield make_publish("x/" * 9 + "x", b'{"p": "%s"}' % (b"a" * size))


def read() -> Iterable[Packet]:
    where = " OR ".join(f"a{number} = 1" for number in range(300))
    yield subscribe(overlapping(FILTERS), where)


def retained() -> Iterable[Packet]:
    for number in range(2_000):
        yield make_publish("x/" * 9 + str(number), b"x", retain=True)
    yield subscribe([name[:-1] + "+" for name in overlapping(FILTERS)][::2])


@pytest.mark.parametrize("attack", [search, read, retained])
def test_a_hostile_client_does_not_hold_up_others(start_broker: StartBroker, attack: object) -> None:
    broker = start_broker("")
    assert callable(attack)
    packets = b"".join(encode(packet, 5) for packet in attack())
    with join(broker.port) as hostile, join(broker.port) as sender, join(broker.port) as reader:
        reader.subscribe("pair")
        attacking = threading.Thread(target=send, args=(hostile, packets))
        attacking.start()

        longest_s = 0.0
        end = time.monotonic() + MEASURED_S
        while time.monotonic() < end:
            began = time.monotonic()
            sender.publish("pair", b"x")
            reader.expect(Publish, 60)
            longest_s = max(longest_s, time.monotonic() - began)
        hostile.close()
        attacking.join()

    assert longest_s < DELAY_S_MAX


def send(peer: Peer, data: bytes) -> None:
    try:
        peer.send_bytes(data)
    except (OSError, TimeboundError):
        return  # the broker need not take all of it, nor in time
