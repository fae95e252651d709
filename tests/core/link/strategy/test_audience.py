"""Terms of an audience: merged, ordered, summed up, and fitted to a link."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.strategy.audience import DIRECT, DOUBT, Audience, LinkModel, Term
from timebound.core.values.delay import LinkDelay, Path

from .published import MS, SECOND, published_link

# Equal paths that are different objects, and paths that differ in one field each.
PATHS = [
    DIRECT,
    Path(),
    Path(0.01),
    Path(0.01, 0.0),
    Path(0.01, 1e-6),
    Path(0.01, 1e-6, 1),
    Path(0.01, 1e-6, 1, 5),
    Path(0.0, 0.0, 2),
]
# Whole numbers: their sums are exact in any order.
terms_made = st.builds(
    Term,
    st.sampled_from([0, 1, 2, 5, 6, 100]),
    st.integers(0, 9).map(float),
    st.integers(0, 9).map(float),
    st.sampled_from(PATHS),
    st.integers(1, 3),
)
audiences_made = st.lists(terms_made, min_size=1, max_size=12)


def place(term: Term) -> tuple[float, float, float, int, int]:
    path = term.path
    allowed = term.deadline_ns or math.inf
    return allowed, path.mean_s_per_kb, path.variance, path.brokers, path.last_mile_ns


@given(audiences_made)
def test_terms_are_merged_by_deadline_and_path_and_stand_in_order(terms: list[Term]) -> None:
    expected: dict[tuple[float, ...], tuple[float, float, int]] = {}
    for term in terms:
        price, penalty, count = expected.get(place(term), (0.0, 0.0, 0))
        expected[place(term)] = (price + term.price, penalty + term.penalty, count + term.count)

    audience = Audience(terms)

    found = [(place(term), (term.price, term.penalty, term.count)) for term in audience.terms]
    assert found == sorted(expected.items())
    assert audience.subscriptions == sum(term.count for term in terms)
    assert audience.limited == max((float(term.deadline_ns) for term in terms), default=0.0)
    assert audience.deadlines() == tuple(key[0] for key in sorted(expected))


@given(audiences_made)
def test_sums_from_a_term_on_are_those_of_the_terms_after_it(terms: list[Term]) -> None:
    audience = Audience(terms)

    for index in range(len(audience.terms) + 1):
        rest = audience.terms[index:]
        assert audience.prices_from(index) == sum(term.price for term in rest)
        assert audience.gains_from(index) == sum(term.price + term.penalty for term in rest)


@given(audiences_made, st.sampled_from([0.0, 0.5, 1.0, 10.0]))
def test_peak_is_the_largest_gain_in_any_stretch_of_twice_the_width(terms: list[Term], width: float) -> None:
    audience = Audience(terms)
    held = audience.terms

    audience.find_peaks(width)

    for index in range(len(held)):
        expected = 0.0
        for begin in range(index, len(held)):
            limit = held[begin].allowed + 2.0 * width
            expected = max(expected, sum(term.gain for term in held[begin:] if term.allowed <= limit))
        assert held[index].peak_from == expected


def test_peaks_of_a_wider_stretch_are_kept_for_a_somewhat_narrower_one() -> None:
    audience = Audience([Term(100, 1.0), Term(119, 2.0)])
    audience.find_peaks(10.0)
    assert audience.terms[0].peak_from == 3.0

    audience.find_peaks(5.0)
    assert audience.terms[0].peak_from == 3.0
    audience.find_peaks(4.0)
    assert audience.terms[0].peak_from == 2.0


@given(terms_made, terms_made, terms_made)
def test_precedes_orders_terms_strictly(one: Term, other: Term, third: Term) -> None:
    assert one.precedes(other) == (place(one) < place(other))
    assert not one.precedes(one.copied())
    if one.precedes(other) and other.precedes(third):
        assert one.precedes(third)


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


def test_a_term_is_fitted_to_link_and_path_together() -> None:
    # 1,000 ns a byte with a deviation of 300; the path adds 500 and 400; 3 brokers, 7 ns, 11 ns of margin.
    link = LinkModel(LinkDelay(0.001_024, 0.000_307_2**2), 0.5, 20, 0)
    link.set_margin(11)
    term = Term(100, 1.0, 0.0, Path(0.000_512, 0.000_409_6**2, 3, 7))

    term.fit(link)

    assert term.fixed == 78.0
    assert term.mean == pytest.approx(1_500.0)
    assert term.deviation == pytest.approx(500.0)


def test_an_audience_knows_its_slowest_and_its_surest_term() -> None:
    link = LinkModel(LinkDelay(0.001_024, 0.000_307_2**2), 0.5, 20, 0)
    audience = Audience([Term(100), Term(200, 1.0, 0.0, Path(0.000_512, 0.000_409_6**2, 3, 7))])

    audience.fit(link)

    assert (audience.fixed_min, audience.fixed_max) == (0.0, 67.0)
    assert audience.delay_max == pytest.approx(1_500.0)
    assert audience.doubt_max == pytest.approx(1_500.0 + DOUBT * 500.0)
    assert audience.doubt_min == pytest.approx(1_500.0 - DOUBT * 500.0)


def test_a_changed_link_is_noticed_by_its_version() -> None:
    link = LinkModel(LinkDelay(0.001_024, 0.0), 0.5, 0, 0)
    audience = Audience([Term(100)])
    audience.fit(link)
    version = link.version

    link.set_delay(LinkDelay(0.002_048, 0.0, 0.003))
    link.set_margin(5)
    audience.fit(link)

    assert link.version == version + 2
    assert audience.version == link.version
    assert audience.terms[0].mean == pytest.approx(2_000.0)
    assert audience.terms[0].fixed == 5.0
    assert link.jitter == pytest.approx(3.0 * MS)


def test_an_audience_belongs_to_one_link() -> None:
    audience = Audience([Term(SECOND)])
    audience.fit(published_link())

    with pytest.raises(AssertionError, match="shared between queues"):
        audience.fit(published_link())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((-1,), "deadline_ns=-1"),
        ((0, -1.0), "price=-1"),
        ((0, math.inf), "price=inf"),
        ((0, 1.0, -2.0), "penalty=-2"),
        ((0, 1.0, math.nan), "penalty=nan"),
        ((0, 1.0, 0.0, DIRECT, 0), "count=0"),
    ],
)
def test_terms_out_of_range_are_refused(values: tuple[int, float, float, Path, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Term(*values)


def test_an_audience_without_terms_is_refused() -> None:
    with pytest.raises(ValueError, match="no terms"):
        Audience([])


@pytest.mark.parametrize(
    ("epsilon", "processing_ns", "message"),
    [(0.0, 0, "epsilon=0"), (1.0, 0, "epsilon=1"), (0.1, -1, "processing_ns=-1")],
)
def test_links_out_of_range_are_refused(epsilon: float, processing_ns: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinkModel(LinkDelay(0.1, 0.0), epsilon, processing_ns, 0)
