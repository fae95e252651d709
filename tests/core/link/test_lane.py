"""Shares of a link: nothing starves, whatever the strategy prefers."""

from __future__ import annotations

import random

import pytest

from timebound.core.link.lane import LinkLane, charge, check_shares, choose
from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, LinkModel, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.fixed import Fixed
from timebound.core.link.strategy.registry import STRATEGY_NAMES, strategy_named
from timebound.core.values.delay import LinkDelay

MS = 1_000_000
SECOND = 1_000_000_000
DELAY = LinkDelay(0.008, 0.001**2)


def queue_of(name: str, shares: tuple[float, ...]) -> LinkQueue:
    return LinkQueue(strategy_named(name), DELAY, shares=shares)


@pytest.mark.parametrize("name", STRATEGY_NAMES)
@pytest.mark.parametrize("shares", [(0.0, 0.05), (0.1, 0.2, 0.3), (0.5, 0.5), (0.0, 1.0)])
def test_waiting_lane_gets_its_share_less_a_few_messages(name: str, shares: tuple[float, ...]) -> None:
    source = random.Random(1)
    queue = queue_of(name, shares)
    audience = Audience([Term(3_600 * SECOND, 1.0)])
    sizes = (200, 1_000, 4_000)
    bytes_sent = [0.0] * len(shares)
    now_ns = 0
    for step in range(1_200):
        for lane in range(len(shares)):
            while sum(entry.lane == lane for entry in queue.entries()) < 3:
                entry = Entry(lane, source.choice(sizes), now_ns, audience, priority=9 - lane, lane=lane)
                queue.push(entry, now_ns)
        now_ns += MS
        sent = queue.pop(now_ns)
        assert sent is not None
        bytes_sent[sent.lane] += sent.size_bytes
        if step % 100 == 0:
            total = sum(bytes_sent)
            for lane, share in enumerate(shares):
                assert bytes_sent[lane] >= share * total - (2 * len(shares) + 1) * max(sizes)


def test_lanes_without_share_go_by_value_alone() -> None:
    queue = queue_of("fixed", (0.0, 0.0))
    audience = Audience([Term()])
    for index in range(20):
        queue.push(Entry(index, 100, 0, audience, priority=index % 2, lane=index % 2), 0)

    found = [entry.lane for _ in range(20) if (entry := queue.pop(0)) is not None]

    assert found == [1] * 10 + [0] * 10


def test_messages_without_limit_go_to_the_last_lane() -> None:
    queue = queue_of("worth", (0.0, 0.05))
    timed, untimed = Audience([Term(SECOND)]), Audience([Term(0)])
    entries = [Entry(None, 100, 0, timed), Entry(None, 100, 0, untimed), Entry(None, 100, 0, untimed)]
    entries[2].timeout = 1e9
    for entry in entries:
        queue.push(entry, 0)

    assert [entry.lane for entry in entries] == [0, 1, 0]


def test_oldest_without_limit_is_served_although_others_are_worth_more() -> None:
    queue = queue_of("worth", (0.0, 0.1))
    cheap, dear = Audience([Term(0, 0.001)]), Audience([Term(0, 100.0)])
    queue.push(Entry("old", 1_000, 0, cheap), 0)
    sent: list[object] = []
    for step in range(100):
        now_ns = step * 8 * MS
        while len(queue) < 5:
            queue.push(Entry("dear", 1_000, now_ns, dear), now_ns)
        entry = queue.pop(now_ns)
        assert entry is not None
        sent.append(entry.item)

    assert "old" in sent


def test_oldest_gets_half_of_the_share_of_its_lane() -> None:
    queue = queue_of("worth", (0.2,))
    cheap, dear = Audience([Term(0, 0.001)]), Audience([Term(0, 100.0)])
    for _ in range(200):
        queue.push(Entry("old", 1_000, 0, cheap), 0)
    sent: list[object] = []
    for step in range(500):
        queue.push(Entry("dear", 1_000, step, dear), step)
        queue.push(Entry("dear", 1_000, step, dear), step)
        entry = queue.pop(step)
        assert entry is not None
        sent.append(entry.item)

    assert sent.count("old") == pytest.approx(50, abs=2)


