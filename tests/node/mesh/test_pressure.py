"""Links that are full: publishers wait, and nothing that was acknowledged is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import Certificates, four_listeners
from tests.node.mesh.live_mesh import PROBE, TIMEOUT_S, Flood, Mesh, read_numbers, wait_wanted
from tests.peer import Peer, join

from timebound.demo.relay import ShapingRelay
from timebound.wire.packets import Ack, Pingreq, Pingresp, Publish, make_publish
from timebound.wire.reasons import ReasonCode

COUNT = 4_000
# Every broker is a process; those that tests can share they share.
SMALL = "[mesh]\nqueue_messages_max = 200\n"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Mesh]:
    """A link that fills up at 200 messages and carries less than a client can publish."""
    links = {("a", "b"): "link_bytes_per_second = 1_000_000\n"}
    listeners = four_listeners(certificates)
    mesh = Mesh(tmp_path_factory.mktemp("pair"), links, SMALL, listeners=listeners)
    yield mesh
    mesh.end()


@pytest.fixture(scope="module")
def slow_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A slow link that fills up at 50 messages, and is exhausted at 400."""
    tiny = "[mesh]\nqueue_messages_max = 50\n"
    mesh = Mesh(tmp_path_factory.mktemp("slow"), {("a", "b"): "link_bytes_per_second = 100_000\n"}, tiny)
    yield mesh
    mesh.end()


class Relays:
    """Slow ways to the listeners of brokers: what those send there is held to a rate."""

    def __init__(self, stack: ExitStack, rate_bytes_per_s: float) -> None:
        self._stack = stack
        self._rate = rate_bytes_per_s
        self.started: list[ShapingRelay] = []

    def open(self, port: int) -> int:
        self.started.append(self._stack.enter_context(ShapingRelay(port, self._rate)))
        return self.started[-1].port

    def cut(self) -> None:
        for relay in self.started:
            relay.cut()


@pytest.fixture
def both(pair: Mesh, scheme: str, certificates: Certificates) -> Iterator[tuple[Peer, Peer]]:
    """A publisher at one broker and a subscriber at the other, over each transport in turn."""
    with (
        pair.join_over("a", scheme, certificates) as publisher,
        pair.join_over("b", scheme, certificates) as subscriber,
    ):
        yield publisher, subscriber


@pytest.mark.parametrize("qos", [1, 2])
def test_all_that_was_acknowledged_arrives_over_a_full_link(
    both: tuple[Peer, Peer], scheme: str, qos: int
) -> None:
    publisher, subscriber = both
    topic = f"{scheme}/{qos}"
    subscriber.subscribe(topic)
    wait_wanted(publisher, topic)

    flood = Flood(publisher, topic, COUNT, qos, digits=300)

    assert sorted(read_numbers(subscriber, COUNT)) == list(range(COUNT))
    flood.join()
    assert (flood.acknowledged, flood.refused) == (COUNT, [])
    subscriber.expect_silence()


def test_qos_0_is_slowed_and_not_dropped_where_its_socket_can_wait(
    both: tuple[Peer, Peer], scheme: str
) -> None:
    publisher, subscriber = both
    topic = f"{scheme}/0"
    subscriber.subscribe(topic)
    wait_wanted(publisher, topic)

    # Large enough that what is read of a socket at once fits in before the link is exhausted.
    flood = Flood(publisher, topic, COUNT, 0, digits=300)

    assert sorted(read_numbers(subscriber, COUNT)) == list(range(COUNT))
    flood.join()


def test_links_that_are_full_in_a_circle_go_on(tmp_path: Path) -> None:
    slow = "link_bytes_per_second = 300_000\n"
    mesh = Mesh(tmp_path, {("a", "b"): slow, ("b", "c"): slow, ("a", "c"): slow}, SMALL)
    count = COUNT // 4
    with ExitStack() as stack:
        stack.callback(mesh.end)
        publishers = {name: stack.enter_context(mesh.join(name)) for name in "abc"}
        subscribers = {name: stack.enter_context(mesh.join(name)) for name in "abc"}
        for subscriber in subscribers.values():
            subscriber.subscribe("t/#")
        for name, publisher in publishers.items():
            for other in "abc":
                wait_wanted_at(publisher, subscribers[other], f"t/{name}/{other}")

        floods = [Flood(publishers[name], f"t/{name}", count, 1) for name in "abc"]

        for subscriber in subscribers.values():
            assert sorted(read_numbers(subscriber, 3 * count)) == sorted(3 * list(range(count)))
        for flood in floods:
            flood.join()


