"""The link to one neighbour: the reach of homes, queueing delays, congestion and levels."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.queue import LinkQueue
from timebound.core.link.scheduling import Scheduling
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.link import MeshLink, Reach
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.pressure import EXHAUSTED, FULL, ROOM
from timebound.core.mesh.table import HomeGroup, MeshSubscription
from timebound.core.values.delay import LinkDelay, Path, phi
from timebound.core.values.message import Message
from timebound.terms import Terms

SECOND = 1_000_000_000
DELAY = LinkDelay(0.05, 0.0001)  # seconds per KB
BEYOND = Path(0.02, 0.0003, brokers=2)


def queue_of(messages_max: int = 10, processing_ns: int = 0) -> LinkQueue:
    return LinkQueue(
        strategy_named("fifo"),
        DELAY,
        messages_max=messages_max,
        bytes_max=1 << 30,
        epsilon=0.001,
        processing_ns=processing_ns,
        message_bytes=1_024,
    )


def link_of(waiting_share: float = 0.5, messages_max: int = 10) -> MeshLink:
    return MeshLink("b", queue_of(messages_max), DELAY, waiting_share)


def group_of(number: int, *subscriptions: MeshSubscription) -> HomeGroup:
    return HomeGroup(
        number,
        list(subscriptions)
        or [MeshSubscription(client_id="s", home="d", topic_filter="t", terms=Terms(deadline_ns=SECOND))],
    )


def test_a_reach_adds_the_link_the_path_and_the_queueing_delay() -> None:
    reach = Reach(BEYOND, queue_of(processing_ns=7), 1_000, 0b101)

    per_byte = SECOND / 1_024
    assert reach.mean == pytest.approx((0.05 + 0.02) * per_byte)
    assert reach.deviation == pytest.approx(math.sqrt(0.0001 + 0.0003) * per_byte)
    assert reach.fixed == 2 * 7 + 1_000
    assert reach.passed.bit_count() == 2


def test_the_path_to_a_subscriber_has_its_last_mile_and_the_queueing_delay() -> None:
    reach = Reach(BEYOND, queue_of(), 1_000, 1)

    paths = [reach.path(last_mile_ns) for last_mile_ns in (0, 5, 9, 5, 0)]

    assert [path.last_mile_ns for path in paths] == [1_000, 1_005, 1_009, 1_005, 1_000]
    assert paths[1] is paths[3]
    assert {(path.mean_s_per_kb, path.variance, path.brokers) for path in paths} == {(0.02, 0.0003, 2)}


@given(
    st.lists(
        st.tuples(st.integers(0, 10), st.integers(0, 1_000), st.floats(0.1, 9.0), st.floats(0.0, 2.0)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 5),
    st.integers(100, 100_000),
    st.floats(0.0, 5e9),
)
def test_worth_is_the_sum_over_all_subscriptions(
    asked: list[tuple[int, int, float, float]], timeout_s: int, size_bytes: int, age: float
) -> None:
    subscriptions = [
        MeshSubscription(
            client_id=str(number),
            home="d",
            topic_filter="t",
            last_mile_ns=last_mile_ms * 1_000_000,
            terms=Terms(deadline_ns=seconds * SECOND, price=price, penalty=penalty),
        )
        for number, (seconds, last_mile_ms, price, penalty) in enumerate(asked)
    ]
    message = Message("t", b"", 0, False, 0, "p", timeout_ns=timeout_s * SECOND)
    reach = Reach(BEYOND, queue_of(), SECOND // 10, 1)

    worth = reach.worth(group_of(1, *subscriptions), message, float(size_bytes), age)

    expected = 0.0
    kilobytes = size_bytes / 1_024
    for one in subscriptions:
        limits = [limit for limit in (one.deadline_ns, message.timeout_ns) if limit]
        success = 1.0
        if limits:
            needed = age + SECOND / 10 + kilobytes * 0.07 * SECOND + one.last_mile_ns
            success = phi((min(limits) - needed) / (kilobytes * math.sqrt(0.0004) * SECOND))
        expected += (one.price + one.penalty) * success
    assert worth == pytest.approx(expected, abs=1e-6)


def test_a_share_of_the_reported_delay_joins_the_reach_of_a_home() -> None:
    link = link_of(waiting_share=0.5)
    link.set_queue_delays({"d": SECOND})

    reach = link.reach("d", BEYOND, 1)

    assert reach.fixed == SECOND / 2
    assert link.reach("d", Path(), 0) is reach  # cached
    assert link.queue_delay_beyond_ns("d") == SECOND
    assert link.queue_delay_beyond_ns("e") == 0


def test_a_delay_report_counts_only_where_it_moved_by_a_quarter_of_a_message() -> None:
    link = link_of()
    quarter_ns = int(0.25 * link.queue.link.first_ns)
    reaches = {home: link.reach(home, BEYOND, 1) for home in ("d", "e")}

    link.set_queue_delays({"d": quarter_ns, "e": quarter_ns + 1})

    assert link.queue_delay_beyond_ns("d") == 0
    assert link.queue_delay_beyond_ns("e") == quarter_ns + 1
    assert link.reach("d", BEYOND, 1) is reaches["d"]
    assert link.reach("e", BEYOND, 1) is not reaches["e"]


def test_the_audience_of_a_single_group_is_cached_until_its_path_changes() -> None:
    link = link_of()
    one, other = group_of(1), group_of(2)
    reach = link.reach("d", BEYOND, 1)

    audience = link.audience([one], [reach])
    both = link.audience([one, other], [reach, reach])

    assert link.audience([one], [reach]) is audience
    assert link.audience([one, other], [reach, reach]) is not both
    assert both.subscriptions == 2
    link.set_queue_delays({"d": 100 * SECOND})
    assert link.audience([one], [reach]) is not audience
    link.forget_paths()
    assert link.reaches == {}


def test_sending_makes_a_link_busy_for_the_time_of_the_message() -> None:
    link = link_of()
    assert link.expected_queue_delay_ns(0) == 0.0

    link.sending(2_048, 1_000, 5)

    assert link.is_busy
    assert link.scheduled_ns == 5 + SECOND // 10
    assert link.queue_delay_ns == pytest.approx(100.0)  # a tenth of the first
    assert link.expected_queue_delay_ns(5) == pytest.approx(100.0 + SECOND // 10)
    assert link.expected_queue_delay_ns(link.scheduled_ns + 9) == pytest.approx(100.0)


def test_usual_worth_is_a_slow_mean_that_starts_with_the_first_message() -> None:
    link = link_of()
    assert link.usual_worth_of(1_000.0) == 0.0

    link.note_worth(5.0, 1_000.0, 1e9)
    assert link.usual_worth_of(500.0) == 2.5
    link.note_worth(55.0, 1_000.0, 2e9)

    assert link.usual_worth == pytest.approx(6.0)
    assert link.allowed_ns == pytest.approx(1.02e9)


def test_congestion_is_messages_ahead_squared_times_the_share_of_time() -> None:
    link = link_of()
    first_ns = link.queue.link.first_ns
    assert link.congestion(first_ns) == 0.0  # nothing was sent yet
    link.note_worth(1.0, 1_024.0, 10 * first_ns)

    assert link.congestion(first_ns) == pytest.approx(0.1)
    assert link.congestion(2 * first_ns) == pytest.approx(4 * 0.2)
    assert link.congestion(6 * first_ns) == pytest.approx(9 * 0.6)  # three messages ahead, at most


def test_the_level_of_a_path_is_the_worse_of_the_queue_and_what_the_neighbour_reports() -> None:
    link = link_of(messages_max=2)
    assert (link.level_to("d"), link.is_pressed()) == (ROOM, False)

    link.set_levels({"d": FULL})
    assert [link.level_to(home) for home in "de"] == [FULL, ROOM]
    assert link.is_pressed()
    for number in range(16):
        audience = link.audience(
            [group_of(1, MeshSubscription(client_id="s", home="d", topic_filter="t"))],
            [link.reach("d", BEYOND, 1)],
        )
        entry = Entry(number, 10, 0, audience)
        entry.is_kept = True
        link.queue.push(entry, 0)

    assert link.update_level()
    assert not link.update_level()
    assert [link.level_to(home) for home in "de"] == [EXHAUSTED, EXHAUSTED]


def test_a_topic_has_the_lane_of_its_class_on_links_with_a_scheduling() -> None:
    plain = link_of()
    divided = MeshLink("b", queue_of(), DELAY, 0.5, Scheduling(shares=[("alarm/#", 0.25)]))

    assert plain.scheduling.lane_of("alarm/x") == -1
    assert divided.scheduling.lane_of("alarm/x") > 0
    assert divided.scheduling.lane_of("log") != divided.scheduling.lane_of("alarm/x")


def copy_of(number: int) -> Copy:
    return Copy(MeshMessage(Message("t", b"x", 1, False, 0, "p"), "a", 100, 1, number), ("a",), 1, {"b"})


def test_a_link_is_idle_while_the_neighbour_receives_more() -> None:
    link = link_of()
    assert link.is_idle()
    link.open(1)

    packet_id = link.start(copy_of(1))
    assert not link.is_idle()
    assert link.expected_queue_delay_ns(5) == link.queue_delay_ns
    link.confirm(packet_id)

    assert link.is_idle()
    link._check()


def test_a_lost_connection_leaves_its_unconfirmed_copies_but_not_its_hello() -> None:
    link = link_of()
    link.open(5)
    copies = [copy_of(number) for number in (1, 2, 3)]
    link.start(None)
    for copy in copies:
        link.start(copy)
    link.confirm(3)
    assert link.unconfirmed() == [copies[0], copies[2]]

    assert link.take_unconfirmed() == [copies[0], copies[2]]

    assert (link.unconfirmed(), link.is_confirmed, link.is_idle()) == ([], False, True)
    link.open(5)
    assert (link.start(copies[1]), link.send_quota) == (1, 4)
    link._check()
