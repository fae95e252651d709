"""The outgoing queue: drop rule, limits, conflation, order, changes of the link, the single entry."""

from __future__ import annotations

import gc
import random

import pytest

from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import NEVER_NS, Entry, flow_key
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.values.delay import LinkDelay, Path
from timebound.records import Reason

MS = 1_000_000
SECOND = 1_000_000_000
# 8 ms/KB (1 Mbit/s), ±1 ms/KB.
DELAY = LinkDelay(0.008, 0.001**2)


def queue_of(name: str = "worth", **options: object) -> LinkQueue:
    return LinkQueue(strategy_named(name), DELAY, **options)  # type: ignore[arg-type]  # mixed option types


def entry_of(
    item: object = None, deadline_ms: int = 0, *, size: int = 1_024, price: float = 1.0, **options: object
) -> Entry:
    published_ns = options.pop("published_ns", 0)
    audience = Audience([Term(deadline_ms * MS, price)])
    return Entry(item, size, published_ns, audience, **options)  # type: ignore[arg-type]  # mixed option types


def drain(queue: LinkQueue, now_ns: int) -> list[tuple[object, Reason | None]]:
    found = []
    while (entry := queue.pop_dropped(now_ns)) is not None:
        found.append((entry.item, entry.reason))
    return found


def pop_items(queue: LinkQueue, now_ns: int) -> list[object]:
    found = []
    while (entry := queue.pop(now_ns)) is not None:
        found.append(entry.item)
    return found


class TestDropRule:
    def test_message_is_dropped_when_its_success_is_down_to_epsilon(self) -> None:
        # Φ(-2) = 2.275 %: hopeless two deviations after the mean, at 100 - 8 + 2·1 = 94 ms.
        queue = queue_of(epsilon=0.022750131948179)
        for item in ("a", "b"):
            queue.push(entry_of(item, 100), 0)

        assert drain(queue, 94 * MS - 1_000) == []
        assert queue.next_wakeup_ns() == pytest.approx(94 * MS, abs=1_000)
        assert drain(queue, 94 * MS + 1_000) == [("a", Reason.HOPELESS), ("b", Reason.HOPELESS)]
        assert len(queue) == 0

    def test_timed_out_is_told_from_hopeless(self) -> None:
        # So unsteady a path (±20 ms) leaves hope until the deadline itself has passed.
        unsteady = Audience([Term(0, 1.0, 0.0, Path(0.0, 0.020**2))])
        queue = queue_of()
        queue.push(Entry("a", 1_024, 0, unsteady, timeout_ns=100 * MS), 0)
        queue.push(entry_of("b"), 0)

        assert drain(queue, 100 * MS - 1) == []
        assert drain(queue, 100 * MS) == [("a", Reason.TIMED_OUT)]

    def test_message_is_kept_while_one_subscription_can_be_served(self) -> None:
        queue = queue_of()
        near_and_far = Audience([Term(50 * MS), Term(900 * MS)])
        for item in ("a", "b"):
            queue.push(Entry(item, 1_024, 0, near_and_far), 0)

        assert drain(queue, 500 * MS) == []
        assert [reason for _, reason in drain(queue, 900 * MS)] == [Reason.HOPELESS] * 2

    def test_message_hopeless_from_the_start_is_never_queued(self) -> None:
        queue = queue_of()

        queue.push(entry_of("a", 2), 0)

        assert (len(queue), queue.pop(0)) == (0, None)
        assert drain(queue, 0) == [("a", Reason.HOPELESS)]

    def test_pop_never_returns_what_should_have_been_dropped(self) -> None:
        queue = queue_of("fifo")
        queue.push(entry_of("late", 50), 0)
        queue.push(entry_of("good", 500), 0)

        assert pop_items(queue, 60 * MS) == ["good"]
        assert drain(queue, 60 * MS) == [("late", Reason.HOPELESS)]

    def test_message_without_limit_is_never_dropped(self) -> None:
        queue = queue_of()
        queue.push(entry_of("a"), 0)
        queue.push(entry_of("b"), 0)

        assert queue.next_wakeup_ns() is None
        assert drain(queue, 10**18) == []
        assert len(queue) == 2

    def test_smaller_of_timeout_and_deadline_counts(self) -> None:
        by_timeout = entry_of("a", 500, timeout_ns=100 * MS)
        by_deadline = entry_of("b", 100, timeout_ns=500 * MS)
        queue = queue_of()
        queue.push(by_timeout, 0)
        queue.push(by_deadline, 0)

        assert by_timeout.drop_ns == by_deadline.drop_ns

    def test_age_counts_from_publication(self) -> None:
        fresh, old = entry_of("fresh", 500), entry_of("old", 500, published_ns=-300 * MS)
        queue = queue_of()
        queue.push(fresh, 0)
        queue.push(old, 0)

        assert fresh.drop_ns - old.drop_ns == 300 * MS