def wait_wanted_at(publisher: Peer, subscriber: Peer, topic: str) -> None:
    """Publish probes until one has reached a subscriber."""
    end_s = time.monotonic() + TIMEOUT_S
    is_there = False
    while not is_there:
        publisher.publish(topic, PROBE, qos=1)
        publisher.expect(Ack)
        subscriber.send(Pingreq())
        while not isinstance(packet := subscriber.receive(), Pingresp):
            is_there = is_there or (isinstance(packet, Publish) and packet.topic == topic)
        assert time.monotonic() < end_s, f"nobody got {topic!r} in {TIMEOUT_S} s"


def publish_many(publisher: Peer, topic: str, ids: range) -> None:
    """Publish at once, under these packet ids and with them as payload, and read nothing."""
    publisher.send(*[make_publish(topic, b"%d" % one, 1, packet_id=one) for one in ids])


def test_a_full_link_does_not_stop_other_subscribers_within_the_receive_maximum(slow_pair: Mesh) -> None:
    with slow_pair.join("a") as publisher, slow_pair.join("a") as near, slow_pair.join("b") as far:
        far.subscribe("slow")
        near.subscribe("fast")
        wait_wanted(publisher, "slow")
        publish_many(publisher, "slow", range(1, 301))

        publish_many(publisher, "fast", range(301, 1_001))

        assert read_numbers(near, 700) == list(range(301, 1_001))
        with slow_pair.join("a") as other:
            other.publish("fast", b"1", qos=1)
            assert read_numbers(near, 1) == [1]
            assert other.expect(Ack).reason_code == 0  # only who publishes to the full link waits
        assert sorted(read_numbers(far, 300)) == list(range(1, 301))


def test_what_cannot_be_taken_in_is_refused_and_not_acknowledged(slow_pair: Mesh) -> None:
    with slow_pair.join("a") as publisher, slow_pair.join("b") as subscriber:
        subscriber.subscribe("much")
        wait_wanted(publisher, "much")

        publish_many(publisher, "much", range(1, 1_001))

        answers = [publisher.expect(Ack, TIMEOUT_S) for _ in range(1_000)]
        taken = [one.packet_id for one in answers if one.reason_code == 0]
        refused = [one for one in answers if one.reason_code == ReasonCode.QUOTA_EXCEEDED]
        assert [one.packet_id for one in answers] == list(range(1, 1_001))  # in order
        assert len(taken) + len(refused) == 1_000
        assert refused
        assert sorted(read_numbers(subscriber, len(taken))) == taken
        subscriber.expect_silence()


def test_an_old_client_whose_message_cannot_be_taken_in_is_closed_instead(slow_pair: Mesh) -> None:
    with join(slow_pair.ports["a"], version=4) as publisher, slow_pair.join("b") as subscriber:
        subscriber.subscribe("old")
        wait_wanted_at(publisher, subscriber, "old")

        publish_many(publisher, "old", range(1, 1_001))

        answered = {one.packet_id for one in publisher.expect_closed(TIMEOUT_S) if isinstance(one, Ack)}
        assert len(answered) < 1_000
        assert answered <= set(read_numbers(subscriber, 400))


def test_a_link_that_is_cut_and_opened_again_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with ExitStack() as stack:
        relays = Relays(stack, 400_000.0)
        mesh = Mesh(tmp_path, {("b", "a"): ""}, SMALL, relays.open)  # b calls: what a sends is slow
        stack.callback(mesh.end)
        publisher, subscriber = stack.enter_context(mesh.join("a")), stack.enter_context(mesh.join("b"))
        subscriber.subscribe("t")
        wait_wanted(publisher, "t")
        flood = Flood(publisher, "t", COUNT, 2)
        found = read_numbers(subscriber, COUNT // 4)

        relays.cut()
        found += read_numbers(subscriber, COUNT // 4)
        relays.cut()
        found += read_numbers(subscriber, COUNT // 2)

        assert sorted(found) == list(range(COUNT))
        flood.join()
        subscriber.expect_silence()
        assert mesh.brokers["a"].log().count("link to 'b' is up") == 3
