"""Advertisements: brokers agree in the end, whatever the order in which they hear of things."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.mesh import flooding
from timebound.core.mesh.flooding import LinkStateAdvertisement, Replica
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.table import MeshSubscription, SubscriptionTable
from timebound.core.values.delay import LinkDelay
from timebound.terms import Terms
from timebound.version import is_compiled

NAMES = ("a", "b", "c")


def replica(name: str, started_ns: int = 1) -> Replica:
    return Replica(name, LinkState(), SubscriptionTable(), started_ns)


def state(of: Replica) -> tuple[list[object], list[object]]:
    links = [
        (source, target, of.link_state.delay(source, target).mean_s_per_kb)  # type: ignore[union-attr]  # it is there
        for source in of.link_state.brokers()
        for target in of.link_state.neighbours(source)
    ]
    subscriptions = sorted(
        (one.client_id, one.home, one.price, one.deadline_ns) for one in of.table.subscriptions()
    )
    return list(links), list(subscriptions)


def test_what_is_newer_is_taken_over_and_passed_on_once() -> None:
    home, other = replica("a"), replica("b")
    advertisement = home.subscribe(
        MeshSubscription(
            client_id="s", home="a", topic_filter="t", terms=Terms(deadline_ns=5, price=2.0, penalty=1.0)
        )
    )

    assert other.receive(advertisement)
    assert not other.receive(advertisement)

    assert state(other) == state(home)


def test_a_withdrawn_subscription_does_not_come_back() -> None:
    home, other = replica("a"), replica("b")
    first = home.subscribe(MeshSubscription(client_id="s", home="a", topic_filter="t"))
    end = home.unsubscribe("s", "t")

    assert other.receive(end)
    assert not other.receive(first)

    assert len(other.table) == 0


def test_a_client_that_moved_is_not_lost_with_its_old_home() -> None:
    old, new, other = replica("a"), replica("b"), replica("c")
    other.receive(old.subscribe(MeshSubscription(client_id="s", home="a", topic_filter="t")))
    other.receive(new.subscribe(MeshSubscription(client_id="s", home="b", topic_filter="t")))

    other.receive(old.unsubscribe("s", "t"))

    assert other.table.home_of("s", "t") == "b"


def test_a_restarted_owner_is_believed() -> None:
    other = replica("b")
    old = replica("a", started_ns=1)
    for mean in (0.1, 0.2, 0.3):
        other.receive(old.set_link("b", LinkDelay(mean, 0.0)))

    other.receive(replica("a", started_ns=2).set_link("b", LinkDelay(0.5, 0.0)))

    delay = other.link_state.delay("a", "b")
    assert delay is not None
    assert delay.mean_s_per_kb == 0.5


def test_a_snapshot_brings_a_newcomer_up_to_date() -> None:
    home, newcomer = replica("a"), replica("c")
    home.set_link("b", LinkDelay(0.1, 0.0))
    home.subscribe(MeshSubscription(client_id="s", home="a", topic_filter="t"))
    home.unsubscribe("s", "t")

    for advertisement in home.snapshot():
        newcomer.receive(advertisement)

    assert state(newcomer) == state(home)


def opaque(owner: str, count: int, wire: bytes = b"x") -> LinkStateAdvertisement:
    """A fact of a kind that is not known here; without content it is a withdrawal."""
    return LinkStateAdvertisement((7, owner, "s", "t"), (1, count), wire=wire)


def test_what_is_not_understood_is_kept_and_passed_on_until_it_is_withdrawn() -> None:
    other = replica("b")
    home = replica("a")
    other.receive(home.subscribe(MeshSubscription(client_id="s", home="a", topic_filter="t")))

    assert other.receive(opaque("a", 2))
    assert not other.receive(opaque("a", 1, b"older"))
    assert [one.wire for one in other.snapshot() if one.is_opaque()] == [b"x"]

    assert other.receive(opaque("a", 3, b""))
    assert [one.is_withdrawal() for one in other.snapshot() if one.is_opaque()] == [True]
    assert other.table.home_of("s", "t") == "a", "it has the name of a subscription, and is none"


def test_only_so_much_that_is_not_understood_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    if is_compiled():
        pytest.skip("compiled code holds its constants")
    monkeypatch.setattr(flooding, "OPAQUE_MAX", 2)
    other = replica("b")
    for owner in "xyz":
        assert other.receive(opaque(owner, 1)) == (owner != "z")
    other.forget("x")

    assert other.receive(opaque("z", 1))
    assert sorted(one.key[1] for one in other.snapshot()) == ["y", "z"]


def test_what_was_forgotten_is_believed_again_when_it_is_heard_again() -> None:
    home, other = replica("a"), replica("b")
    said = [
        home.set_link("b", LinkDelay(0.1, 0.0)),
        home.subscribe(MeshSubscription(client_id="s", home="a", topic_filter="t")),
    ]
    for one in said:
        other.receive(one)

    other.forget("a")
    assert state(other) == ([], [])
    assert "a" not in other.owners()

    assert [other.receive(one) for one in said] == [True, True]
    assert state(other) == state(home)


def test_a_broker_advertises_only_its_own() -> None:
    with pytest.raises(AssertionError, match="its own"):
        replica("a").subscribe(MeshSubscription(client_id="s", home="b", topic_filter="t"))


changes = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(("link", "cut", "join", "leave")), st.integers(1, 3)),
    max_size=20,
)


@given(changes, st.integers(0, 1_000))
def test_all_brokers_agree_in_the_end(wanted: list[tuple[str, str, int]], seed: int) -> None:
    replicas = {name: replica(name) for name in NAMES}
    made: list[LinkStateAdvertisement] = []
    for name, what, number in wanted:
        owner = replicas[name]
        target = NAMES[(NAMES.index(name) + 1) % 3]
        if what == "link":
            made.append(owner.set_link(target, LinkDelay(number / 10, 0.0)))
        elif what == "cut":
            made.append(owner.set_link(target, None))
        elif what == "join":
            made.append(
                owner.subscribe(
                    MeshSubscription(
                        client_id=f"{name}{number}", home=name, topic_filter="t", terms=Terms(price=number)
                    )
                )
            )
        else:
            made.append(owner.unsubscribe(f"{name}{number}", "t"))
    random = Random(seed)

    for one in replicas.values():
        heard = made * 2  # everything comes twice, in any order
        random.shuffle(heard)
        for advertisement in heard:
            one.receive(advertisement)

    # A broker that only ever lost its links may be known to some by name alone.
    assert state(replicas["a"]) == state(replicas["b"]) == state(replicas["c"])


def test_a_broker_that_started_again_owns_only_what_it_advertised_since() -> None:
    before, after, other = replica("a", 1), replica("a", 2), replica("b")
    old = before.subscribe(MeshSubscription(client_id="s", home="a", topic_filter="old"))
    other.receive(old)
    other.receive(before.set_link("b", LinkDelay(0.1, 0.0)))

    assert other.receive(after.subscribe(MeshSubscription(client_id="s", home="a", topic_filter="new")))

    assert [one.topic_filter for one in other.table.subscriptions()] == ["new"]
    assert other.link_state.neighbours("a") == []
    assert not other.receive(old)


def test_what_others_remember_of_an_earlier_run_is_not_believed_by_its_owner() -> None:
    before, after = replica("a", 1), replica("a", 2)
    old = before.set_link("b", LinkDelay(0.1, 0.0))

    assert not after.receive(old)

    assert after.link_state.neighbours("a") == []


def test_a_broker_whose_clock_went_back_advertises_itself_anew() -> None:
    before, after, other = replica("a", 9), replica("a", 3), replica("b")
    old = before.subscribe(MeshSubscription(client_id="s", home="a", topic_filter="old"))
    other.receive(old)
    after.subscribe(MeshSubscription(client_id="s", home="a", topic_filter="new"))
    after.receive(old)

    for advertisement in after.readvertise():
        assert other.receive(advertisement)

    assert after.started_ns() == 10
    assert [one.topic_filter for one in other.table.subscriptions()] == ["new"]
