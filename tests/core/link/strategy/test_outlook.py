"""Outlooks: how long a value stays below a level, against the value itself at many moments."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.link.strategy.audience import Audience, LinkModel, Term
from timebound.core.link.strategy.base import LeastWorth, Strategy
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.outlook import Shape, outlook
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.values.delay import LinkDelay, Path

MS = 1_000_000
SECOND = 1_000_000_000
FAR = 20.0 * SECOND

every_windowed = pytest.mark.parametrize("name", ["pc", "ebpc", "mtep", "least-worth"])


def windowed(name: str, weight: float) -> Strategy:
    if name == "least-worth":
        return LeastWorth(strategy_named("eb"))
    return strategy_named(name, mix=-1.0 if name == "pc" else weight)


def random_link(source: random.Random) -> LinkModel:
    """A link from sharp to blurred: the deviation of a message from nothing to many message times."""
    mean = source.choice((0.001, 0.010))
    delay = LinkDelay(
        mean, (source.choice((0.0, 0.1, 1.0, 10.0)) * mean) ** 2, source.choice((0.0, 0.0, 0.02))
    )
    link = LinkModel(delay, source.choice((1e-9, 0.000_5, 0.04, 0.6)), source.choice((0, 2 * MS)), 0)
    link.first_ns = source.choice((0.1, 1.0, 8.0, 50.0)) * MS
    return link


def random_entry(source: random.Random, link: LinkModel) -> Entry:
    """An entry whose deadlines lie in clusters, with prices of very different size."""
    terms = []
    for _ in range(source.choice((1, 2, 5, 40))):
        deadline_ns = source.choice((0, 300, 300, 320, 900, source.randint(1, 2_000))) * MS
        path = Path(source.choice((0.0, 0.002, 0.01)), source.choice((0.0, 0.001)) ** 2, source.randint(0, 3))
        price = source.choice((0.0, 1e-9, 0.5, 1.0, 3.0, 1e6))
        terms.append(Term(deadline_ns, price, source.choice((0.0, 0.3, 2.0, 1e3)), path))
    entry = Entry(
        None,
        source.choice((100, 1_024, 20_000)),
        0,
        Audience(terms),
        timeout_ns=source.choice((0, 0, source.randint(1, 1_500) * MS)),
    )
    entry.fit(link)
    return entry


@pytest.mark.parametrize("name", ["fifo", "fixed", "remaining-lifetime", "eb", "worth"])
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), now_us=st.integers(0, 2_500_000), later_us=st.integers(0, 2_500_000))
def test_a_value_that_never_grows_is_its_own_bound(name: str, seed: int, now_us: int, later_us: int) -> None:
    source = random.Random(seed)
    link = random_link(source)
    entry = random_entry(source, link)
    strategy = strategy_named(name)

    until, bound, is_exact = strategy.outlook(entry, now_us * 1_000, 0.0, link)
    later = strategy.value(entry, (now_us + later_us) * 1_000, link)

    assert until == math.inf
    assert later == bound if is_exact else later <= bound


@every_windowed
@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    now_us=st.integers(0, 2_500_000),
    level_part=st.floats(0.0, 1.2),
    weight=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_value_stays_below_its_bound_until_the_end_of_the_outlook(
    name: str, seed: int, now_us: int, level_part: float, weight: float
) -> None:
    source = random.Random(seed)
    link = random_link(source)
    entry = random_entry(source, link)
    strategy = windowed(name, weight)
    now_ns = now_us * 1_000
    level = level_part * strategy.value(entry, 300 * MS, link)

    until, bound, _ = strategy.outlook(entry, now_ns, level, link)

    assert until >= now_ns
    end_ns = int(min(until, FAR))
    moments = [now_ns + step * (end_ns - now_ns) // 60 for step in range(60)]
    moments += [source.randint(now_ns, max(end_ns, now_ns)) for _ in range(20)]
    # Close to where a term goes up or down a rough bound would be wrong first.
    for term in entry.audience.terms:
        if term.allowed < math.inf:
            critical = term.allowed - term.fixed - entry.size * term.mean
            moments += [int(critical - source.uniform(-1.0, 2.0) * link.first_ns) for _ in range(2)]
    for moment_ns in moments:
        if now_ns <= moment_ns < end_ns:
            assert strategy.value(entry, moment_ns, link) <= bound


@every_windowed
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), now_ms=st.integers(0, 2_500))
def test_bound_is_within_the_level_where_the_value_is_far_below(name: str, seed: int, now_ms: int) -> None:
    source = random.Random(seed)
    link = random_link(source)
    entry = random_entry(source, link)
    level = 1e12 if name != "least-worth" else 0.0

    _, bound, _ = windowed(name, 0.4).outlook(entry, now_ms * MS, level, link)

    assert bound <= level


def sharp_link() -> LinkModel:
    """10 ms per KB, hardly any deviation, and one message time is 10 ms."""
    link = LinkModel(LinkDelay(0.010, 0.000_1**2), 0.000_5, 0, 0)
    link.first_ns = 10.0 * MS
    return link


def test_lone_deadlines_below_the_level_do_not_wake_an_entry() -> None:
    link = sharp_link()
    entry = Entry(None, 1_024, 0, Audience([Term(second * SECOND, 2.0) for second in range(1, 9)]))
    entry.fit(link)

    until, bound, _ = strategy_named("pc").outlook(entry, 0, 2.5, link)

    assert until == math.inf
    assert bound == pytest.approx(2.0, rel=0.01)


def test_outlook_ends_where_deadlines_crowd() -> None:
    link = sharp_link()
    terms = [
        Term(1 * SECOND, 2.0),
        Term(2 * SECOND, 2.0),
        Term(2 * SECOND + 5 * MS, 2.0),
        Term(3 * SECOND, 2.0),
    ]
    entry = Entry(None, 1_024, 0, Audience(terms))
    entry.fit(link)

    until, bound, _ = strategy_named("pc").outlook(entry, 0, 2.5, link)

    # The second of the two is one message time before its deadline: 2005 - 10 (way) - 10 (FT) ms.
    assert until == pytest.approx(1_985 * MS, abs=MS)
    assert bound == pytest.approx(2.0, rel=0.01)


def test_deadlines_one_message_time_apart_do_not_add_up() -> None:
    link = sharp_link()
    terms = [Term(2 * SECOND + step * 10 * MS, 2.0) for step in range(4)]
    entry = Entry(None, 1_024, 0, Audience(terms))
    entry.fit(link)

    until, bound, _ = strategy_named("pc").outlook(entry, 0, 2.5, link)

    assert until == math.inf
    assert bound == pytest.approx(2.0, rel=0.02)


def test_a_short_message_time_loses_little_however_many_deadlines_are_in_doubt() -> None:
    # A deviation of 100 ms, and one message time is 1 ms: waiting for one costs 0.4 % of each price.
    link = LinkModel(LinkDelay(0.010, 0.1**2), 0.000_5, 0, 0)
    link.first_ns = 1.0 * MS
    entry = Entry(None, 1_024, 0, Audience([Term(2 * SECOND + step * MS, 1.0) for step in range(10)]))
    entry.fit(link)

    until, bound, _ = strategy_named("pc").outlook(entry, 0, 0.05, link)

    assert until == math.inf
    assert bound == pytest.approx(0.04, rel=0.01)


def test_worth_that_is_sure_is_calm_until_it_is_in_doubt() -> None:
    link = sharp_link()
    entry = Entry(None, 1_000, 0, Audience([Term(1 * SECOND, 1.0), Term(2 * SECOND, 3.0)]))
    entry.fit(link)
    least = LeastWorth(strategy_named("eb"))

    until, bound, _ = least.outlook(entry, 0, -0.003_5, link)
    assert (until, bound) == (pytest.approx(990 * MS, abs=MS), -0.004)

    until, bound, _ = least.outlook(entry, 0, -0.002, link)
    assert (until, bound) == (pytest.approx(1_990 * MS, abs=MS), -0.003)


def test_an_outlook_with_a_penalty_counts_all_that_may_be_gained() -> None:
    link = sharp_link()
    entry = Entry(None, 1_024, 0, Audience([Term(1 * SECOND, 2.0, 3.0)]))
    entry.fit(link)

    # 2 for the price, and 3 for the penalty that is spared.
    assert outlook(entry, 0.0, 2.5, link, Shape(0.0, False))[0] == math.inf
    until, bound, _ = outlook(entry, 0.0, 2.5, link, Shape(0.0, True))

    assert until == pytest.approx(980 * MS, abs=2 * MS)
    assert bound <= 2.5


def test_the_part_of_the_benefit_stands_still_until_a_deadline_is_in_doubt() -> None:
    link = sharp_link()
    entry = Entry(None, 1_024, 0, Audience([Term(1 * SECOND, 2.0), Term(0, 4.0)]))
    entry.fit(link)

    until, bound, is_exact = outlook(entry, 0.0, 1.0, link, Shape(0.5, False))

    # Half of 6; in doubt one message time and some deviations before it has to be sent.
    assert bound == pytest.approx(3.0)
    assert is_exact
    assert until == pytest.approx(980 * MS, abs=2 * MS)


def test_nothing_is_expected_of_what_is_lost() -> None:
    link = sharp_link()
    entry = Entry(None, 1_024, 0, Audience([Term(1 * SECOND, 2.0)]))
    entry.fit(link)

    assert outlook(entry, 2.0 * SECOND, 0.0, link, Shape(0.5, True)) == (math.inf, 0.0, False)
