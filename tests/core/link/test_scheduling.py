"""Settings of the output side: what is refused, and what queues are made of them."""

from __future__ import annotations

import pytest

from timebound.core.link.scheduling import DEFAULT_SCHEDULING, STRATEGY_NAMES, Scheduling, parse_share
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.values.delay import link_of_rate
from timebound.errors import FilterError
from timebound.units import SECOND

LINK = link_of_rate(100_000.0)


def test_the_default_is_worth_with_a_twentieth_for_what_has_no_limit() -> None:
    assert DEFAULT_SCHEDULING.name == "worth"
    assert DEFAULT_SCHEDULING.untimed_share == 0.05


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_every_strategy_makes_a_queue_with_the_limits_given(name: str) -> None:
    queue = Scheduling(name).make_queue(LINK, 7, 5_000, 0)

    assert queue.strategy.name == name
    assert (queue.messages_max, queue.bytes_max, len(queue)) == (7, 5_000, 0)


def test_a_mix_reaches_its_strategy() -> None:
    strategy = Scheduling("ebpc", 0.7).make_queue(LINK, 10, 10_000, 0).strategy

    assert strategy.mix == 0.7  # type: ignore[attr-defined]  # ebpc has one


@pytest.mark.parametrize(
    ("name", "weight", "share", "words"),
    [
        ("best", -1.0, 0.05, "strategy 'best' is unknown"),
        ("ebpc", 1.5, 0.05, "mix=1.5"),
        ("worth", -1.0, 1.0, "untimed_share=1.0"),
        ("worth", -1.0, -0.1, "untimed_share=-0.1"),
    ],
)
def test_wrong_settings_are_refused(name: str, weight: float, share: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Scheduling(name, weight, share)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_messages_without_a_limit_keep_their_share_of_a_full_link(share: float) -> None:
    queue = Scheduling("worth", untimed_share=share).make_queue(LINK, 10_000, 10_000_000, 0)
    timed, untimed = Audience([Term(SECOND, 100.0)]), Audience([Term()])
    sent = {"timed": 0, "untimed": 0}
    now_ns = 0
    for _ in range(2_000):
        for name, audience in (("timed", timed), ("timed", timed), ("untimed", untimed)):
            queue.push(Entry(name, 1_000, now_ns, audience), now_ns)
        entry = queue.pop(now_ns)
        while queue.pop_dropped(now_ns) is not None:
            pass
        assert entry is not None
        sent[str(entry.item)] += 1
        now_ns += 10_000_000  # 1,000 bytes at 100 kB/s

    assert sent["untimed"] / 2_000 == pytest.approx(share, abs=0.01)


def test_the_papers_strategies_know_one_class() -> None:
    assert len(Scheduling("eb").make_queue(LINK, 10, 10_000, 0).lanes) == 1
    assert len(Scheduling("worth").make_queue(LINK, 10, 10_000, 0).lanes) == 2


def test_a_topic_is_in_the_class_of_the_most_specific_filter() -> None:
    shares = [("#", 0.1), ("plant/#", 0.1), ("plant/+/alarm", 0.2), ("plant/7/alarm", 0.05)]
    scheduling = Scheduling(shares=shares)

    def class_of(topic: str) -> str:
        return scheduling.shares[scheduling.lane_of(topic) - 1][0]

    assert class_of("plant/7/alarm") == "plant/7/alarm"
    assert class_of("plant/8/alarm") == "plant/+/alarm"
    assert class_of("plant/8/log") == "plant/#"
    assert class_of("office") == "#"
    assert scheduling.lane_of("$SYS/uptime") == -1
    assert Scheduling().lane_of("plant") == -1


def test_more_topics_than_are_remembered_still_find_their_class() -> None:
    scheduling = Scheduling(shares=[("a/#", 0.1)])

    lanes = [scheduling.lane_of(f"{'ab'[number % 2]}/{number}") for number in range(10_000)]

    assert lanes == [1, -1] * 5_000


@pytest.mark.parametrize("name", ["worth", "eb", "fifo", "mtep"])
def test_every_class_keeps_its_share_of_a_full_link(name: str) -> None:
    # By value alone the class "rich" would get all of it.
    shares = [("poor/#", 0.3), ("poorer/#", 0.1)]
    scheduling = Scheduling(name, shares=shares)
    queue = scheduling.make_queue(LINK, 500, 10_000_000, 0)
    prices = {"rich": 100.0, "poor": 1.0, "poorer": 0.1}
    audiences = {topic: Audience([Term(SECOND, price)]) for topic, price in prices.items()}
    sent = dict.fromkeys(prices, 0)
    now_ns = 0
    for _ in range(1_500):
        for topic in ("rich", "poor", "poorer"):
            lane = scheduling.lane_of(f"{topic}/1")
            queue.push(Entry(topic, 1_000, now_ns, audiences[topic], lane=lane), now_ns)
        entry = queue.pop(now_ns)
        while queue.pop_dropped(now_ns) is not None:
            pass
        assert entry is not None
        sent[str(entry.item)] += 1
        now_ns += 10_000_000  # 1,000 bytes at 100 kB/s

    assert sent["poor"] / 1_500 >= 0.3 - 0.01
    assert sent["poorer"] / 1_500 >= 0.1 - 0.01
    queue._check()


def test_what_is_in_no_class_and_has_no_limit_has_a_lane_of_its_own() -> None:
    for name, last in (("worth", 0.05), ("eb", 0.0)):
        queue = Scheduling(name, shares=[("a", 0.2)]).make_queue(LINK, 10, 10_000, 0)

        assert [lane.share for lane in queue.lanes] == [0.0, 0.2, last]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alarm", "is not a topic filter with a percentage"),
        ("alarm=0", "is not a topic filter with a percentage"),
        ("alarm=91", "is not a topic filter with a percentage"),
        ("alarm=x", "is not a topic filter with a percentage"),
        ("a/#/b=5", "'#'"),
    ],
)
def test_a_share_that_is_not_understood_is_refused(text: str, words: str) -> None:
    with pytest.raises((ValueError, FilterError), match=words):
        parse_share(text)


def test_a_share_is_read_as_it_is_configured() -> None:
    assert parse_share("plant/+/alarm=20") == ("plant/+/alarm", 0.2)
    assert parse_share("a=b=5") == ("a=b", 0.05)


def test_shares_that_do_not_fit_on_a_link_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to more than 1"):
        Scheduling(untimed_share=0.2, shares=[("a", 0.5), ("b", 0.4)])
    with pytest.raises(ValueError, match="at most 16"):
        Scheduling(shares=[(f"topic/{number}", 0.01) for number in range(17)])
