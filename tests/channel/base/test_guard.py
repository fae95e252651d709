"""Guards: whoever lets go of the lock tidies up, and who may not wait leaves it to them."""

from __future__ import annotations

from threading import Thread

from tests.channel.doubles import LIMIT_S

from timebound.channel.base.guard import Guard


def in_another_thread(guard: Guard) -> bool:
    """Whether another thread would get the lock just now."""
    found: list[bool] = []

    def try_it() -> None:
        found.append(guard.acquire_nowait())
        if found[0]:
            guard.release()

    thread = Thread(target=try_it)
    thread.start()
    thread.join(LIMIT_S)
    return found[0]


def test_every_way_out_tidies_up_without_the_lock() -> None:
    free: list[bool] = []
    guard = Guard(lambda: free.append(in_another_thread(guard)))

    with guard:
        assert free == []
    with guard, guard:
        pass

    # Of two inside each other, the inner one lets go of nothing yet.
    assert free == [True, False, True]


def test_nobody_gets_the_lock_to_tidy_up_while_somebody_works_under_it() -> None:
    guard = Guard(lambda: None)

    with guard:
        assert not guard.acquire_nowait()
        assert not in_another_thread(guard)

    assert guard.acquire_nowait()
    assert not in_another_thread(guard)
    guard.release()
    assert in_another_thread(guard)
