"""Reservations on a link: the largest amount of a flow counts, none is overbooked, what is held expires."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.mesh.reservation.resources import LinkResources

CAPACITY = 20


def test_requests_of_a_flow_share_the_largest_amount() -> None:
    link = LinkResources(CAPACITY)

    assert link.hold("f", "1", 8)
    assert link.hold("f", "2", 12)
    assert link.free == 8
    assert link.commit("f", "2", 12)
    assert link.commit("f", "1", 8)
    assert (link.reserved, link.committed("f"), link.flows()) == (12, 12, ["f"])

    assert not link.hold("g", "3", 9)
    assert link.hold("g", "3", 8)
    link.release("f")
    assert (link.reserved, link.flows()) == (8, ["g"])


def test_what_is_held_expires_and_can_be_committed_later_only_if_there_is_room() -> None:
    link = LinkResources(CAPACITY)
    link.hold("f", "1", 15, until_ns=100)

    assert link.expire(99) == []
    assert link.expire(100) == [("f", "1")]
    assert link.reserved == 0
    assert link.commit("f", "1", 15)
    assert not link.commit("g", "2", 15)
    assert link.reserved == 15


requests = st.lists(
    st.tuples(
        st.sampled_from(("hold", "commit", "drop", "release", "expire")),
        st.sampled_from("fg"),
        st.sampled_from("1234"),
        st.integers(1, 15),
        st.integers(0, 30),
    ),
    max_size=40,
)


@given(requests)
def test_it_counts_as_a_naive_list_does(steps: list[tuple[str, str, str, int, int]]) -> None:
    link = LinkResources(CAPACITY)
    held: dict[tuple[str, str], tuple[int, int]] = {}
    committed: dict[str, int] = {}

    def total(without: str = "") -> int:
        flows = {flow for flow, _ in held} | set(committed)
        return sum(amount_of(flow) for flow in flows if flow != without)

    def amount_of(flow: str) -> int:
        return max(
            [committed.get(flow, 0), *[amount for (name, _), (amount, _) in held.items() if name == flow]]
        )

    for what, flow, request, amount, time_ns in steps:
        fits = total(flow) + max(amount, amount_of(flow)) <= CAPACITY
        if what == "hold":
            assert link.hold(flow, request, amount, time_ns) == fits
            if fits:
                held[flow, request] = (amount, time_ns)
        elif what == "commit":
            is_held = (flow, request) in held
            assert link.commit(flow, request, amount) == (is_held or fits)
            if is_held or fits:
                kept, _ = held.pop((flow, request), (amount, 0))
                committed[flow] = max(committed.get(flow, 0), kept)
        elif what == "drop":
            link.release_held(flow, request)
            held.pop((flow, request), None)
        elif what == "release":
            link.release(flow)
            committed.pop(flow, None)
        else:
            gone = sorted(key for key, (_, until_ns) in held.items() if until_ns <= time_ns)
            assert sorted(link.expire(time_ns)) == gone
            for key in gone:
                del held[key]
        assert link.reserved == total() <= CAPACITY
        assert link.flows() == sorted(
            {name for name, _ in held} | {name for name in committed if committed[name]}
        )
