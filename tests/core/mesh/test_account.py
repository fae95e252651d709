"""The account of a mesh: every pair is opened once and ends once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.account.account import Account
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.table import HomeGroup, MeshSubscription
from timebound.core.values.message import Message
from timebound.records import TRACE_FIELDS, Reason
from timebound.terms import Terms

SECOND = 1_000_000_000


def group_of(*deadlines_s: int, last_mile_ns: int = 0) -> HomeGroup:
    """Subscriptions of one home that pay 2 in time and cost 1 otherwise."""
    return HomeGroup(
        0,
        [
            MeshSubscription(
                client_id=f"s{number}",
                home="d",
                topic_filter="t",
                last_mile_ns=last_mile_ns,
                terms=Terms(deadline_ns=seconds * SECOND, price=2.0, penalty=1.0),
            )
            for number, seconds in enumerate(deadlines_s)
        ],
    )


def message(timeout_ns: int = 0) -> Message:
    return Message("t", b"", 0, False, 0, "p", sequence=7, timeout_ns=timeout_ns)


def test_each_subscriber_is_in_time_or_late_by_its_own_deadline() -> None:
    account = MeshAccount()
    group = group_of(10, 20, 0)
    account.open(group)

    account.delivered(message(), group, 100, 2, 15 * SECOND)

    assert (account.matched, account.in_time, account.late) == (3, 2, 1)
    assert (account.earned_micro, account.paid_micro) == (4_000_000, 1_000_000)
    assert (account.open_pairs(), account.open_penalty_micro) == (0, 0)


def test_the_last_mile_and_the_timeout_count() -> None:
    account = MeshAccount()
    near, far = group_of(10), group_of(10, last_mile_ns=1)
    short = message(timeout_ns=5 * SECOND)
    for group in (near, far, near):
        account.open(group)

    account.delivered(message(), near, 100, 1, 10 * SECOND)  # due exactly now is in time
    account.delivered(message(), far, 100, 1, 10 * SECOND)
    account.delivered(short, near, 100, 1, 6 * SECOND)

    assert (account.in_time, account.late) == (1, 2)


def test_what_never_arrived_is_dropped_with_its_penalty_when_the_account_is_closed() -> None:
    account = MeshAccount()
    account.open(group_of(10, 20))

    account.close(Reason.HOPELESS)

    assert account.dropped["hopeless"] == 2
    assert (account.paid_micro, account.open_penalty_micro) == (2_000_000, 0)
    assert account.open_pairs() == 0


def test_a_drop_counts_in_the_account_of_the_brokers_own_clients_too() -> None:
    pairs = Account()
    account = MeshAccount(pairs=pairs)
    group = group_of(10, 20)
    account.open(group)

    account.drop(message(), group, 100, 1, "b", SECOND, Reason.QUEUE_FULL, 2 * SECOND)

    assert account.dropped_total() == account.dropped["queue_full"] == 2
    assert pairs.dropped["queue_full"] == 2


def test_a_trace_has_one_row_per_pair_in_the_order_of_the_fields() -> None:
    account = MeshAccount(is_tracing=True)
    arrived, lost = group_of(10, last_mile_ns=5), group_of(20)
    for group in (arrived, lost):
        account.open(group)

    account.delivered(message(), arrived, 100, 2, SECOND)
    account.drop(message(), lost, 100, 1, "b", 3, Reason.DISCONNECTED, 2 * SECOND)

    names = [name for name, _ in TRACE_FIELDS]
    first, second = (dict(zip(names, row, strict=True)) for row in account.rows)
    assert (first["time_ns"], first["outcome"], first["reason"]) == (SECOND + 5, "in_time", "")
    assert (first["hop"], first["link"], first["sent_ns"]) == (2, "s0", SECOND)
    assert (second["time_ns"], second["outcome"], second["reason"]) == (2 * SECOND, "dropped", "disconnected")
    assert (second["queued_ns"], second["link"], second["sent_ns"]) == (3, "b", 0)
    assert {(row["message_id"], row["publisher"], row["size_bytes"]) for row in (first, second)} == {
        (7, "p", 100)
    }


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 30), min_size=1, max_size=4),
            st.one_of(st.none(), st.integers(0, 40)),  # seconds until it arrives; None: it is dropped
        ),
        max_size=8,
    )
)
def test_totals_are_those_of_the_pairs_one_by_one(published: list[tuple[list[int], int | None]]) -> None:
    account = MeshAccount()
    groups = [(group_of(*deadlines), seconds) for deadlines, seconds in published]
    for group, _ in groups:
        account.open(group)
    in_time = late = dropped = 0
    for (deadlines, seconds), (group, _) in zip(published, groups, strict=True):
        if seconds is None:
            account.drop(message(), group, 10, 1, "b", 0, Reason.HOPELESS, SECOND)
            dropped += len(deadlines)
            continue
        account.delivered(message(), group, 10, 1, seconds * SECOND)
        lates = sum(1 for deadline in deadlines if deadline and seconds > deadline)
        late += lates
        in_time += len(deadlines) - lates

    assert (account.in_time, account.late, account.dropped_total()) == (in_time, late, dropped)
    assert account.earned_micro - account.paid_micro == 2_000_000 * in_time - 1_000_000 * (late + dropped)
    assert (account.open_pairs(), account.open_penalty_micro) == (0, 0)
