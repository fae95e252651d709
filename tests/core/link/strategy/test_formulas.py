"""The arithmetic of each strategy against values worked out by hand and against the model written out."""

from __future__ import annotations

import random

import pytest

from timebound.core.link.strategy.audience import Audience, LinkModel, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.link.strategy.worth import Worth
from timebound.core.values.delay import LinkDelay, Path, normal_cdf

from . import naive

MS = 1_000_000
SECOND = 1_000_000_000

# Φ by table: what the hand-worked values below are made of.
PHI_1 = 0.841344746
PHI_2 = 0.977249868


def published_link(epsilon: float = 0.0005) -> LinkModel:
    """60 ms/KB, ±20 ms/KB; messages of 50 KB take 3 s ± 1 s, so FT is 3 s."""
    link = LinkModel(LinkDelay(0.060, 0.020**2), epsilon, 2 * MS, 0)
    link.first_ns = 3.0 * SECOND
    return link


def entry_of(
    link: LinkModel, *terms: Term, timeout_ns: int = 0, priority: int = 0, size_kb: int = 50
) -> Entry:
    entry = Entry(None, size_kb * 1024, 0, Audience(terms), timeout_ns=timeout_ns, priority=priority)
    entry.fit(link)
    return entry


def test_eb_is_price_times_success() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0), Term(11 * SECOND, 2.0))

    # At age 6 s: slack 4 and 5 s, less 3 s of sending, over 1 s: z = 1 and 2.
    value = strategy_named("eb").value(entry, 6 * SECOND, link)

    assert value == pytest.approx(3 * PHI_1 + 2 * PHI_2, abs=1e-7)


def test_pc_is_what_being_second_loses() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0))

    # z = 1 sent first, -2 sent second.
    value = strategy_named("pc").value(entry, 6 * SECOND, link)

    assert value == pytest.approx(3 * (PHI_1 - (1 - PHI_2)), abs=1e-7)


def test_ebpc_weighs_benefit_and_cost() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND, 3.0))
    benefit, cost = 3 * PHI_1, 3 * (PHI_1 - (1 - PHI_2))

    value = strategy_named("ebpc", mix=0.25).value(entry, 6 * SECOND, link)

    assert value == pytest.approx(0.25 * benefit + 0.75 * cost, abs=1e-7)


def test_mtep_weighs_earning_against_postponing_and_penalty() -> None:
    link = published_link(epsilon=0.02)
    entry = entry_of(link, Term(10 * SECOND, 3.0, 0.3))
    earning, penalty = 3 * PHI_1, 0.3 * (1 - PHI_1)
    earning_second, penalty_second = 3 * (1 - PHI_2), 0.3 * PHI_2
    postponing = (earning - penalty) - (earning_second - penalty_second)

    value = strategy_named("mtep", mix=0.4).value(entry, 6 * SECOND, link)

    assert value == pytest.approx(0.4 * earning + 0.6 * (postponing + penalty), abs=1e-7)


def test_mtep_counts_a_subscription_only_from_epsilon_on() -> None:
    # Sent second its success is Φ(-2) = 2.3 %, below ε = 4 %: neither EE' nor EP' counts it.
    link = published_link(epsilon=0.04)
    entry = entry_of(link, Term(10 * SECOND, 3.0, 0.3))

    value = strategy_named("mtep", mix=0.4).value(entry, 6 * SECOND, link)

    assert value == pytest.approx(3 * PHI_1, abs=1e-7)


def test_remaining_lifetime_is_averaged_over_subscriptions() -> None:
    link = published_link()
    strategy = strategy_named("remaining-lifetime")
    # (10 + 10 + 40)/3 = 20 s; merged terms still count as two subscriptions.
    averaged = entry_of(link, Term(10 * SECOND), Term(10 * SECOND), Term(40 * SECOND))

    assert strategy.value(averaged, 0, link) == -20.0 * SECOND
    assert strategy.value(entry_of(link, Term(19 * SECOND)), 0, link) > strategy.value(averaged, 0, link)


def test_remaining_lifetime_uses_the_smaller_of_timeout_and_deadline() -> None:
    link = published_link()
    entry = entry_of(link, Term(10 * SECOND), Term(0), timeout_ns=20 * SECOND)

    assert strategy_named("remaining-lifetime").value(entry, 0, link) == -15.0 * SECOND


def test_fixed_goes_by_priority_and_fifo_by_nothing() -> None:
    link = published_link()
    entry = entry_of(link, Term(), priority=7)

    assert strategy_named("fixed").value(entry, 0, link) == 7.0
    assert strategy_named("fifo").value(entry, 0, link) == 0.0


def test_brokers_and_last_mile_take_from_the_slack() -> None:
    link = published_link()
    # 250 brokers at 2 ms and 500 ms: one second less, so z falls from 1 to 0 on the same link.
    path = Path(0.0, 0.0, 250, 500 * MS)
    entry = entry_of(link, Term(10 * SECOND, 1.0, 0.0, path))

    assert strategy_named("eb").value(entry, 6 * SECOND, link) == pytest.approx(0.5, abs=1e-7)


def test_path_beyond_the_link_adds_mean_and_variance() -> None:
    link = published_link()
    # 2 ms/KB more is 0.1 s; σ = 25 ms/KB (20² + 15²) is 1.25 s: z = 0.9/1.25.
    entry = entry_of(link, Term(10 * SECOND, 1.0, 0.0, Path(0.002, 0.015**2)))

    assert strategy_named("eb").value(entry, 6 * SECOND, link) == pytest.approx(normal_cdf(0.72), abs=1e-7)


