"""Entries: when they are lost, their chains and kinds, and what a queue gives up early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, LinkModel, Term
from timebound.core.link.strategy.entry import (
    NEVER_NS,
    Chain,
    Entry,
    flow_key,
    kind_of,
    level_of,
    link_flow_key,
)
from timebound.core.link.strategy.registry import STRATEGY_NAMES, strategy_named
from timebound.core.values.delay import LinkDelay
from timebound.records import Reason
from timebound.units import MILLISECOND, SECOND

# 10 ms for 1,024 bytes, without deviation: a second is a hundred messages.
DELAY = LinkDelay(0.010, 0.0)
MESSAGE_NS = 10 * MILLISECOND
SIZE = 1_024


def queue_of(name: str = "worth", *, wants_fresh: bool = True) -> LinkQueue:
    return LinkQueue(strategy_named(name), DELAY, shares=(0.0,), message_bytes=SIZE, wants_fresh=wants_fresh)


def entry_of(
    number: int, published_ns: int, *, deadline_ns: int = SECOND, price: float = 1.0, ordered: bool = False
) -> Entry:
    audience = Audience([Term(deadline_ns, price)])
    flow = flow_key("p", "t", 0, 0, audience)
    return Entry(number, SIZE, published_ns, audience, flow=flow, ordered=ordered)


def overload(queue: LinkQueue, times: int, messages: int, *, ordered: bool = False) -> list[tuple[int, int]]:
    """Offer so many times what the link carries; the messages sent, and how old they were when sent."""
    sent = []
    number = 0
    for step in range(messages):
        now_ns = step * MESSAGE_NS
        for _ in range(times):
            queue.push(entry_of(number, now_ns, ordered=ordered), now_ns)
            number += 1
        entry = queue.pop(now_ns)
        assert entry is not None
        assert isinstance(entry.item, int)
        sent.append((entry.item, now_ns - entry.published_ns))
    queue._check()
    return sent


def test_overload_is_sent_fresh_and_in_order() -> None:
    queue = queue_of()

    sent = overload(queue, 3, 1_000)

    numbers = [number for number, _ in sent]
    assert numbers == sorted(numbers)
    # A third of the deadline at first, and half of that once the overload lasts; before, all of it.
    assert max(age_ns for _, age_ns in sent[150:]) < 0.4 * SECOND
    assert max(age_ns for _, age_ns in sent[400:]) < 0.2 * SECOND
    assert set(queue.dropped_by_reason) == {Reason.REPLACED}


def test_without_the_rule_it_is_sent_at_the_last_moment() -> None:
    sent = overload(queue_of(wants_fresh=False), 3, 1_000)

    assert min(age_ns for _, age_ns in sent[400:]) > 0.9 * SECOND


@pytest.mark.parametrize("name", [name for name in STRATEGY_NAMES if name != "worth"])
def test_published_strategies_keep_to_what_was_published(name: str) -> None:
    assert overload(queue_of(name), 2, 300) == overload(queue_of(name, wants_fresh=False), 2, 300)


def test_a_burst_that_fits_is_sent_completely() -> None:
    queue = queue_of()
    for number in range(95):
        queue.push(entry_of(number, 0), 0)

    sent = []
    now_ns = 0
    while (entry := queue.pop(now_ns)) is not None:
        sent.append(entry.item)
        now_ns += MESSAGE_NS

    assert sent == list(range(95))


def test_an_ordered_flow_gives_nothing_up() -> None:
    queue = queue_of()

    sent = overload(queue, 3, 300, ordered=True)

    assert Reason.REPLACED not in queue.dropped_by_reason
    assert max(age_ns for _, age_ns in sent) > 0.9 * SECOND


def test_what_is_worth_more_is_never_given_up_for_what_is_worth_less() -> None:
    queue = queue_of()
    dear = 0
    for step in range(600):
        now_ns = step * MESSAGE_NS
        for number in range(3):
            queue.push(entry_of(number, now_ns), now_ns)
        if step % 2:
            queue.push(entry_of(-1, now_ns, price=5.0), now_ns)
        entry = queue.pop(now_ns)
        assert entry is not None
        dear += entry.item == -1

    # Each of them, but for the one that came last.
    assert dear >= 299


def test_a_changed_strategy_takes_the_rule_along() -> None:
    queue = queue_of("fifo")
    overload(queue, 2, 50)

    queue.set_strategy(strategy_named("worth"), 50 * MESSAGE_NS)
    queue._check()
    queue.set_strategy(strategy_named("fifo"), 50 * MESSAGE_NS)

    queue._check()
    assert queue.pop(50 * MESSAGE_NS) is not None


def test_kinds_part_by_time_and_worth_and_not_by_less() -> None:
    queue = queue_of()

    def kind(deadline_ms: int, price: float) -> int:
        entry = entry_of(0, 0, deadline_ns=deadline_ms * MILLISECOND, price=price)
        entry.fit(queue.link)
        entry.lane = 0
        entry.level = level_of(entry)
        return kind_of(entry)

    assert kind(1_000, 1.0) == kind(1_010, 1.01)
    assert len({kind(1_000, 1.0), kind(4_000, 1.0), kind(1_000, 3.0), kind(1_000, 0.0)}) == 4


def test_a_margin_is_time_that_a_message_no_longer_has() -> None:
    queue = queue_of()
    first, second = entry_of(0, 0), entry_of(1, 0)
    queue.push(first, 0)
    queue.push(second, 0)

    queue.set_margin(300 * MILLISECOND, 0)

    assert first.drop_ns == second.drop_ns == SECOND - 300 * MILLISECOND - MESSAGE_NS
    assert queue.pop(690 * MILLISECOND) is None


def test_hope_lasts_until_the_deadline_where_the_way_is_unsteady() -> None:
    # z(0.0005) = -3.29: hopeless at 100 - 8 + 32.9 ms, which is after the deadline.
    link = LinkModel(LinkDelay(0.008, 0.001**2, 0.010), 0.0005, 0, 0)
    entry = Entry(None, 1_024, 0, Audience([Term(100 * MILLISECOND)]))

    entry.fit(link)

    assert (entry.drop_ns, entry.drop_reason) == (100 * MILLISECOND, Reason.TIMED_OUT)


def test_an_entry_is_hopeless_once_its_success_is_down_to_epsilon() -> None:
    # 10 KB take 80 ± 10 ms, and z(0.9) = 1.2815516: 100 - 80 - 12.815516 ms after publication.
    link = LinkModel(LinkDelay(0.008, 0.001**2), 0.9, 0, 0)
    entry = Entry(None, 10_240, 5, Audience([Term(100 * MILLISECOND)]))

    entry.fit(link)

    assert entry.drop_ns == pytest.approx(5 + 7_184_484, abs=1_000)
    assert entry.drop_reason is Reason.HOPELESS


def test_an_entry_lives_as_long_as_its_last_term() -> None:
    link = LinkModel(DELAY, 0.5, 0, 0)
    limited = Entry(None, SIZE, 0, Audience([Term(SECOND), Term(3 * SECOND)]))
    endless = Entry(None, SIZE, 0, Audience([Term(SECOND), Term(0)]))
    for entry in (limited, endless):
        entry.fit(link)

    assert limited.drop_ns == 3 * SECOND - MESSAGE_NS
    assert endless.drop_ns == NEVER_NS


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=10),
    st.integers(0, 40),
    st.lists(st.integers(0, 60), min_size=1, max_size=10),
)
def test_terms_are_lost_in_doubt_or_sure_as_a_look_at_each_says(
    deadlines_ms: list[int], timeout_ms: int, ages_ms: list[int]
) -> None:
    # 10 ms to send without deviation: what is in doubt is less than a microsecond wide.
    link = LinkModel(DELAY, 0.5, 0, 0)
    audience = Audience([Term(deadline_ms * MILLISECOND) for deadline_ms in deadlines_ms])
    entry = Entry(None, SIZE, 0, audience, timeout_ns=timeout_ms * MILLISECOND)
    entry.fit(link)
    allowed = [min(term.allowed, entry.timeout) for term in audience.terms]

    for age_ms in ages_ms:  # forwards and backwards
        needed = (age_ms + 10.5) * MILLISECOND
        lost, sure = entry.lost_below(needed - MESSAGE_NS), entry.sure_from(needed - MESSAGE_NS)
        assert lost == sure == sum(limit < needed for limit in allowed)


def test_a_chain_keeps_its_order_whoever_leaves() -> None:
    chain = Chain("flow")
    entries = [entry_of(number, 0) for number in range(4)]
    for entry in entries:
        chain.insert(entry)

    def items() -> list[object]:
        found = []
        entry = chain.head
        while entry is not None:
            found.append(entry.item)
            assert entry.chain is chain
            assert entry.flow_next is None or entry.flow_next.flow_previous is entry
            entry = entry.flow_next
        return found

    assert items() == [0, 1, 2, 3]
    for leaving, left in ((1, [0, 2, 3]), (0, [2, 3]), (3, [2]), (2, [])):
        chain.remove(entries[leaving])
        assert items() == left
        assert chain.tail is (entries[left[-1]] if left else None)
        assert entries[leaving].chain is None


@given(st.permutations(range(6)))
def test_a_chain_is_sorted_by_sequence(sequences: list[int]) -> None:
    chain = Chain("flow")
    for sequence in sequences:
        entry = entry_of(sequence, 0)
        entry.sequence = sequence
        chain.insert(entry)

    forwards, backwards = [], []
    entry_or_none = chain.head
    while entry_or_none is not None:
        forwards.append(entry_or_none.item)
        entry_or_none = entry_or_none.flow_next
    entry_or_none = chain.tail
    while entry_or_none is not None:
        backwards.append(entry_or_none.item)
        entry_or_none = entry_or_none.flow_previous

    assert forwards == backwards[::-1] == list(range(6))


def test_flow_of_a_link_does_not_depend_on_who_is_behind_it() -> None:
    key = link_flow_key("p", "t", 1, 0)

    assert key == link_flow_key("p", "t", 1, 0)
    others = [("q", "t", 1, 0), ("p", "u", 1, 0), ("p", "t", 2, 0), ("p", "t", 1, 9)]
    assert all(link_flow_key(*parts) != key for parts in others)


def test_an_entry_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="size_bytes=0"):
        Entry(None, 0, 0, Audience([Term()]))
    with pytest.raises(ValueError, match="timeout_ns=-1"):
        Entry(None, 1, 0, Audience([Term()]), timeout_ns=-1)
