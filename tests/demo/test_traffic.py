"""What is offered, and how the receiver judges it."""

from __future__ import annotations

import pytest

from timebound.demo.traffic import CLASSES, Traffic, TrafficClass, plan
from timebound.units import MILLISECOND, SECOND
from timebound.wire.codec import encode
from timebound.wire.packets import make_publish

KIND = TrafficClass("alerts", 64, 250 * MILLISECOND, 10.0, 0.1)


def test_a_message_is_in_time_up_to_its_deadline() -> None:
    traffic = Traffic(KIND)
    payloads = [traffic.publish(1_000 * SECOND) for _ in range(4)]

    traffic.arrive(payloads[0], 1_000 * SECOND + 250 * MILLISECOND)
    traffic.arrive(payloads[1], 1_000 * SECOND + 250 * MILLISECOND + 1)
    traffic.arrive(payloads[3], 1_000 * SECOND + 1)
    traffic.arrive(payloads[3], 1_009 * SECOND)

    assert (traffic.in_time(), traffic.late(), len(traffic.fates)) == (2, 1, 4)
    assert traffic.delays_ns() == [1, 250 * MILLISECOND, 250 * MILLISECOND + 1]
    assert {len(payload) for payload in payloads} == {64}


def test_without_a_deadline_nothing_is_late() -> None:
    traffic = Traffic(TrafficClass("bulk", 64, 0, 1.0, 0.1))

    traffic.arrive(traffic.publish(1), 3_600 * SECOND)

    assert (traffic.in_time(), traffic.late()) == (1, 0)


def test_the_size_on_the_link_is_that_of_the_packet() -> None:
    packet = make_publish("demo/alerts", bytes(64), 0, False, 0, None)

    # Without properties MQTT 5 still writes their length, one byte.
    assert KIND.frame_bytes == len(encode(packet, 5))


def test_a_plan_is_repeated_by_its_seed_and_keeps_its_rate() -> None:
    due = plan(KIND, 100_000, 30.0, 7)

    assert due == plan(KIND, 100_000, 30.0, 7)
    assert due != plan(KIND, 100_000, 30.0, 8)
    assert due == sorted(due)
    assert due[-1] < 30.0
    assert len(due) * KIND.frame_bytes / 30.0 == pytest.approx(10_000, rel=0.1)


def test_the_classes_offer_all_of_the_load_and_alerts_are_worth_most() -> None:
    assert sum(kind.share for kind in CLASSES) == pytest.approx(1.0)
    worth = [kind.value_per_byte for kind in CLASSES]
    assert worth == sorted(worth, reverse=True)