def test_worth_is_stake_per_byte_discounted_by_the_time_left() -> None:
    link = published_link()
    strategy = Worth(lookahead=1.0)
    urgent = entry_of(link, Term(10 * SECOND, 1.0))
    patient = entry_of(link, Term(16 * SECOND, 1.0))
    small = entry_of(link, Term(10 * SECOND, 1.0), size_kb=25)

    def at(entry: Entry, now_ns: int) -> float:
        return strategy.value(entry, now_ns, link)

    # Both certain: six seconds more are two times K = 3 s.
    assert at(urgent, 0) - at(patient, 0) == pytest.approx(2.0)
    # Half the size is twice the worth, but it may also start 1.5 s later.
    assert at(small, 0) - at(urgent, 0) == pytest.approx(0.693147 - 0.5, abs=1e-6)
    # Later both keep their places: what is stored never grows, here it stays.
    assert at(urgent, SECOND) == at(urgent, 0)
    # At the last moment half of the gain is left.
    assert at(urgent, 7 * SECOND) - at(urgent, 0) == pytest.approx(-0.693147, abs=1e-6)


def test_worth_counts_a_penalty_like_a_price() -> None:
    link = published_link()
    strategy = strategy_named("worth")
    priced = entry_of(link, Term(10 * SECOND, 3.0, 0.0))
    penalised = entry_of(link, Term(10 * SECOND, 1.0, 2.0))

    assert strategy.value(priced, 0, link) == strategy.value(penalised, 0, link)


def test_worth_is_urgent_by_the_first_noticeable_loss() -> None:
    link = published_link()
    strategy = Worth(lookahead=1.0)
    # Losing 5 of 100 at 10 s is not noticed, losing 50 of 100 is.
    minor = entry_of(link, Term(10 * SECOND, 5.0), Term(40 * SECOND, 95.0))
    major = entry_of(link, Term(10 * SECOND, 50.0), Term(40 * SECOND, 50.0))

    assert strategy.value(major, 0, link) - strategy.value(minor, 0, link) == pytest.approx(10.0)


def test_worth_gives_messages_without_limit_their_patience() -> None:
    link = published_link()
    strategy = Worth(lookahead=1.0, patience_ns=7 * SECOND)
    # The timed one has to start at 10 - 3 = 7 s as well.
    assert strategy.value(entry_of(link, Term()), 0, link) == pytest.approx(
        strategy.value(entry_of(link, Term(10 * SECOND)), 0, link)
    )


def test_worth_does_not_grow_when_a_minor_loss_leaves_only_the_patient() -> None:
    # Seen once: with the first term gone the second is no longer noticed, and patience is shorter.
    link = published_link()
    strategy = Worth(lookahead=1.0, patience_ns=7 * SECOND)
    entry = entry_of(link, Term(5 * SECOND, 5.0), Term(30 * SECOND, 6.0), Term(0, 95.0))

    values = [strategy.value(entry, second * SECOND, link) for second in range(40)]

    assert values == sorted(values, reverse=True)


def test_worth_of_what_is_lost_is_least() -> None:
    link = published_link()

    assert strategy_named("worth").value(entry_of(link, Term(SECOND)), 60 * SECOND, link) == -float("inf")


def test_link_without_deviation_makes_success_a_step() -> None:
    link = LinkModel(LinkDelay(0.060, 0.0), 0.0005, 0, 0)
    entry = entry_of(link, Term(10 * SECOND, 1.0))

    assert strategy_named("eb").value(entry, 7 * SECOND - 100, link) == 1.0
    assert strategy_named("eb").value(entry, 7 * SECOND + 100, link) == 0.0


def test_equal_deadline_and_path_are_merged_and_others_are_not() -> None:
    path = Path(0.01, 0.0, 1)
    audience = Audience(
        [
            Term(5, 1.0, 0.1),
            Term(5, 2.0, 0.2),
            Term(5, 4.0, 0.4, path),
            Term(0, 8.0, 0.8),
            Term(5, 1.0, 0.1, Path(0.01, 0.0, 1)),
        ]
    )

    found = [(term.deadline_ns, term.price, term.count) for term in audience.terms]

    assert found == [(5, 3.0, 2), (5, 5.0, 2), (0, 8.0, 1)]
    assert audience.subscriptions == 5


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


@pytest.mark.parametrize(
    ("name", "options"),
    [("ebpc", {"mix": 1.5}), ("mtep", {"mix": -0.5}), ("best", {})],
)
def test_wrong_names_and_options_are_refused(name: str, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"is not|is unknown; choose one of fifo"):
        strategy_named(name, **options)  # type: ignore[arg-type]  # one dict for all cases


def test_terms_and_entries_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="deadline_ns=-1"):
        Term(-1)
    with pytest.raises(ValueError, match="penalty=-2"):
        Term(0, 1.0, -2.0)
    with pytest.raises(ValueError, match="no terms"):
        Audience([])
    with pytest.raises(ValueError, match="size_bytes=0"):
        Entry(None, 0, 0, Audience([Term()]))
    with pytest.raises(ValueError, match="epsilon=0"):
        LinkModel(LinkDelay(0.1, 0.0), 0.0, 0, 0)
    with pytest.raises(ValueError, match="processing_ns=-1"):
        LinkModel(LinkDelay(0.1, 0.0), 0.1, -1, 0)
