"""Publishers and subscribers: how often, with which content, and at which brokers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from timebound.sim.kernel.draws import choice, fixed, uniform
from timebound.sim.kernel.streams import Streams
from timebound.sim.mesh.setting import PublisherSetting, SubscriptionSetting
from timebound.sim.mesh.topology import ring, tree
from timebound.sim.mesh.workload import Source, make_sources, make_subscriptions
from timebound.sim.papers.settings import paper_002
from timebound.terms import Terms
from timebound.units import MILLISECOND, MINUTE, SECOND

KB = 1_024


@pytest.mark.parametrize("arrivals", ["poisson", "periodic", "bursty"])
def test_publishers_keep_their_mean_rate(arrivals: str) -> None:
    setting = replace(paper_002("psd", 30.0, "eb").publishers[0], arrivals=arrivals)
    source = Source("p1", "b1", setting, Streams(1).stream("publisher p1"))
    now = source.first_ns()
    count = 0
    while now < 200 * MINUTE:
        count += 1
        now = source.next_ns(now)

    assert count == pytest.approx(6_000, rel=0.1)


def test_messages_carry_what_the_paper_says() -> None:
    source = Source("p1", "b1", paper_002("psd", 1.0, "eb").publishers[0], Random(1))

    what = source.message(7, 123)

    assert what.size_bytes == 50 * KB
    assert what.message.sequence == 7
    assert 10_000_000_000 <= what.message.timeout_ns <= 30_000_000_000
    assert [name for name, _ in what.message.user_properties] == ["a1", "a2"]


def test_a_periodic_publisher_keeps_its_interval_from_a_random_start() -> None:
    setting = PublisherSetting(60.0, fixed(10), arrivals="periodic")
    starts = {Source("p", "b1", setting, Random(seed)).first_ns() for seed in range(5)}
    source = Source("p", "b1", setting, Random(1))

    assert len(starts) == 5
    assert all(0 <= start < SECOND for start in starts)
    assert source.next_ns(7) == 7 + SECOND


def test_the_messages_of_a_burst_come_at_once() -> None:
    source = Source("p", "b1", PublisherSetting(60.0, fixed(10), arrivals="bursty", burst=3), Random(1))

    times = [source.first_ns()]
    for _ in range(5):
        times.append(source.next_ns(times[-1]))

    assert times[0] == times[1] == times[2] < times[3] == times[4] == times[5]


def test_optional_terms_are_drawn_only_where_they_are_set() -> None:
    plain = PublisherSetting(1.0, fixed(0.2), topic="a/b")
    timed = replace(plain, timeout_ms=fixed(250), priority=choice(4))

    bare = Source("p", "b1", plain, Random(1)).message(1, 5)
    full = Source("p", "b1", timed, Random(1)).message(2, 5)

    assert (bare.message.topic, bare.message.published_ns, bare.origin) == ("a/b", 5, "b1")
    assert (bare.message.timeout_ns, bare.message.priority, bare.size_bytes) == (0, 0, 1)
    assert (full.message.timeout_ns, full.message.priority) == (250 * MILLISECOND, 4)


def test_publishers_stand_at_their_layer_or_at_the_named_brokers() -> None:
    settings = (
        PublisherSetting(1.0, fixed(10), name="up", layer=1, count=2),
        PublisherSetting(1.0, fixed(10), name="at", brokers=("b7",)),
    )

    sources = make_sources(settings, tree(7, 2), Streams(1))

    assert [(source.client_id, source.home) for source, _ in sources] == [
        ("up1", "b2"),
        ("up2", "b2"),
        ("up3", "b3"),
        ("up4", "b3"),
        ("at5", "b7"),
    ]
    assert [setting.name for _, setting in sources] == ["up"] * 4 + ["at"]


def test_every_publisher_has_a_stream_of_its_own() -> None:
    setting = PublisherSetting(1.0, uniform(1, 1_000_000))
    few = make_sources((setting,), ring(2), Streams(1))
    more = make_sources((replace(setting, count=2),), ring(2), Streams(1))

    sizes = [source.message(1, 0).size_bytes for source, _ in more]

    assert [source.message(1, 0).size_bytes for source, _ in few] == sizes[:2]
    assert len(set(sizes)) == 4


def test_subscriptions_get_numbers_for_the_names_in_their_filter_and_one_of_the_terms() -> None:
    terms = (Terms(deadline_ns=SECOND, price=3.0, penalty=1.0), Terms(deadline_ns=2 * SECOND, price=1.0))
    setting = SubscriptionSetting(
        topic_filter="t/#",
        count=10,
        where="a < {x}",
        draws=(("x", uniform(0, 10)),),
        terms=terms,
        last_mile_ns=5,
        brokers=("b1", "b2"),
    )

    subscriptions = make_subscriptions((setting,), ring(2), Streams(1))

    assert [one.client_id for one in subscriptions] == [f"s{number}" for number in range(1, 21)]
    assert [one.home for one in subscriptions] == ["b1"] * 10 + ["b2"] * 10
    assert {one.topic_filter for one in subscriptions} == {"t/#"}
    assert {(one.deadline_ns, one.price) for one in subscriptions} == {(SECOND, 3.0), (2 * SECOND, 1.0)}
    assert {one.last_mile_ns for one in subscriptions} == {5}
    limits = [float(one.predicate.text.removeprefix("a < ")) for one in subscriptions if one.predicate]
    assert len(set(limits)) == 20
    assert all(0 <= limit <= 10 for limit in limits)


def test_a_subscription_without_filter_by_content_has_no_predicate() -> None:
    [one] = make_subscriptions((SubscriptionSetting(brokers=("b1",)),), ring(2), Streams(1))

    assert one.predicate is None