class TestSingleEntry:
    def test_single_entry_stays_out_of_every_structure(self) -> None:
        queue = queue_of()
        entry = entry_of("a", 500, flow="f", conflation="c")

        queue.push(entry, 0)

        assert (entry.rank, entry.timer, entry.chain) == (None, None, None)
        assert (len(queue), queue.bytes_queued) == (1, 1_024)
        queue._check()
        assert queue.pop(1) is entry
        assert (len(queue), queue.bytes_queued) == (0, 0)

    def test_single_entry_is_dropped_in_time(self) -> None:
        queue = queue_of()
        queue.push(entry_of("a", 50), 0)
        assert queue.next_wakeup_ns() is not None

        assert queue.pop(60 * MS) is None
        assert drain(queue, 60 * MS) == [("a", Reason.HOPELESS)]
        queue.push(entry_of("b", 50), 0)
        assert drain(queue, 60 * MS) == [("b", Reason.HOPELESS)]

    def test_single_entry_competes_once_another_comes(self) -> None:
        queue = queue_of("fixed")
        queue.push(entry_of("low", priority=1), 0)
        queue.push(entry_of("high", priority=9), 0)

        assert pop_items(queue, 0) == ["high", "low"]


class TestLimits:
    def test_worst_value_per_byte_leaves_a_full_queue(self) -> None:
        queue = queue_of(messages_max=2)
        queue.push(entry_of("small", 500, size=100), 0)
        queue.push(entry_of("large", 500, size=10_000), 0)
        queue.push(entry_of("middle", 500, size=1_000), 0)

        assert drain(queue, 0) == [("large", Reason.QUEUE_FULL)]
        assert sorted(map(str, pop_items(queue, 0))) == ["middle", "small"]

    def test_newcomer_of_least_worth_is_refused_and_nobody_else_leaves(self) -> None:
        queue = queue_of(bytes_max=3_000)
        for item in ("a", "b", "c"):
            queue.push(entry_of(item, 500, size=1_000), 0)

        queue.push(entry_of("poor", 500, size=2_500), 0)

        assert drain(queue, 0) == [("poor", Reason.QUEUE_FULL)]
        assert (len(queue), queue.bytes_queued) == (3, 3_000)
        queue._check()

    def test_lower_limits_make_what_is_worth_least_leave(self) -> None:
        queue = queue_of()
        for item, size in (("small", 100), ("large", 10_000), ("middle", 1_000)):
            queue.push(entry_of(item, 500, size=size), 0)

        queue.set_limits(10, 1_100, 0)
        assert drain(queue, 0) == [("large", Reason.QUEUE_FULL)]
        queue.set_limits(1, 1_100, 0)
        assert drain(queue, 0) == [("middle", Reason.QUEUE_FULL)]
        queue._check()
        queue.set_limits(1, 50, 0)

        assert drain(queue, 0) == [("small", Reason.QUEUE_FULL)]
        queue._check()

    def test_the_limit_counts_the_cost_and_the_link_the_size(self) -> None:
        queue = queue_of(bytes_max=2_000)
        term = Audience([Term(500 * MS)])
        queue.push(Entry("a", 100, 0, term, cost_bytes=1_500), 0)
        queue.push(Entry("b", 100, 0, term, cost_bytes=500), 0)
        queue.push(Entry("c", 100, 0, term, cost_bytes=1), 0)

        assert len(drain(queue, 0)) == 1
        assert queue.link.first_ns == 100 * queue.link.mean_ns_per_byte
        queue._check()

    def test_newcomer_that_would_only_fit_by_dropping_better_ones_drops_nobody(self) -> None:
        # It is worth more per byte than `poor`, but would need the room of a better one as well.
        queue = queue_of(bytes_max=3_000)
        queue.push(entry_of("good", 500, size=2_000, price=9.0), 0)
        queue.push(entry_of("poor", 500, size=1_000, price=0.1), 0)

        queue.push(entry_of("newcomer", 500, size=2_000, price=1.0), 0)

        assert drain(queue, 0) == [("newcomer", Reason.QUEUE_FULL)]
        assert len(queue) == 2
        queue._check()

    def test_newcomer_larger_than_the_queue_is_refused(self) -> None:
        queue = queue_of(bytes_max=1_000)

        queue.push(entry_of("huge", size=1_001), 0)
        queue.push(entry_of("fits", size=1_000), 0)
        queue.push(entry_of("huge", size=1_001), 0)

        assert drain(queue, 0) == [("huge", Reason.QUEUE_FULL)] * 2
        assert pop_items(queue, 0) == ["fits"]

    def test_fifo_refuses_the_newcomer(self) -> None:
        queue = queue_of("fifo", messages_max=2)
        for item in ("a", "b", "c"):
            queue.push(entry_of(item), 0)

        assert drain(queue, 0) == [("c", Reason.QUEUE_FULL)]

    def test_what_is_too_late_makes_room_first(self) -> None:
        queue = queue_of(messages_max=2)
        queue.push(entry_of("dying", 50), 0)
        queue.push(entry_of("waiting", 5_000), 0)

        queue.push(entry_of("new", 5_000, published_ns=60 * MS), 60 * MS)

        assert drain(queue, 60 * MS) == [("dying", Reason.HOPELESS)]
        assert len(queue) == 2

    @pytest.mark.parametrize("options", [{"messages_max": 0}, {"bytes_max": 0}, {"message_bytes": -1}])
    def test_limits_out_of_range_are_refused(self, options: dict[str, int]) -> None:
        with pytest.raises(ValueError, match="expected at least 1, 1 and 0"):
            queue_of(**options)


