"""Deadlines, conflation, order, notices and strategies, over a real broker and a slow link."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.conftest import BrokerProcess, ShareOver, StartOver
from tests.peer import Endpoint, Peer, join, props

from timebound.demo.relay import ShapingRelay
from timebound.records import parse_message_name
from timebound.units import MILLISECOND, parse_duration
from timebound.wire.packets import Ack, Pingreq, Pingresp, Publish, make_publish

RATE = 20_000  # bytes a second: a kilobyte takes 50 ms
TIMEOUT_S = 20.0
Terms = list[tuple[str, str]]


@pytest.fixture
def slow_broker(share_over: ShareOver) -> BrokerProcess:
    return share_over('sys_interval = "0s"\n')


@pytest.fixture
def relay_port(slow_broker: BrokerProcess) -> Iterator[int]:
    with slow_link(slow_broker) as port:
        yield port


@pytest.fixture
def publisher(slow_broker: BrokerProcess) -> Iterator[Peer]:
    with join(slow_broker.port) as peer:
        yield peer


@contextlib.contextmanager
def slow_link(broker: BrokerProcess) -> Iterator[int]:
    """Where the broker is behind a slow link."""
    port = broker.port
    assert isinstance(port, Endpoint)
    with ShapingRelay(int(port), RATE) as relay:
        yield port.at(relay.port)


def stamped(size: int = 200) -> bytes:
    """A payload that says when it was made; both ends share this clock."""
    return (b"%d " % time.monotonic_ns()).ljust(size, b".")


def age_ns(packet: Publish) -> int:
    return time.monotonic_ns() - int(packet.payload.split()[0])


def read_until_answer(peer: Peer) -> list[Publish]:
    """Everything up to the answer to a PINGREQ, which overtakes nothing that was sent before."""
    found: list[Publish] = []
    end_s = time.monotonic() + TIMEOUT_S
    peer.send(Pingreq())
    while not isinstance(packet := peer.receive(TIMEOUT_S), Pingresp):
        assert isinstance(packet, Publish), packet
        assert time.monotonic() < end_s, "the messages do not end"
        found.append(packet)
    return found


def read_publishes(peer: Peer, count: int) -> list[Publish]:
    return [peer.expect(Publish, TIMEOUT_S) for _ in range(count)]


def drops(broker: BrokerProcess, topic_filter: str) -> Peer:
    watcher = join(broker.port)
    watcher.subscribe(f"$timebound/drops/{topic_filter}")
    return watcher


def notice(packet: Publish) -> dict[str, object]:
    found: dict[str, object] = json.loads(packet.payload)
    return found


def test_age_is_told_to_subscriptions_with_a_deadline_only(slow_broker: BrokerProcess) -> None:
    with join(slow_broker.port) as peer:
        peer.subscribe("age/timed", user_properties=[("deadline", "5s")])
        peer.subscribe("age/plain")
        peer.publish("age/timed", b"1", user_properties=[("unit", "m")])
        timed = peer.expect_publish("age/timed", b"1")
        peer.publish("age/plain", b"2", user_properties=[("unit", "m")])
        plain = peer.expect_publish("age/plain", b"2")

    names = [name for name, _ in timed.user_properties]
    assert names == ["unit", "age"]
    assert 0 <= parse_duration(timed.user_properties[1][1]) < 5_000 * MILLISECOND
    assert plain.user_properties == (("unit", "m"),)


def test_only_what_is_in_time_arrives_over_a_slow_link(
    slow_broker: BrokerProcess, relay_port: int, publisher: Peer
) -> None:
    found: list[tuple[bytes, int]] = []
    dropped: list[Publish] = []

    def read(reader: Peer) -> None:
        """Until the connection ends: how old is each message on its arrival?"""
        while isinstance(packet := reader.receive(TIMEOUT_S), Publish):
            found.append((packet.payload, age_ns(packet)))

    def watch(watcher: Peer) -> None:
        while isinstance(packet := watcher.receive(TIMEOUT_S), Publish):
            dropped.append(packet)

    with drops(slow_broker, "slow") as watcher, join(relay_port) as reader:
        reader.subscribe("slow", user_properties=[("deadline", "400ms")])
        threads = [
            threading.Thread(target=read, args=[reader]),
            threading.Thread(target=watch, args=[watcher]),
        ]
        for thread in threads:
            thread.start()
        # 60 kB at 20 kB/s: three seconds of work for messages that are worth something for 0.4 s.
        for _ in range(300):
            publisher.publish("slow", stamped())
        end_s = time.monotonic() + TIMEOUT_S
        while len(dropped) + len(found) < 300:
            assert time.monotonic() < end_s, "not every message was delivered or dropped"
            time.sleep(0.01)
        for peer in (reader, watcher):
            peer.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(TIMEOUT_S)

    assert len(dropped) + len(found) == 300
    assert len(found) > 10
    # What other work of the machine adds to the way is not the broker's; so a little more is allowed.
    assert max(age for _, age in found) < 600 * MILLISECOND
    assert [payload for payload, _ in found] == sorted(payload for payload, _ in found)


def test_a_timeout_is_kept_and_its_drop_is_told(
    slow_broker: BrokerProcess, relay_port: int, publisher: Peer
) -> None:
    with drops(slow_broker, "expiring/#") as watcher, join(relay_port) as reader:
        reader.subscribe("expiring/#", user_properties=[("price", "2")])
        for _ in range(20):
            publisher.publish("expiring/a", bytes(1_000), user_properties=[("timeout", "200ms")])
        told = notice(watcher.expect(Publish, TIMEOUT_S))

    assert told["topic"] == "expiring/a"
    assert told["topic_filter"] == "expiring/#"
    assert told["reason"] in ("timed_out", "hopeless", "replaced")
    assert isinstance(told["age_ms"], float)
    origin, started_ns, number = parse_message_name(str(told["message"]))
    assert origin == "timebound"
    assert started_ns > 0
    assert number > 0


def test_an_urgent_message_overtakes_what_can_wait(relay_port: int, publisher: Peer) -> None:
    with join(relay_port) as reader:
        reader.subscribe("bulk")
        reader.subscribe("alert", user_properties=[("deadline", "1s"), ("price", "10")])
        for number in range(40):
            publisher.publish("bulk", b"%d" % number + bytes(1_000))
        publisher.publish("alert", stamped())
        order = []
        while "alert" not in order:
            packet = reader.expect(Publish, TIMEOUT_S)
            order.append(packet.topic)
        alert_age_ns = age_ns(packet)
        rest = read_publishes(reader, 40 - order.count("bulk"))

    # The whole of it takes two seconds; what was handed over before the alert came goes first.
    assert order.count("bulk") < 20
    assert alert_age_ns < 1_000 * MILLISECOND
    assert {packet.topic for packet in rest} == {"bulk"}


def test_keep_last_skips_what_was_replaced(
    slow_broker: BrokerProcess, relay_port: int, publisher: Peer
) -> None:
    with drops(slow_broker, "state/#") as watcher, join(relay_port) as reader:
        reader.subscribe("state/+", user_properties=[("keep", "last")])
        for number in range(100):
            publisher.publish(f"state/{number % 2}", (b"%d" % number).ljust(500))
        found = []
        while not found or found[-1] not in (b"98", b"99") or len(found) < 2:
            found.append(reader.expect(Publish, TIMEOUT_S).payload.strip())
        found += [packet.payload.strip() for packet in read_until_answer(reader)]
        reasons = {notice(watcher.expect(Publish, TIMEOUT_S))["reason"] for _ in range(100 - len(found))}

    assert len(found) < 60
    assert {b"98", b"99"} <= set(found)
    for parity in (0, 1):
        numbers = [int(payload) for payload in found if int(payload) % 2 == parity]
        assert numbers == sorted(numbers)
    assert reasons == {"replaced"}


@pytest.mark.parametrize("terms", [[], [("ordered", "true")]])
def test_order_between_topics_is_kept_only_where_it_is_asked_for(
    relay_port: int, publisher: Peer, terms: Terms
) -> None:
    with join(relay_port) as reader:
        reader.subscribe("order/#", user_properties=[("deadline", "60s"), *terms])
        # Large ones are worth less for their sending time. All are sent at once, so they meet in the queue.
        published = [(b"%02d" % number).ljust(900 if number < 20 else 60) for number in range(30)]
        topics = ["order/large"] * 20 + ["order/small"] * 10
        publisher.send(
            *[make_publish(topic, payload) for topic, payload in zip(topics, published, strict=True)]
        )
        found = [packet.payload for packet in read_publishes(reader, 30)]

    assert sorted(found) == published
    assert (found == published) == bool(terms)
    # Of one publisher on one topic they keep their order in any case.
    assert [payload for payload in found if len(payload) == 900] == published[:20]
    assert [payload for payload in found if len(payload) == 60] == published[20:]


def test_who_asks_is_told_what_was_missed(relay_port: int, publisher: Peer) -> None:
    with join(relay_port) as reader:
        reader.subscribe("missed/a", user_properties=[("deadline", "300ms"), ("notify", "missed")])
        for _ in range(60):
            publisher.publish("missed/a", bytes(500))
        topics = []
        while "$timebound/missed/missed/a" not in topics:
            packet = reader.expect(Publish, TIMEOUT_S)
            topics.append(packet.topic)

    told = notice(packet)
    assert told["topic"] == "missed/a"
    assert told["reason"] in ("timed_out", "hopeless", "replaced")


@pytest.mark.parametrize("qos", [1, 2])
def test_past_its_deadline_a_message_is_not_sent_again(slow_broker: BrokerProcess, qos: int) -> None:
    client_id, topic = f"returning-{qos}", f"again/{qos}"
    with join(
        slow_broker.port, client_id, clean=True, properties=props(session_expiry_interval=60)
    ) as reader:
        reader.subscribe(topic, qos=qos, user_properties=[("deadline", "150ms")])
        with join(slow_broker.port) as publisher:
            publisher.publish(topic, b"late", qos)
            assert publisher.expect(Ack).reason_code == 0
            if qos == 2:
                publisher.send(Ack(6, 1))
                publisher.expect(Ack)
        late = reader.expect_publish(topic, b"late")
    _let_pass(0.3)

    with join(
        slow_broker.port, client_id, clean=False, properties=props(session_expiry_interval=60)
    ) as reader:
        if qos == 2:
            released = reader.expect(Ack)
            assert (released.kind, released.packet_id) == (6, late.packet_id)
            reader.send(Ack(7, released.packet_id))
        reader.expect_silence()
        reader.publish(topic, b"new")
        reader.expect_publish(topic, b"new")


@pytest.mark.parametrize("qos", [1, 2])
def test_within_its_deadline_a_message_is_sent_again(slow_broker: BrokerProcess, qos: int) -> None:
    client_id, topic = f"prompt-{qos}", f"prompt/{qos}"
    with join(
        slow_broker.port, client_id, clean=True, properties=props(session_expiry_interval=60)
    ) as reader:
        reader.subscribe(topic, qos=qos, user_properties=[("deadline", "60s")])
        reader.publish(topic, b"in time", qos)
        packets = [reader.receive() for _ in range(2)]
        assert {type(packet) for packet in packets} == {Publish, Ack}

    with join(
        slow_broker.port, client_id, clean=False, properties=props(session_expiry_interval=60)
    ) as reader:
        again = reader.expect_publish(topic, b"in time")

    assert again.dup


def test_a_new_strategy_at_run_time_loses_no_message(relay_port: int, publisher: Peer) -> None:
    with join(relay_port) as reader:
        reader.subscribe("changing", qos=1, user_properties=[("deadline", "60s")])
        for number in range(60):
            publisher.publish("changing", (b"%d" % number).ljust(400), 1)
            assert publisher.expect(Ack).reason_code == 0
        found = []
        for name in (b"fifo", b"eb", b"mtep 30", b"remaining-lifetime", b"worth"):
            publisher.publish("$timebound/control/strategy", name, 1)
            assert publisher.expect(Ack).reason_code == 0
            for _ in range(12):
                packet = reader.expect(Publish, TIMEOUT_S)
                reader.send(Ack(4, packet.packet_id))
                found.append(int(packet.payload))
        reader.expect_silence()

    assert found == list(range(60))


def test_traffic_without_a_deadline_keeps_its_share(start_over: StartOver) -> None:
    process = start_over('sys_interval = "0s"\n', listener="untimed_share_percent = 20\n")
    with (
        slow_link(process) as port,
        join(process.port) as publisher,
        join(port) as reader,
    ):
        reader.subscribe("timed", user_properties=[("deadline", "500ms"), ("price", "1000")])
        reader.subscribe("plain")
        received = {"timed": 0, "plain": 0}
        started_s = time.monotonic()
        while sum(received.values()) < 150:
            # Two and a half times what the link carries, four fifths of it worth much more.
            for _ in range(4):
                publisher.publish("timed", stamped())
            publisher.publish("plain", stamped())
            received[reader.expect(Publish, TIMEOUT_S).topic] += 1
            received[reader.expect(Publish, TIMEOUT_S).topic] += 1
        took_s = time.monotonic() - started_s

    assert took_s > 0.5
    # 20 % less what the first messages, which met no queue, take away.
    assert received["plain"] / sum(received.values()) > 0.14


def _let_pass(seconds: float) -> None:
    """Real time has to pass for a deadline to be over; nothing tells when it is."""
    time.sleep(seconds)
