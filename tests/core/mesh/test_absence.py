"""Brokers out of reach: gone or cut off, and forgotten when that has lasted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.mesh.absence import CUT_OFF_TIMES, Absence
from timebound.core.mesh.flooding import Replica
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.table import MeshSubscription, SubscriptionTable
from timebound.core.values.delay import LinkDelay

HOUR = 3_600_000_000_000
FAST = LinkDelay(0.001, 1e-8)
NAMES = "abcde"


class View:
    """What broker `a` knows of a line a - b - c - d, all of which say something."""

    def __init__(self, *links: str, forget_after_ns: int = HOUR) -> None:
        self.replica = Replica("a", LinkState(), SubscriptionTable(), 1)
        self.owners = {name: Replica(name, LinkState(), SubscriptionTable(), 1) for name in NAMES}
        self.owners["a"] = self.replica
        self.absence = Absence(self.replica, forget_after_ns)
        for source, target in links:
            self.link(source, target)
            self.link(target, source)
            self.subscribe(source)
            self.subscribe(target)

    def link(self, source: str, target: str, delay: LinkDelay | None = FAST) -> None:
        self.replica.receive(self.owners[source].set_link(target, delay))

    def subscribe(self, home: str) -> None:
        wanted = MeshSubscription(client_id=f"s-{home}", home=home, topic_filter="t")
        self.replica.receive(self.owners[home].subscribe(wanted))

    def homes(self) -> list[str]:
        return sorted({one.home for one in self.replica.table.subscriptions()} - {"a"})


def test_who_can_be_reached_is_never_forgotten() -> None:
    view = View("ab", "bc")

    assert view.absence.patrol(0) == []
    assert view.absence.patrol(1_000 * HOUR) == []
    assert (view.absence.gone(), view.absence.cut_off()) == ([], [])


def test_a_broker_without_links_is_gone_and_forgotten_in_time() -> None:
    view = View("ab", "bc")
    view.link("b", "c", None)  # its neighbour says so; the link back is its own to withdraw, and it cannot

    assert view.absence.patrol(5) == []
    assert (view.absence.gone(), view.absence.cut_off(), view.absence.since_ns("c")) == (["c"], [], 5)
    assert view.absence.patrol(4 + HOUR) == []
    assert view.absence.patrol(5 + HOUR) == ["c"]
    assert view.homes() == ["b"]
    assert (view.absence.gone(), view.absence.since_ns("c")) == ([], 0)
    assert view.replica.link_state.delay("c", "b") is None


def test_brokers_behind_a_link_that_failed_are_cut_off_and_kept_longer() -> None:
    view = View("ab", "bc", "cd")
    view.link("b", "c", None)

    assert view.absence.patrol(0) == []
    assert (view.absence.gone(), view.absence.cut_off()) == ([], ["c", "d"])
    assert view.absence.patrol(2 * HOUR) == []
    assert view.absence.patrol(CUT_OFF_TIMES * HOUR) == ["c", "d"]
    assert view.homes() == ["b"]


def test_who_comes_back_in_between_starts_anew() -> None:
    view = View("ab", "bc")
    view.link("b", "c", None)
    view.absence.patrol(0)
    view.link("b", "c")
    view.absence.patrol(HOUR - 1)
    view.link("b", "c", None)

    assert view.absence.patrol(HOUR) == []
    assert view.absence.patrol(2 * HOUR) == ["c"]


def test_without_a_time_nobody_is_forgotten() -> None:
    view = View("ab", "bc", forget_after_ns=0)
    view.link("b", "c", None)

    assert view.absence.patrol(0) == view.absence.patrol(1_000 * HOUR) == []
    assert view.absence.gone() == ["c"]


pairs = st.sets(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda one: one[0] != one[1])
)


@given(pairs)
def test_each_broker_is_reached_gone_or_cut_off(links: set[tuple[str, str]]) -> None:
    view = View("ab", "bc", "cd", "de")
    for source in NAMES:
        for target in NAMES:
            if source != target:
                view.link(source, target, FAST if (source, target) in links else None)
    view.absence.patrol(0)

    reached, before = {"a"}, set[str]()
    while reached != before:
        before = set(reached)
        reached |= {target for source, target in links if source in before}
    absent = set(NAMES) - reached
    linked = {target for _, target in links}
    assert set(view.absence.gone()) == absent - linked
    assert set(view.absence.cut_off()) == absent & linked
