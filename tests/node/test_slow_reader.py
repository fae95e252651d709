"""Clients that do not read: what they are owed is bounded, and the others do not notice."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest
from tests.conftest import BrokerProcess, ShareOver
from tests.peer import Peer, join, props

from timebound.core.values.message import copy_cost
from timebound.wire.codec import encode
from timebound.wire.packets import Ack, Publish

CONFIG = """\
sys_interval = "100ms"
[limits]
queue_bytes_per_client_max = "1MiB"
queue_bytes_total_max = "2MiB"
"""
MEBIBYTE = 1024 * 1024
# What a test may add to the broker's memory: queues, buffers and what the allocator does not give back.
GROWTH_BYTES_MAX = 24 * MEBIBYTE
# For a machine that is busy with other tests; idle it is below a millisecond.
ROUND_TRIP_S_MAX = 1.0


@pytest.fixture
def bounded(share_over: ShareOver) -> BrokerProcess:
    return share_over(CONFIG)


def resident_bytes(broker: BrokerProcess) -> int:
    pages = Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def slowest_round_trip(peer: Peer, count: int) -> float:
    """The longest way of a message to the broker and back, of `count`."""
    slowest_s = 0.0
    for number in range(count):
        began = time.monotonic()
        peer.publish("echo/a", b"%d" % number)
        peer.expect_publish("echo/a", b"%d" % number)
        slowest_s = max(slowest_s, time.monotonic() - began)
    return slowest_s


def wait_figure(broker: BrokerProcess, topic: str, least: int) -> int:
    """Wait until a figure under `$SYS` is at least so large; gives it."""
    with join(broker.port) as peer:
        peer.subscribe(f"$SYS/broker/{topic}")
        while (figure := int(peer.expect(Publish).payload)) < least:
            pass
        return figure


@pytest.mark.parametrize("qos", [0, 1])
def test_queue_of_a_subscriber_that_does_not_read_is_capped(bounded: BrokerProcess, qos: int) -> None:
    payload = b"x" * 10_000
    dropped = wait_figure(bounded, "dropped/queue_full", 0)
    before = resident_bytes(bounded)
    with (
        join(bounded.port) as deaf,
        join(bounded.port) as publisher,
        join(bounded.port) as other,
    ):
        deaf.subscribe(f"flood/{qos}", qos=qos)
        other.subscribe("echo/a")
        slowest_s = 0.0
        for _ in range(20):
            # 40 MB in all, against a queue of 1 MiB.
            publisher.send_bytes(encode(Publish(f"flood/{qos}", payload, qos, packet_id=qos), 5) * 200)
            for _ in range(200 * qos):
                assert publisher.expect(Ack).reason_code == 0
            slowest_s = max(slowest_s, slowest_round_trip(other, 3))
            publisher.expect_silence()

        wait_figure(bounded, "dropped/queue_full", dropped + 2_000)
        assert resident_bytes(bounded) - before < GROWTH_BYTES_MAX
        assert slowest_s < ROUND_TRIP_S_MAX
        # When it reads again it gets what was kept, whole, and then what is new.
        count = 0
        publisher.publish(f"flood/{qos}", b"fresh")
        while (packet := deaf.expect(Publish)).payload == payload:
            count += 1
            if count % 10 == 0:
                publisher.publish(f"flood/{qos}", b"fresh")
        assert packet.payload == b"fresh"
        assert count > 50


def test_many_subscribers_that_do_not_read_share_the_total(bounded: BrokerProcess) -> None:
    before = resident_bytes(bounded)
    peers = [join(bounded.port) for _ in range(6)]
    with join(bounded.port) as publisher:
        for peer in peers:
            peer.subscribe("crowd")
        publisher.send_bytes(encode(Publish("crowd", b"x" * 10_000), 5) * 2_000)
        publisher.expect_silence()
        with join(bounded.port) as watcher:
            watcher.subscribe("$SYS/broker/store/messages/bytes")
            stored = int(watcher.expect(Publish).payload)

        assert stored <= 2 * MEBIBYTE
        assert resident_bytes(bounded) - before < GROWTH_BYTES_MAX
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("qos", [1, 2])
def test_client_that_never_reads_its_answers_is_made_to_wait(bounded: BrokerProcess, qos: int) -> None:
    # A refusal repeats the topic, so that the answers are as large as the questions.
    piece = encode(Publish("$SYS/" + "x" * 900, b"", qos, packet_id=1), 5) * 200
    before = resident_bytes(bounded)
    with join(bounded.port) as deaf, join(bounded.port) as other:
        other.subscribe("echo/a")
        deaf.socket.settimeout(1.0)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 200 * MEBIBYTE:
                deaf.send_bytes(piece)
                sent += len(piece)

        # The kernel's buffers on both sides hold some megabytes; beyond them, the sender waits.
        assert sent < 50 * MEBIBYTE
        assert resident_bytes(bounded) - before < GROWTH_BYTES_MAX
        assert slowest_round_trip(other, 20) < ROUND_TRIP_S_MAX


def test_subscriber_that_acknowledges_nothing_holds_up_only_itself(bounded: BrokerProcess) -> None:
    expiry = props(session_expiry_interval=60)
    with join(bounded.port, "lazy", properties=expiry) as lazy, join(bounded.port) as prompt:
        lazy.subscribe("work/#", qos=1)
        prompt.subscribe("work/#", qos=1)
        with join(bounded.port) as publisher:
            for _ in range(10):
                first = publisher.next_id()
                publisher.send(*[Publish("work/a", b"x" * 1_000, 1, packet_id=first + n) for n in range(200)])
                for _ in range(199):
                    publisher.next_id()
                for _ in range(200):
                    packet = prompt.expect(Publish)
                    prompt.send(Ack(4, packet.packet_id))
                for _ in range(200):
                    assert publisher.expect(Ack).reason_code == 0

        # What is in flight counts as what waits does: together 1 MiB.
        count = MEBIBYTE // copy_cost(len("work/a") + 1_000 + 8)
        assert len([lazy.expect(Publish) for _ in range(count)]) == count
        lazy.expect_silence()