class TestConflation:
    def test_newest_replaces_the_older_one_and_takes_its_place(self) -> None:
        queue = queue_of("fifo")
        queue.push(entry_of("x1", conflation=("s", "x")), 0)
        queue.push(entry_of("y1", conflation=("s", "y")), 0)
        queue.push(entry_of("x2", conflation=("s", "x")), 0)

        assert drain(queue, 0) == [("x1", Reason.REPLACED)]
        assert pop_items(queue, 0) == ["x2", "y1"]

    def test_ordered_conflation_does_not_overtake(self) -> None:
        queue = queue_of("fifo")
        queue.push(entry_of("x1", conflation="x", flow="s", ordered=True), 0)
        queue.push(entry_of("y1", conflation="y", flow="s", ordered=True), 0)
        queue.push(entry_of("x2", conflation="x", flow="s", ordered=True), 0)

        assert pop_items(queue, 0) == ["y1", "x2"]

    def test_sent_message_is_not_replaced(self) -> None:
        queue = queue_of()
        queue.push(entry_of("x1", conflation="x"), 0)
        assert pop_items(queue, 0) == ["x1"]

        queue.push(entry_of("x2", conflation="x"), 0)

        assert drain(queue, 0) == []
        assert pop_items(queue, 0) == ["x2"]


