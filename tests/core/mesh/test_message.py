"""Telling a second copy of a message from the first."""

from __future__ import annotations

import time

from timebound.core.mesh.message import SEEN_MAX, Seen


def add(seen: Seen, first: int, count: int) -> float:
    """Remember messages of these numbers, all of them new; gives the seconds it took."""
    began_s = time.process_time()
    for number in range(first, first + count):
        assert seen.add("a", 1, number)
    return time.process_time() - began_s


def test_the_last_messages_are_known_and_those_long_before_are_not() -> None:
    seen = Seen()
    add(seen, 0, 3 * SEEN_MAX)

    assert not any(seen.add("a", 1, number) for number in range(2 * SEEN_MAX, 3 * SEEN_MAX))
    assert seen.add("a", 2, 3 * SEEN_MAX - 1)  # the same number of another start, or another broker
    assert seen.add("b", 1, 3 * SEEN_MAX - 1)
    assert seen.add("a", 1, 0)


def test_the_hundred_thousandth_message_costs_no_more_than_the_first() -> None:
    count = 10_000
    first_s = min(add(Seen(), 0, count) for _ in range(5))
    seen = Seen()
    add(seen, 0, 3 * SEEN_MAX // 2)

    later_s = add(seen, 3 * SEEN_MAX // 2, count)

    assert later_s < 20 * first_s  # it was hundreds of times as much
