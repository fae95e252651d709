"""Whose password is checked next: turns of addresses and names, delays after failures, limits."""

from __future__ import annotations

import pytest

from timebound.node.login import queue as login_queue
from timebound.node.login.queue import (
    ADDRESSES_MAX,
    DELAY_NS_MAX,
    DELAY_NS_MIN,
    FAILURES_FREE,
    FORGET_NS,
    WAIT_NS_MAX,
    WAITING_PER_ADDRESS_MAX,
    Login,
    LoginQueue,
    source_of,
)

Queue = LoginQueue[int]


def push(queue: Queue, address: str, name: str = "u", item: int = 0, now_ns: int = 1) -> Login[int] | None:
    return queue.push(Login(address, name, item, now_ns), now_ns)


def fail(queue: Queue, address: str, now_ns: int, times: int = 1) -> None:
    for _ in range(times):
        push(queue, address, now_ns=now_ns)
        login = queue.pop(now_ns)
        assert login is not None
        queue.done(login, is_right=False, now_ns=now_ns)


def test_addresses_take_turns_whatever_one_of_them_brings() -> None:
    queue: Queue = LoginQueue()
    for number in range(5):
        push(queue, "10.0.0.1", item=number)
    push(queue, "10.0.0.2", item=10)
    push(queue, "10.0.0.3", item=20)

    order = [login.item for _ in range(7) if (login := queue.pop(1)) is not None]

    assert order == [0, 10, 20, 1, 2, 3, 4]


def test_names_of_an_address_take_turns() -> None:
    queue: Queue = LoginQueue()
    for number in range(3):
        push(queue, "10.0.0.1", "admin", number)
    push(queue, "10.0.0.1", "ann", 10)

    order = [login.name for _ in range(4) if (login := queue.pop(1)) is not None]

    assert order == ["admin", "ann", "admin", "admin"]


def test_delay_grows_with_each_failure_up_to_its_maximum() -> None:
    queue: Queue = LoginQueue()
    now_ns = 1
    delays: list[int] = []
    for _ in range(FAILURES_FREE + 10):
        fail(queue, "10.0.0.1", now_ns)
        push(queue, "10.0.0.1", now_ns=now_ns)
        free_ns = now_ns
        login = queue.pop(now_ns)
        if login is None:
            free_ns = queue.next_ns()
            assert queue.pop(free_ns - 1) is None
            login = queue.pop(free_ns)
        assert login is not None
        queue.done(login, is_right=True, now_ns=free_ns)
        delays.append(free_ns - now_ns)
        now_ns = free_ns

    assert delays[:FAILURES_FREE] == [0] * FAILURES_FREE
    assert delays[FAILURES_FREE : FAILURES_FREE + 3] == [DELAY_NS_MIN, 2 * DELAY_NS_MIN, 4 * DELAY_NS_MIN]
    assert delays[-1] == DELAY_NS_MAX


def test_an_address_that_failed_does_not_hold_up_others_and_has_one_check_at_a_time() -> None:
    queue: Queue = LoginQueue()
    fail(queue, "10.0.0.1", 1, FAILURES_FREE + 1)
    push(queue, "10.0.0.1", item=1)
    push(queue, "10.0.0.1", item=2)
    push(queue, "10.0.0.2", item=3)

    first = queue.pop(2)
    assert first is not None
    assert first.item == 3
    assert queue.pop(2) is None
    assert queue.next_ns() == 1 + DELAY_NS_MIN
    second = queue.pop(1 + DELAY_NS_MIN)
    assert second is not None
    assert second.item == 1
    assert queue.pop(1 + DELAY_NS_MIN) is None  # the other waits for what becomes of it


def test_success_does_not_wipe_out_failures_but_time_does() -> None:
    queue: Queue = LoginQueue()
    fail(queue, "10.0.0.1", 1, FAILURES_FREE + 1)
    push(queue, "10.0.0.1")
    later_ns = 1 + DELAY_NS_MIN
    right = queue.pop(later_ns)
    assert right is not None
    queue.done(right, is_right=True, now_ns=later_ns)

    fail(queue, "10.0.0.1", later_ns)
    push(queue, "10.0.0.1", now_ns=later_ns)
    assert queue.pop(later_ns) is None
    assert queue.next_ns() == later_ns + 2 * DELAY_NS_MIN
    much_later_ns = later_ns + FORGET_NS
    push(queue, "10.0.0.1", now_ns=much_later_ns)
    assert queue.pop(much_later_ns) is not None
    assert queue.pop(much_later_ns) is not None


def test_full_address_refuses_its_own_and_takes_nothing_from_others() -> None:
    queue: Queue = LoginQueue()
    for number in range(WAITING_PER_ADDRESS_MAX):
        assert push(queue, "10.0.0.1", "admin", number) is None

    refused = push(queue, "10.0.0.1", "admin", -1)
    crowded_out = push(queue, "10.0.0.1", "ann", 5)

    assert refused is not None
    assert refused.item == -1
    assert crowded_out is not None
    assert (crowded_out.name, crowded_out.item) == ("admin", WAITING_PER_ADDRESS_MAX - 1)
    assert push(queue, "10.0.0.2") is None


def test_who_waited_too_long_is_given_back_once() -> None:
    queue: Queue = LoginQueue()
    fail(queue, "10.0.0.1", 1, FAILURES_FREE + 1)
    push(queue, "10.0.0.1", item=1, now_ns=1)
    push(queue, "10.0.0.1", item=2, now_ns=2)

    assert queue.take_overdue(WAIT_NS_MAX) == []
    assert [login.item for login in queue.take_overdue(WAIT_NS_MAX + 1)] == [1]
    assert [login.item for login in queue.take_overdue(WAIT_NS_MAX + 2)] == [2]
    assert queue.next_ns() == 0
    assert queue.pop(WAIT_NS_MAX + 2) is None


def test_remembered_addresses_are_bounded_and_right_ones_are_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ADDRESSES_MAX <= 100_000
    monkeypatch.setattr(login_queue, "ADDRESSES_MAX", 10)
    queue: Queue = LoginQueue()

    for number in range(30):
        fail(queue, f"10.0.0.{number}", 1)
    push(queue, "10.1.0.1")
    right = queue.pop(1)
    assert right is not None
    queue.done(right, is_right=True, now_ns=1)

    assert queue.addresses() <= 10


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("flight", "flight"),
        ("?", "?"),
    ],
)
def test_an_ipv6_network_counts_as_one(address: str, source: str) -> None:
    assert source_of(address) == source