class TestOrder:
    def test_flow_sends_its_oldest_although_another_was_chosen(self) -> None:
        queue = queue_of("fixed")
        queue.push(entry_of("first", priority=1, flow="f"), 0)
        queue.push(entry_of("other", priority=5), 0)
        queue.push(entry_of("second", priority=9, flow="f"), 0)

        assert pop_items(queue, 0) == ["first", "second", "other"]

    def test_old_entry_that_is_in_doubt_is_given_up_for_a_newer_one(self) -> None:
        queue = queue_of("eb")
        queue.push(entry_of("old", 100, flow="f"), 0)
        queue.push(entry_of("new", 100, flow="f", published_ns=50 * MS), 50 * MS)

        # At 93 ms the old one has 7 ms for a message of 8 ± 1 ms: Φ(-1) = 16 %.
        assert pop_items(queue, 93 * MS) == ["new"]
        assert drain(queue, 93 * MS) == [("old", Reason.REPLACED)]

    def test_old_entry_still_likely_to_arrive_goes_first(self) -> None:
        queue = queue_of("eb")
        queue.push(entry_of("old", 100, flow="f"), 0)
        queue.push(entry_of("new", 100, flow="f", published_ns=50 * MS), 50 * MS)

        # 9.5 ms for 8 ± 1 ms: Φ(1.5) = 93 %, and 1.1 times that is more than the new one's.
        assert pop_items(queue, int(90.5 * MS)) == ["old", "new"]

    def test_entry_without_a_time_limit_is_never_given_up(self) -> None:
        queue = queue_of("worth", wants_fresh=True)
        queue.push(entry_of("old", flow="f"), 0)
        queue.push(entry_of("new", price=9.0, flow="f"), 0)

        assert pop_items(queue, 10_000 * MS) == ["old", "new"]
        assert drain(queue, 10_000 * MS) == []

    def test_entry_that_one_subscription_wants_without_a_limit_is_never_given_up(self) -> None:
        queue = queue_of("worth")
        queue.push(Entry("old", 1_024, 0, Audience([Term(50 * MS, 9.0), Term()]), flow="f"), 0)
        queue.push(Entry("new", 1_024, 60 * MS, Audience([Term(50 * MS, 9.0), Term()]), flow="f"), 60 * MS)

        assert pop_items(queue, 70 * MS) == ["old", "new"]

    @pytest.mark.parametrize(("now_ms", "sent"), [(9, ["old", "new"]), (12, ["new"])])
    def test_short_burst_is_sent_in_full_although_the_newer_is_worth_more(
        self, now_ms: int, sent: list[str]
    ) -> None:
        queue = queue_of("worth")
        queue.push(entry_of("old", 120, flow="f"), 0)
        queue.push(entry_of("new", 120, price=9.0, flow="f"), 0)

        # A tenth of the time until the old one is dropped is a little less than 12 ms.
        assert pop_items(queue, now_ms * MS) == sent

    def test_entry_takes_the_place_of_one_that_was_dropped(self) -> None:
        queue = queue_of("worth")
        dropped = entry_of("large", flow="f")
        queue.push(dropped, 0)
        for item in ("second", "third"):
            queue.push(entry_of(item, price=9.0, flow="f"), 0)

        queue.drop(dropped, Reason.REPLACED)
        queue.push(entry_of("small", size=100, flow="f"), 0, dropped.sequence)

        queue._check()
        assert pop_items(queue, 0) == ["small", "second", "third"]

    def test_ordered_flow_gives_nothing_up(self) -> None:
        queue = queue_of("eb")
        queue.push(entry_of("old", 100, flow="f", ordered=True), 0)
        queue.push(entry_of("new", 100, flow="f", ordered=True, published_ns=50 * MS), 50 * MS)

        assert pop_items(queue, 93 * MS) == ["old", "new"]

    def test_flow_under_overload_still_delivers(self) -> None:
        # One flow at three times what the link carries: sending its oldest would only send late ones.
        queue = queue_of("worth", message_bytes=1_024)
        in_time = 0
        audience = Audience([Term(100 * MS)])
        for step in range(600):
            now_ns = step * 8 * MS
            for part in range(3):
                published_ns = now_ns - part * 2 * MS
                queue.push(Entry(None, 1_024, published_ns, audience, flow="f"), now_ns)
            entry = queue.pop(now_ns)
            assert entry is not None
            in_time += now_ns + 8 * MS - entry.published_ns <= 100 * MS
            drain(queue, now_ns)

        assert in_time > 0.95 * 600

    def test_flow_is_told_by_publisher_topic_qos_and_deadlines(self) -> None:
        one, same, other = Audience([Term(5)]), Audience([Term(5, 2.0)]), Audience([Term(6)])

        key = flow_key("p", "t", 1, 0, one)

        assert key == flow_key("p", "t", 1, 0, same)
        different = [("q", "t", 1, 0, one), ("p", "u", 1, 0, one), ("p", "t", 0, 0, one)]
        assert all(flow_key(*parts) != key for parts in different)
        assert flow_key("p", "t", 1, 9, one) != key
        assert flow_key("p", "t", 1, 0, other) != key


