"""How full ways are: levels with hysteresis, queues that keep what has no time limit, and parking."""

from __future__ import annotations

import random

from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.pressure import EXHAUSTED, FULL, ROOM, Gauge, Parking
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import Message
from timebound.records import Reason

SECOND = 1_000_000_000


def copy_of(number: int) -> Copy:
    return Copy(MeshMessage(Message("t", b"", 1, False, 0), "a", 100, 1, number), (), 0, {"b"})


def test_a_gauge_is_full_at_its_limit_and_has_room_again_at_half_of_it() -> None:
    gauge = Gauge(10, 1_000)

    levels = [gauge.note(messages, 0) and gauge.level for messages in (9, 10, 6, 5, 9, 80, 41, 40, 5)]

    assert levels == [False, FULL, False, ROOM, False, EXHAUSTED, False, FULL, ROOM]


def test_a_gauge_counts_bytes_as_well_as_messages() -> None:
    gauge = Gauge(10, 1_000)

    assert gauge.note(1, 1_000)
    assert gauge.level == FULL
    assert not gauge.note(1, 501)
    assert gauge.note(1, 8_000)
    assert gauge.level == EXHAUSTED


def test_what_is_kept_takes_no_room_and_is_never_dropped_for_others() -> None:
    generator = random.Random(7)
    queue = LinkQueue(strategy_named("worth"), LinkDelay(0.001, 1e-8), messages_max=3, bytes_max=1_000)
    kept = 0
    popped = dropped = 0
    for number in range(300):
        deadline_ns = generator.choice([0, 0, SECOND])
        entry = Entry(number, 100, 0, Audience([Term(deadline_ns, generator.random())]))
        entry.is_kept = deadline_ns == 0
        queue.push(entry, 0)
        kept += entry.is_kept
        if generator.random() < 0.3:
            one = queue.pop(0)
            assert one is not None
            popped += 1
            kept -= one.is_kept
        while (gone := queue.pop_dropped(0)) is not None:
            assert gone.reason == Reason.QUEUE_FULL
            assert not gone.is_kept
            dropped += 1
        queue._check()
        assert queue.kept_messages() == kept
        assert queue.kept_bytes() == 100 * kept
        assert len(queue) - kept <= 3
    assert dropped > 0
    assert popped + dropped + len(queue) == 300


def test_parked_copies_wait_for_their_home_in_order_until_it_is_taken_to_be_gone() -> None:
    parking = Parking(30 * SECOND, 2, 1_000)

    assert parking.put("b", copy_of(1), SECOND)
    assert parking.put("b", copy_of(2), 2 * SECOND)
    assert (len(parking), parking.gauge.level, parking.homes()) == (2, FULL, ["b"])
    assert [copy.what.number for copy in parking.take("b")] == [1, 2]
    assert (len(parking), parking.gauge.level, parking.homes()) == (0, ROOM, [])

    assert parking.put("b", copy_of(3), 5 * SECOND)
    assert parking.take_gone(35 * SECOND - 1) == []
    assert [copy.what.number for copy in parking.take_gone(35 * SECOND)] == [3]
    assert not parking.put("b", copy_of(4), 36 * SECOND)  # nothing waits for it any more
    assert parking.homes() == ["b"]
