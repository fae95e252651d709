"""RL over the subscriptions not yet late, against the average worked out by hand."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.strategy.audience import Audience, LinkModel, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.values.delay import LinkDelay
from timebound.sim.papers.brokers.lifetime import AliveLifetime

SECOND = 1_000_000_000
LINK = LinkModel(LinkDelay(0.05, 0.0001), 0.001, 0, 0)


def entry_of(terms: list[Term], timeout_ns: int = 0) -> Entry:
    return Entry("item", 10, 0, Audience(terms), timeout_ns)


def test_the_average_lifetime_leaves_out_who_is_late_already() -> None:
    entry = entry_of([Term(10 * SECOND, count=1), Term(30 * SECOND, count=3)])

    ends = [-AliveLifetime().value(entry, now * SECOND, LINK) / SECOND for now in (5, 10, 29)]

    assert ends == [25.0, 30.0, 30.0]
    assert AliveLifetime().value(entry, 30 * SECOND, LINK) == -math.inf


def test_the_timeout_of_a_message_limits_every_lifetime() -> None:
    entry = entry_of([Term(10 * SECOND), Term(30 * SECOND)], timeout_ns=20 * SECOND)

    assert AliveLifetime().value(entry, 0, LINK) == -15.0 * SECOND


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 5)), min_size=1, max_size=6),
    st.lists(st.integers(0, 70), min_size=2, max_size=6),
)
def test_the_value_is_the_average_end_and_never_grows(terms: list[tuple[int, int]], times: list[int]) -> None:
    entry = entry_of([Term(seconds * SECOND, count=count) for seconds, count in terms])
    values = [AliveLifetime().value(entry, now * SECOND, LINK) for now in sorted(times)]

    assert values == sorted(values, reverse=True)
    for now, value in zip(sorted(times), values, strict=True):
        alive = [seconds for seconds, count in terms for _ in range(count) if seconds > now]
        expected = -sum(alive) / len(alive) * SECOND if alive else -math.inf
        assert math.isclose(value, expected)
