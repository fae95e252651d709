"""A deviation that does not depend on the size: where it counts, and that choices stay exact."""

from __future__ import annotations

import random

import pytest

from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.base import benefit, expected_gain, success
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.registry import STRATEGY_NAMES, strategy_named
from timebound.core.values.delay import LinkDelay, normal_cdf
from timebound.records import Reason

from .naive import MS, choice, random_audience, random_entry

# 8 ms/KB ± 1 ms/KB, and ± 10 ms whatever the size.
UNSTEADY = LinkDelay(0.008, 0.001**2, 0.010)


def queued(size: int, deadline_ms: int, delay: LinkDelay) -> tuple[LinkQueue, Entry]:
    queue = LinkQueue(strategy_named("eb"), delay)
    entry = Entry(None, size, 0, Audience([Term(deadline_ms * MS, 2.0, 1.0)]))
    queue.push(entry, 0)
    return queue, entry


def test_the_larger_deviation_counts() -> None:
    # At 82 ms of 100 are 10 ms to spare after 8 ms of sending: one deviation of the jitter.
    _, small = queued(1_024, 100, UNSTEADY)
    # 20 KB take 160 ± 20 ms: at 20 ms of 200 there are 20 to spare, one deviation of their own.
    _, large = queued(20_480, 200, UNSTEADY)

    assert success(small, small.audience.terms[0], 82.0 * MS) == pytest.approx(normal_cdf(1.0), abs=1e-8)
    assert success(large, large.audience.terms[0], 20.0 * MS) == pytest.approx(normal_cdf(1.0), abs=1e-8)
    assert benefit(small, 82.0 * MS) == pytest.approx(2.0 * normal_cdf(1.0), abs=1e-7)
    assert expected_gain(small, 82.0 * MS) == pytest.approx(3.0 * normal_cdf(1.0), abs=1e-7)


def test_without_jitter_a_message_goes_by_its_size_alone() -> None:
    _, entry = queued(1_024, 100, LinkDelay(0.008, 0.001**2))

    assert success(entry, entry.audience.terms[0], 91.0 * MS) == pytest.approx(normal_cdf(1.0), abs=1e-8)


def test_hope_lasts_until_the_deadline_where_the_way_is_unsteady() -> None:
    # z(0.0005) = -3.29: hopeless at 100 - 8 + 32.9 ms, which is after the deadline.
    queue, entry = queued(1_024, 100, UNSTEADY)

    assert entry.drop_ns == 100 * MS
    assert queue.pop(99 * MS) is entry
    queue, entry = queued(1_024, 100, UNSTEADY)
    assert queue.pop(100 * MS) is None
    assert entry.reason is Reason.TIMED_OUT


def test_an_overloaded_flow_keeps_the_distance_that_its_way_needs() -> None:
    # Three times what the link carries. All of it arrives 13 ms later than the queue knows.
    queue = LinkQueue(strategy_named("worth"), UNSTEADY, message_bytes=1_024)
    audience = Audience([Term(200 * MS)])
    in_time = 0
    for step in range(600):
        now_ns = step * 8 * MS
        for _ in range(3):
            queue.push(Entry(None, 1_024, now_ns, audience, flow="f"), now_ns)
        entry = queue.pop(now_ns)
        assert entry is not None
        in_time += now_ns + (8 + 13) * MS - entry.published_ns <= 200 * MS
        while queue.pop_dropped(now_ns) is not None:
            pass

    assert in_time == 600


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_every_choice_is_that_of_a_scan(name: str) -> None:
    source = random.Random(f"jitter {name}")
    queue = LinkQueue(strategy_named(name), LinkDelay(0.010, 0.003**2, 0.015), shares=(0.0,))
    audiences = [random_audience(source) for _ in range(8)]
    now_ns = 0
    for _ in range(400):
        now_ns += source.randint(0, 8) * MS
        for _ in range(source.randint(0, 3)):
            queue.push(random_entry(source, audiences, now_ns), now_ns)
        if source.random() < 0.02:
            queue.set_link(LinkDelay(0.010, 0.003**2, source.choice((0.0, 0.005, 0.030))), now_ns)
        while queue.pop_dropped(now_ns) is not None:
            pass
        expected = choice(queue, now_ns)
        assert queue.pop(now_ns) is expected
        queue._check()


def test_a_negative_jitter_is_refused() -> None:
    with pytest.raises(ValueError, match="jitter_s=-1"):
        LinkDelay(0.1, 0.0, -1.0)
