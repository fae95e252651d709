"""Ways through a federation: trees, wants, shared media, and repetitions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.channel.federation.link_state import CHANNELS_MAX, SEEN_WINDOW, Advert, Federation, SeenEvents

NAMES = "abcdefg"


def federation(
    name: str, edges: list[tuple[str, str]], wants: dict[str, list[tuple[str, str]]]
) -> Federation:
    known = Federation(name)
    for channel in NAMES:
        neighbours = [b if a == channel else a for a, b in edges if channel in (a, b)]
        known.learn(Advert(channel, 1, tuple(neighbours), tuple(wants.get(channel, []))))
    return known


def test_event_goes_only_where_it_is_wanted() -> None:
    known = federation("a", [("a", "b"), ("a", "c")], {"b": [("x", "")], "c": [("", "s")]})

    assert known.next_hops("a", "x", "other") == ("b",)
    assert known.next_hops("a", "y", "s") == ("c",)
    assert known.next_hops("a", "x", "s") == ("b", "c")
    assert known.next_hops("a", "y", "other") == ()


def test_in_a_triangle_the_origin_serves_both_and_nobody_forwards() -> None:
    edges = [("a", "b"), ("b", "c"), ("a", "c")]
    wants = {name: [("x", "")] for name in "abc"}

    assert federation("a", edges, wants).next_hops("a", "x", "s") == ("b", "c")
    assert federation("b", edges, wants).next_hops("a", "x", "s") == ()
    assert federation("c", edges, wants).next_hops("a", "x", "s") == ()


def test_chain_forwards_for_those_behind_it() -> None:
    edges = [("a", "b"), ("b", "c")]
    wants = {"c": [("x", "")]}

    assert federation("a", edges, wants).next_hops("a", "x", "s") == ("b",)
    assert federation("b", edges, wants).next_hops("a", "x", "s") == ("c",)
    assert federation("a", edges, wants).wants_beyond("b") == [("x", "")]
    assert federation("b", edges, wants).wants_beyond("a") == []


def test_edge_counts_only_when_both_ends_say_so() -> None:
    known = Federation("a")
    known.learn(Advert("a", 1, ("b",), ()))
    known.learn(Advert("b", 1, (), (("x", ""),)))
    assert known.next_hops("a", "x", "s") == ()

    known.learn(Advert("b", 2, ("a",), (("x", ""),)))
    assert known.next_hops("a", "x", "s") == ("b",)


def test_older_and_equal_versions_are_no_news() -> None:
    known = Federation("a")

    assert known.learn(Advert("b", 5, (), ()))
    assert not known.learn(Advert("b", 5, ("a",), ()))
    assert not known.learn(Advert("b", 4, ("a",), ()))
    assert known.advert_of("b") == Advert("b", 5, (), ())


def test_shared_medium_passes_one_copy_to_all_who_name_it() -> None:
    known = {}
    for name in "abc":
        known[name] = Federation(name)
        for other in "abc":
            wants = (("x", ""),) if other in "bc" else ()
            known[name].learn(Advert(other, 1, ("$broker",), wants))

    assert known["a"].next_hops("a", "x", "s") == ("$broker",)
    assert known["b"].next_hops("a", "x", "s") == ()
    assert known["b"].wants_from("$broker") == [("x", "")]
    assert known["a"].wants_from("$broker") == []


def test_channel_takes_what_is_wanted_from_a_medium_before_it_has_heard_of_anybody_there() -> None:
    known = Federation("a")
    known.learn(Advert("a", 1, ("$broker", "behind"), (("x", ""),)))
    known.learn(Advert("behind", 1, ("a",), (("y", ""),)))

    assert known.wants_from("$broker") == [("x", ""), ("y", "")]


def test_names_of_media_and_too_many_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="marks shared media"):
        Federation("$a")
    known = Federation("a")
    for number in range(CHANNELS_MAX):
        assert known.learn(Advert(f"c{number}", 1, (), ()))
    assert not known.learn(Advert("one more", 1, (), ()))


all_edges = list(itertools.combinations(NAMES, 2))


@given(
    st.lists(st.sampled_from(all_edges), unique=True),
    st.sets(st.sampled_from(NAMES)),
    st.sampled_from(NAMES),
)
def test_every_wanting_channel_in_reach_gets_exactly_one_copy(
    edges: list[tuple[str, str]], wanting: set[str], origin: str
) -> None:
    wants = {name: [("x", "")] for name in wanting}
    known = {name: federation(name, edges, wants) for name in NAMES}
    reach = {origin}
    while grown := {b for a, b in edges + [(b, a) for a, b in edges] if a in reach} - reach:
        reach |= grown

    received = dict.fromkeys(NAMES, 0)
    on_the_way = [origin]
    while on_the_way:
        node = on_the_way.pop()
        for hop in known[node].next_hops(origin, "x", "s"):
            received[hop] += 1
            on_the_way.append(hop)
            assert ("x", "") in known[node].wants_beyond(hop)

    assert max(received.values()) <= 1
    assert received[origin] == 0
    assert {name for name in wanting if received[name]} == (wanting & reach) - {origin}


def test_seen_lets_each_event_in_once_also_out_of_order() -> None:
    seen = SeenEvents()

    assert [seen.is_new("a", n) for n in (5, 3, 5, 4, 3)] == [True, True, False, True, False]
    assert seen.is_new("b", 5)


def test_seen_forgets_only_what_is_far_behind() -> None:
    seen = SeenEvents()
    for number in range(3 * SEEN_WINDOW):
        assert seen.is_new("a", number)

    assert not seen.is_new("a", 3 * SEEN_WINDOW - 1)
    assert not seen.is_new("a", 0)
    assert len(seen._recent["a"]) <= 2 * SEEN_WINDOW + 1