def test_lane_that_was_empty_claims_nothing_for_that_time() -> None:
    queue = queue_of("fixed", (0.0, 0.5))
    audience = Audience([Term(3_600 * SECOND)])
    for index in range(50):
        queue.push(Entry(index, 1_000, 0, audience, priority=9, lane=0), 0)
    for _ in range(20):
        queue.pop(0)
    for _ in range(3):
        queue.push(Entry("guest", 1_000, 0, audience, priority=0, lane=1), 0)

    found = [entry.lane for _ in range(6) if (entry := queue.pop(0)) is not None]

    # Every second one from now on, not three at once.
    assert found == [0, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((), "are empty"),
        ((0.5, 0.6), "more than 1"),
        ((-0.1,), "not between 0 and 1"),
        ((2.0,), "not between"),
    ],
)
def test_shares_that_do_not_fit_are_refused(shares: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        queue_of("fifo", shares)


def lanes_of(*shares: float) -> list[LinkLane]:
    link = LinkModel(DELAY, 0.0005, 0, 0)
    return [LinkLane(share, Fixed(), link) for share in shares]


def insert(
    lanes: list[LinkLane], lane: int, sequence: int, *, size: int = 100, priority: int = 0, timed: bool = True
) -> Entry:
    audience = Audience([Term(SECOND if timed else 0)])
    entry = Entry(sequence, size, 0, audience, priority=priority, lane=lane)
    entry.sequence = sequence
    entry.fit(lanes[lane].ranking.link)
    lanes[lane].insert(entry, 0)
    return entry


def test_claims_grow_by_the_share_of_what_is_sent_while_something_waits() -> None:
    lanes = lanes_of(0.0, 0.25, 0.25)
    sent = insert(lanes, 0, 0, size=400)
    insert(lanes, 1, 1)

    charge(lanes, sent)

    assert [lane.claim for lane in lanes] == [0.0, 100.0, 0.0]


def test_a_lane_with_untimed_entries_keeps_half_of_its_claim_for_the_oldest() -> None:
    lanes = lanes_of(0.0, 0.5)
    sent = insert(lanes, 0, 0, size=400)
    oldest = insert(lanes, 1, 1, timed=False)
    insert(lanes, 1, 2, timed=False, priority=9)
    assert lanes[1].due_oldest() is None

    charge(lanes, sent)

    assert (lanes[1].claim, lanes[1].oldest_claim) == (100.0, 100.0)
    assert lanes[1].due_oldest() is oldest


def test_a_due_claim_goes_before_what_the_strategy_likes_and_is_paid() -> None:
    lanes = lanes_of(0.0, 0.5)
    favourite = insert(lanes, 0, 0, size=200, priority=9)
    guest = insert(lanes, 1, 1, size=100)
    assert choose(lanes, 0) is favourite
    assert not lanes[1].is_due()
    charge(lanes, favourite)
    assert lanes[1].is_due()

    assert choose(lanes, 0) is guest

    charge(lanes, guest)
    assert lanes[1].claim == 50.0  # 100 and half of what it sent itself, less what it sent


def test_the_oldest_is_served_from_its_own_claim() -> None:
    lanes = lanes_of(0.0, 0.5)
    oldest = insert(lanes, 1, 0, size=100, timed=False)
    insert(lanes, 1, 1, size=900, timed=False, priority=9)
    lanes[1].claim, lanes[1].oldest_claim = 40.0, 100.0

    assert choose(lanes, 0) is oldest
    assert lanes[1].is_due()
    charge(lanes, oldest)

    assert (lanes[1].claim, lanes[1].oldest_claim) == (65.0, 25.0)
    assert not lanes[1].is_oldest_turn


def test_the_largest_claim_is_served_first() -> None:
    lanes = lanes_of(0.25, 0.5)
    insert(lanes, 0, 0, size=100)
    second = insert(lanes, 1, 1, size=100)
    lanes[0].claim, lanes[1].claim = 120.0, 130.0

    assert choose(lanes, 0) is second


def test_a_claim_waits_until_it_covers_the_largest_entry_of_its_lane() -> None:
    lanes = lanes_of(0.0, 0.5)
    favourite = insert(lanes, 0, 0, priority=9)
    insert(lanes, 1, 1, size=100)
    insert(lanes, 1, 2, size=500)

    lanes[1].claim = 499.0
    assert choose(lanes, 0) is favourite
    lanes[1].claim = 500.0
    assert choose(lanes, 0) is not favourite


def test_an_entry_that_leaves_takes_its_nodes_along_and_the_last_one_the_claims() -> None:
    lanes = lanes_of(0.5)
    [lane] = lanes
    timed, untimed = insert(lanes, 0, 0, size=300), insert(lanes, 0, 1, timed=False)
    assert (timed.untimed is None, untimed.untimed is None) == (True, False)
    lane.claim = lane.oldest_claim = 70.0

    lane.remove(untimed)
    assert (untimed.rank, untimed.untimed, len(lane.untimed)) == (None, None, 0)
    assert (lane.claim, lane.oldest_claim, lane.size_max) == (70.0, 0.0, 300.0)
    lane.remove(timed)

    assert (lane.claim, lane.size_max, len(lane.ranking)) == (0.0, 0.0, 0)
    assert choose(lanes, 0) is None


@pytest.mark.parametrize("shares", [(0.0,), (1.0,), (0.3, 0.3, 0.4), (0.1,) * 10])
def test_shares_that_fit_are_accepted(shares: tuple[float, ...]) -> None:
    check_shares(shares)
