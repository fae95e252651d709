"""What every strategy has to keep: the exact choice, valid bounds, order, and the account."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, LinkModel, Term
from timebound.core.link.strategy.base import DECAYING, Strategy
from timebound.core.link.strategy.entry import POPPED, Entry
from timebound.core.link.strategy.registry import STRATEGY_NAMES, strategy_named
from timebound.core.values.delay import LinkDelay
from timebound.records import Reason

from . import naive
from .published import MS, SECOND, entry_of, published_link

DELAY = LinkDelay(0.010, 0.003**2)
# The value of `worth` is a logarithm and may be off in its last digits; all others are exact.
TOLERANCE = {"worth": 1e-9}

every_strategy = pytest.mark.parametrize("name", STRATEGY_NAMES)


def queue_of(name: str, **options: object) -> LinkQueue:
    settings: dict[str, object] = {"shares": (0.0,), "epsilon": 0.01, "message_bytes": 2_048, **options}
    return LinkQueue(strategy_named(name), DELAY, **settings)  # type: ignore[arg-type]  # mixed option types


def drain(queue: LinkQueue, now_ns: int) -> list[Entry]:
    dropped = []
    while (entry := queue.pop_dropped(now_ns)) is not None:
        dropped.append(entry)
    return dropped


def agrees(queue: LinkQueue, chosen: Entry | None, expected: Entry | None, now_ns: int) -> bool:
    if chosen is expected:
        return True
    tolerance = TOLERANCE.get(queue.strategy.name, 0.0)
    if tolerance == 0.0 or chosen is None or expected is None:
        return False
    one = queue.strategy.value(chosen, now_ns, queue.link)
    other = queue.strategy.value(expected, now_ns, queue.link)
    return abs(one - other) <= tolerance * max(1.0, abs(one))


def exceeds(name: str, value: float, bound: float) -> bool:
    tolerance = TOLERANCE.get(name, 0.0)
    return value > bound and (tolerance == 0.0 or value > bound + tolerance * abs(bound))


@every_strategy
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 120), pace_ms=st.sampled_from([0, 1, 20, 400]))
def test_choice_is_the_one_of_the_naive_scan(name: str, seed: int, steps: int, pace_ms: int) -> None:
    source = random.Random(seed)
    queue = queue_of(name)
    audiences = [naive.random_audience(source) for _ in range(5)]
    now_ns = 10**15
    for _ in range(steps):
        now_ns += source.randint(0, pace_ms * MS)
        for _ in range(source.choice((0, 1, 1, 3, 12))):
            queue.push(naive.random_entry(source, audiences, now_ns), now_ns)
        expected = naive.choice(queue, now_ns)

        chosen = queue.pop(now_ns)

        assert agrees(queue, chosen, expected, now_ns)
        queue._check()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 120), pace_ms=st.sampled_from([1, 20, 400]))
def test_choice_on_a_congested_link_is_the_one_of_the_naive_scan(seed: int, steps: int, pace_ms: int) -> None:
    source = random.Random(seed)
    queue = queue_of("worth", wants_fresh=True)
    audiences = [naive.random_audience(source) for _ in range(5)]
    now_ns = 10**15
    for _ in range(steps):
        now_ns += source.randint(0, pace_ms * MS)
        for _ in range(source.choice((0, 1, 1, 3, 12))):
            queue.push(naive.random_entry(source, audiences, now_ns), now_ns)
        if now_ns >= queue._congested_until_ns:
            queue._set_congested(False, now_ns)  # as `pop` would, before it chooses
        expected = naive.choice(queue, now_ns)

        chosen = queue.pop(now_ns)

        assert agrees(queue, chosen, expected, now_ns)
        queue._check()


@every_strategy
def test_choice_is_exact_in_a_long_queue_that_drains(name: str) -> None:
    source = random.Random(3)
    queue = queue_of(name)
    audiences = [naive.random_audience(source) for _ in range(20)]
    now_ns = 0
    for _ in range(400):
        queue.push(naive.random_entry(source, audiences, now_ns), now_ns)

    while len(queue):
        now_ns += source.randint(0, 10) * MS
        expected = naive.choice(queue, now_ns)
        assert agrees(queue, queue.pop(now_ns), expected, now_ns)


@every_strategy
def test_choice_on_an_unsteady_link_is_the_one_of_the_naive_scan(name: str) -> None:
    source = random.Random(f"jitter {name}")
    queue = LinkQueue(strategy_named(name), LinkDelay(0.010, 0.003**2, 0.015), shares=(0.0,))
    audiences = [naive.random_audience(source) for _ in range(8)]
    now_ns = 0
    for _ in range(400):
        now_ns += source.randint(0, 8) * MS
        for _ in range(source.randint(0, 3)):
            queue.push(naive.random_entry(source, audiences, now_ns), now_ns)
        if source.random() < 0.02:
            queue.set_link(LinkDelay(0.010, 0.003**2, source.choice((0.0, 0.005, 0.030))), now_ns)
        while queue.pop_dropped(now_ns) is not None:
            pass
        expected = naive.choice(queue, now_ns)
        assert queue.pop(now_ns) is expected
        queue._check()


@pytest.mark.parametrize("name", ["eb", "worth"])
def test_value_that_is_called_decaying_never_grows(name: str) -> None:
    strategy = strategy_named(name)
    assert strategy.kind == DECAYING
    source = random.Random(4)
    queue = queue_of(name)
    for _ in range(100):
        entry = naive.random_entry(source, [naive.random_audience(source)], 0)
        entry.fit(queue.link)
        values = [strategy.value(entry, step * 3 * MS, queue.link) for step in range(600)]
        for before, after in itertools.pairwise(values):
            assert not exceeds(name, after, before)


@every_strategy
def test_equal_messages_go_in_order_of_arrival(name: str) -> None:
    queue = queue_of(name)
    audience = Audience([Term(500 * MS)])
    entries = [Entry(index, 1_000, 0, audience) for index in range(20)]
    for entry in entries:
        queue.push(entry, 0)

    assert [queue.pop(1 * MS) for _ in range(20)] == entries


@every_strategy
def test_flow_keeps_its_order(name: str) -> None:
    source = random.Random(8)
    queue = queue_of(name)
    audiences = [naive.random_audience(source) for _ in range(4)]
    popped: dict[object, list[int]] = {}
    now_ns = 0
    for _ in range(600):
        now_ns += source.randint(0, 8) * MS
        queue.push(naive.random_entry(source, audiences, now_ns, flows=6), now_ns)
        if source.random() < 0.6:
            entry = queue.pop(now_ns)
            if entry is not None:
                popped.setdefault(entry.flow, []).append(entry.sequence)
        queue._check()

    assert len(popped) == 6
    assert all(sequences == sorted(sequences) for sequences in popped.values())


@every_strategy
def test_no_entry_is_lost_when_strategies_change(name: str) -> None:
    source = random.Random(9)
    queue = queue_of("fifo")
    audiences = [naive.random_audience(source) for _ in range(8)]
    pushed = [naive.random_entry(source, audiences, 0) for _ in range(100)]
    for entry in pushed:
        queue.push(entry, 0)
    gone = drain(queue, 0)

    queue.set_strategy(strategy_named(name), 1 * MS)
    queue._check()
    now_ns = 1 * MS
    while len(queue):
        expected = naive.choice(queue, now_ns)
        chosen = queue.pop(now_ns)
        assert agrees(queue, chosen, expected, now_ns)
        gone += drain(queue, now_ns)
        if chosen is not None:
            gone.append(chosen)
        now_ns += 2 * MS

    assert sorted(map(id, gone)) == sorted(map(id, pushed))


@every_strategy
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_account_sums_exactly_under_random_operations(name: str, seed: int) -> None:
    source = random.Random(seed)
    queue = queue_of(name, messages_max=12, bytes_max=60_000, shares=(0.0, 0.1, 0.2), message_bytes=0)
    audiences = [naive.random_audience(source) for _ in range(4)]
    now_ns = 0
    pushed: list[Entry] = []
    popped: list[Entry] = []
    dropped: list[Entry] = []
    for _ in range(120):
        now_ns += source.randint(0, 25) * MS
        for _ in range(source.randint(0, 3)):
            entry = naive.random_entry(source, audiences, now_ns, flows=5)
            entry.conflation = source.choice((None, None, "a", "b"))
            entry.lane = source.choice((-1, 0, 1, 2))
            entry.ordered = source.random() < 0.1
            pushed.append(entry)
            queue.push(entry, now_ns)
        if source.random() < 0.5 and (taken := queue.pop(now_ns)) is not None:
            popped.append(taken)
        if source.random() < 0.05:
            queue.set_strategy(strategy_named(source.choice(STRATEGY_NAMES)), now_ns)
        if source.random() < 0.05:
            queue.set_link(LinkDelay(source.choice((0.002, 0.010, 0.040)), 0.002**2), now_ns)
        if source.random() < 0.03 and len(queue):
            queue.drop(source.choice(queue.entries()), Reason.SESSION_EXPIRED)
        if source.random() < 0.01:
            queue.drop_all(Reason.DISCONNECTED)
        dropped += drain(queue, now_ns)
        queue._check()

    assert sorted(map(id, pushed)) == sorted(map(id, [*popped, *dropped, *queue.entries()]))
    assert (queue.pushed, queue.popped) == (len(pushed), len(popped))
    for reason, count in queue.dropped_by_reason.items():
        assert count == sum(entry.reason is reason for entry in dropped)
    assert sum(queue.dropped_by_reason.values()) == len(dropped)
    assert all(entry.state == POPPED and entry.reason is None for entry in popped)


@every_strategy
def test_same_calls_give_the_same_results(name: str) -> None:
    def run() -> list[tuple[int, str]]:
        source = random.Random(12)
        queue = queue_of(name, messages_max=40)
        audiences = [naive.random_audience(source) for _ in range(6)]
        events = []
        now_ns = 0
        for _ in range(200):
            now_ns += source.randint(0, 15) * MS
            queue.push(naive.random_entry(source, audiences, now_ns, flows=9), now_ns)
            if source.random() < 0.7 and (entry := queue.pop(now_ns)) is not None:
                events.append((entry.sequence, "sent"))
            events += [(gone.sequence, str(gone.reason)) for gone in drain(queue, now_ns)]
        return events

    assert run() == run()


@every_strategy
def test_least_worth_leaves_a_full_queue(name: str) -> None:
    source = random.Random(13)
    queue = queue_of(name, messages_max=30)
    audiences = [naive.random_audience(source) for _ in range(10)]
    now_ns = 0
    evicted = 0
    while evicted < 60:
        now_ns += source.randint(0, 4) * MS
        newcomer = naive.random_entry(source, audiences, now_ns)
        drain(queue, now_ns)
        is_full = len(queue) == 30
        newcomer.fit(queue.link)
        newcomer.sequence = 10**9
        expected = naive.victim(queue, newcomer, now_ns)

        queue.push(newcomer, now_ns)

        if is_full and newcomer.drop_ns > now_ns:
            assert [(gone, gone.reason) for gone in drain(queue, now_ns)] == [(expected, Reason.QUEUE_FULL)]
            evicted += 1


def test_order_of_subscribing_does_not_change_a_value() -> None:
    source = random.Random(7)
    link = published_link()
    terms = [Term(source.randint(5, 15) * SECOND, source.random(), source.random()) for _ in range(30)]
    shuffled = source.sample(terms, len(terms))

    for name in ("eb", "pc", "ebpc", "mtep", "worth", "remaining-lifetime"):
        strategy = strategy_named(name)
        one, other = entry_of(link, *terms), entry_of(link, *shuffled)
        assert strategy.value(one, 6 * SECOND, link) == pytest.approx(strategy.value(other, 6 * SECOND, link))


@pytest.mark.parametrize("name", ["eb", "pc", "ebpc", "mtep"])
def test_values_agree_with_the_model_written_out(name: str) -> None:
    source = random.Random(11)
    delay = LinkDelay(0.010, 0.003**2)
    for _ in range(300):
        link = LinkModel(delay, 0.04, 2 * MS, 0)
        link.first_ns = 25.0 * MS
        terms = naive.random_audience(source).terms
        # The model sums over single subscriptions, so give it some twice.
        single = [*terms, *source.sample(terms, len(terms) // 2)]
        entry = naive.random_entry(source, [Audience(single)], 0)
        entry.fit(link)
        now_ns = source.randint(0, 2_000) * MS

        found = strategy_named(name, mix=0.5).value(entry, now_ns, link)

        expected = naive.value(
            name, entry, single, now_ns, delay, first_s=0.025, epsilon=0.04, processing_ns=2 * MS
        )
        # 7e-9 a term from `phi`; a success that close to ε may fall on either side of it.
        near = any(
            abs(naive.success(entry, term, now_ns, delay, 2 * MS, later) - 0.04) < 1e-8
            for term in single
            for later in (0.0, 0.025)
        )
        assert near or found == pytest.approx(expected, abs=1e-6)


def test_every_name_makes_the_strategy_of_that_name() -> None:
    made: list[Strategy] = [strategy_named(name) for name in STRATEGY_NAMES]

    assert [strategy.name for strategy in made] == list(STRATEGY_NAMES)
