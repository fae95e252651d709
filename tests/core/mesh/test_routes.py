"""Which links a copy may take, against all paths tried one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.link import MeshLink
from timebound.core.mesh.message import Copy, InTransit, MeshMessage
from timebound.core.mesh.options import LATE, TREE
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.pressure import EXHAUSTED, FULL
from timebound.core.mesh.routes import HOPS_MAX, Router
from timebound.core.mesh.table import MeshSubscription, SubscriptionTable
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import Message

Links = dict[tuple[str, str], float]
DIAMOND: Links = {("a", "b"): 0.05, ("a", "c"): 0.06, ("b", "d"): 0.05, ("c", "d"): 0.05}


def router_of(links: Links, routing: int, name: str = "a", homes: str = "cd") -> Router:
    """The router of one broker; each home has one subscriber of everything."""
    state = LinkState()
    for (source, target), mean in links.items():
        state.set_link(source, target, LinkDelay(mean, 0.0001))
    table = SubscriptionTable()
    for home in homes:
        table.insert(MeshSubscription(client_id=f"s@{home}", home=home, topic_filter="#"))
    router = Router(name, state, table, routing)
    for (source, target), mean in links.items():
        if source == name:
            delay = LinkDelay(mean, 0.0001)
            queue = LinkQueue(strategy_named("fifo"), delay, messages_max=10, bytes_max=1_000)
            router.links[target] = MeshLink(target, queue, delay, 1.0)
    return router


def copy_of(targets: set[str] | None = None, via: tuple[str, ...] = (), hops: int = 0) -> Copy:
    return Copy(MeshMessage(Message("t", b"", 0, False, 0, "p"), "a", 10), via, hops, targets)


def placed(router: Router, copy: Copy) -> tuple[dict[str, set[str]], set[str]]:
    """The homes that each link would serve, and those that none leads to."""
    transit = InTransit(copy, 0)
    ended = router.place(copy, transit)
    by_link = {one.neighbour: {group.home for group in one.groups} for one in transit.placements}
    for home, places in transit.places.items():
        assert places == sum(home in homes for homes in by_link.values())
    return by_link, {group.home for group in ended}


def test_the_tree_gives_each_home_one_link() -> None:
    assert placed(router_of(DIAMOND, TREE), copy_of()) == ({"b": {"d"}, "c": {"c"}}, set())


def test_late_binding_gives_each_home_all_links_that_lead_nearer() -> None:
    assert placed(router_of(DIAMOND, LATE), copy_of()) == ({"b": {"d"}, "c": {"c", "d"}}, set())


def test_a_copy_goes_only_to_its_targets_and_ends_at_its_home() -> None:
    for routing in (TREE, LATE):
        router = router_of(DIAMOND, routing, name="c")

        assert placed(router, copy_of({"d"})) == ({"d": {"d"}}, set())
        assert placed(router, copy_of({"c"})) == ({}, {"c"})


def test_links_that_are_down_and_brokers_that_were_passed_are_left_out() -> None:
    late = router_of(DIAMOND, LATE)
    assert placed(late, copy_of({"d"}, via=("b",))) == ({"c": {"d"}}, set())

    late.links["c"].is_up = False

    assert placed(late, copy_of({"d"})) == ({"b": {"d"}}, set())
    assert placed(late, copy_of({"c"})) == ({}, {"c"})
    assert (late.leads_to("d"), late.leads_to("c"), late.leads_to("x")) == (True, False, False)


def test_a_copy_that_went_too_far_ends() -> None:
    assert placed(router_of(DIAMOND, LATE), copy_of({"d"}, hops=HOPS_MAX)) == ({}, {"d"})


def test_off_the_tree_of_its_origin_a_copy_follows_the_brokers_own_tree() -> None:
    both_ways = {**DIAMOND, **{(target, source): mean for (source, target), mean in DIAMOND.items()}}
    router = router_of(both_ways, TREE, name="b")

    # From a the tree leads to c directly; b has it after a detour.
    assert placed(router, copy_of({"c"}, hops=2)) == ({"d": {"c"}}, set())


def test_reaches_follow_the_link_state() -> None:
    router = router_of(DIAMOND, LATE)
    before = router.reach(router.links["b"], "d")
    assert router.reach(router.links["b"], "d") is before
    assert before.passed.bit_count() == 2  # b and d

    router.link_state.set_link("b", "d", LinkDelay(0.01, 0.0001))
    placed(router, copy_of())

    assert router.reach(router.links["b"], "d").mean < before.mean
    assert router.audience(router.links["b"], router.table.match(copy_of().what.message)).subscriptions == 2


def test_a_delay_report_adds_up_the_shortest_queues() -> None:
    router = router_of(DIAMOND, LATE)
    router.links["b"].queue_delay_ns = 3e9
    router.links["c"].queue_delay_ns = 1e9
    router.links["c"].set_queue_delays({"d": 1_500_000_000})

    assert router.queue_delays() == {"b": 3_000_000_000, "c": 1_000_000_000, "d": 2_500_000_000}


def test_a_level_is_that_of_the_emptiest_path() -> None:
    late, single = router_of(DIAMOND, LATE), router_of(DIAMOND, TREE)
    for router in (late, single):
        assert router.levels() == {}
        router.links["b"].set_levels({"d": EXHAUSTED})

    assert late.levels() == {}  # c has room
    assert single.levels() == {"d": EXHAUSTED}  # the only link is b
    late.links["c"].set_levels({"d": FULL})
    assert late.levels() == {"d": FULL}


def test_a_message_is_carried_if_one_link_takes_its_size() -> None:
    router = router_of(DIAMOND, LATE)
    router.links["b"].size_max = 100

    assert router.carries("d", 1_000)  # over c
    router.links["c"].size_max = 500
    assert not router.carries("d", 501)
    assert router.carries("d", 500)
    assert router.carries("nowhere", 1_000)  # it waits until a path leads there


links = st.dictionaries(
    st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")).filter(lambda ends: ends[0] != ends[1]),
    st.sampled_from((0.01, 0.02, 0.03, 0.05)),
    min_size=1,
    max_size=14,
)


NOWHERE = (99_000, 0)


def distance(links: Links, source: str, target: str) -> tuple[int, int]:
    """The least sum of means in ms per KB, and of links where sums are equal, by Bellman and Ford."""
    best = {source: (0, 0)}
    for _ in range(5):
        for (start, end), mean in links.items():
            if start in best:
                total, count = best[start]
                best[end] = min(best.get(end, NOWHERE), (total + round(mean * 1_000), count + 1))
    return best.get(target, NOWHERE)


@given(links)
def test_late_binding_uses_exactly_the_neighbours_that_are_nearer(links: Links) -> None:
    if not any(source == "a" for source, _ in links):
        links[("a", "b")] = 0.01
    router = router_of(links, LATE, homes="bcde")

    by_link, ended = placed(router, copy_of())

    for home in "bcde":
        chosen = {neighbour for neighbour, homes in by_link.items() if home in homes}
        own = distance(links, "a", home)
        nearer = {end for start, end in links if start == "a" and distance(links, end, home) < own}
        assert chosen == nearer
        assert (home in ended) == (not nearer)


@given(links)
def test_the_tree_uses_one_link_on_a_shortest_path(links: Links) -> None:
    if not any(source == "a" for source, _ in links):
        links[("a", "b")] = 0.01
    router = router_of(links, TREE, homes="bcde")

    by_link, ended = placed(router, copy_of())

    for home in "bcde":
        chosen = [neighbour for neighbour, homes in by_link.items() if home in homes]
        own = distance(links, "a", home)
        assert len(chosen) == (0 if own == NOWHERE else 1)
        assert (home in ended) == (not chosen)
        for neighbour in chosen:
            total, count = distance(links, neighbour, home)
            assert (total + round(links["a", neighbour] * 1_000), count + 1) == own