class TestLink:
    def test_slower_link_drops_what_it_can_no_longer_carry(self) -> None:
        queue = queue_of()
        for item in ("small", "large"):
            queue.push(entry_of(item, 200, size=1_024 if item == "small" else 10_240), 0)
        before = queue.next_wakeup_ns()

        # 80 ms or 800 ms to send: the larger one is lost.
        queue.set_link(LinkDelay(0.080, 0.001**2), 1 * MS)

        assert drain(queue, 1 * MS) == [("large", Reason.HOPELESS)]
        after = queue.next_wakeup_ns()
        assert before is not None
        assert after is not None
        assert after - before == pytest.approx(0, abs=60 * MS)
        queue._check()

    def test_single_entry_follows_the_link_too(self) -> None:
        queue = queue_of()
        entry = entry_of("a", 200)
        queue.push(entry, 0)
        before = entry.drop_ns

        queue.set_link(LinkDelay(0.100, 0.001**2), 0)

        assert before - entry.drop_ns == pytest.approx(92 * MS, abs=10)

    def test_time_of_one_message_is_learnt_from_their_sizes(self) -> None:
        queue = queue_of("pc")
        for _ in range(100):
            queue.push(entry_of(size=2_048), 0)
        assert queue.link.first_ns == pytest.approx(16 * MS)

        for _ in range(600):
            queue.push(entry_of(size=20_480), 0)

        # By now most are ten times as large; FT follows in steps of a quarter.
        assert queue.link.first_ns > 100 * MS
        queue._check()

    def test_audience_of_another_queue_is_a_bug(self) -> None:
        audience = Audience([Term()])
        queue_of().push(Entry(None, 1, 0, audience), 0)

        with pytest.raises(AssertionError, match="shared between queues"):
            queue_of().push(Entry(None, 1, 0, audience), 0)


class TestLeaving:
    def test_entries_are_listed_in_order_of_arrival(self) -> None:
        queue = queue_of()
        entries = [entry_of(index, 500 - index) for index in range(5)]
        for entry in entries:
            queue.push(entry, 0)

        assert queue.entries() == entries

    def test_everything_is_dropped_with_the_reason_given(self) -> None:
        for count in (1, 4):
            queue = queue_of()
            for index in range(count):
                queue.push(entry_of(index), 0)

            queue.drop_all(Reason.SESSION_EXPIRED)

            assert drain(queue, 0) == [(index, Reason.SESSION_EXPIRED) for index in range(count)]
            assert len(queue) == 0
            queue._check()

    def test_unknown_lane_is_refused(self) -> None:
        queue = queue_of(shares=(0.0, 0.5))

        with pytest.raises(ValueError, match="lane=2; the queue has 2 lanes"):
            queue.push(entry_of(lane=2), 0)
        assert queue.pushed == 0

    def test_far_future_is_not_reached_by_any_clock(self) -> None:
        assert NEVER_NS > 100 * 365 * 86_400 * SECOND


def test_clock_of_any_size_gives_the_same_choices() -> None:
    def run(offset_ns: int) -> list[object]:
        source = random.Random(6)
        queue = queue_of("ebpc", origin_ns=offset_ns)
        audiences = [Audience([Term(source.randint(50, 900) * MS, source.random())]) for _ in range(20)]
        for index in range(200):
            queue.push(
                Entry(index, source.randint(100, 3_000), offset_ns, source.choice(audiences)), offset_ns
            )
        return [
            entry.item for step in range(150) if (entry := queue.pop(offset_ns + step * 4 * MS)) is not None
        ]

    assert run(0) == run(1_763_000_000_000_000_123)


def test_an_overloaded_flow_keeps_the_distance_that_its_way_needs() -> None:
    # Three times what the link carries. All of it arrives 13 ms later than the queue knows.
    unsteady = LinkDelay(0.008, 0.001**2, 0.010)
    queue = LinkQueue(strategy_named("worth"), unsteady, message_bytes=1_024)
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


def test_a_dissolved_queue_gives_its_entries_in_order_and_leaves_nothing_for_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        queue = queue_of(messages_max=50, wants_fresh=True, gives_up_young=False)
        for number in range(80):
            queue.push(entry_of(number, 500 + number, flow=("f", number % 3)), 0)
        assert len(drain(queue, 0)) == 30  # so it knows who would be dropped next
        found = [entry.item for entry in queue.dissolve()]
        del queue
        left = gc.collect()
    finally:
        gc.enable()

    assert len(found) == 50
    assert found == sorted(found, key=int)
    assert left == 0
