from __future__ import annotations

from random import Random

from timebound.client.backoff import DELAY_S_FIRST, DELAY_S_MAX, Backoff


def test_delays_double_up_to_the_limit_and_lose_at_most_half() -> None:
    backoff = Backoff(Random(1))

    delays = [backoff.next_delay_s() for _ in range(12)]

    for number, delay_s in enumerate(delays):
        longest_s = min(DELAY_S_FIRST * 2**number, DELAY_S_MAX)
        assert longest_s / 2 <= delay_s <= longest_s
    assert len(set(delays)) == len(delays)


def test_reset_starts_over() -> None:
    backoff = Backoff(Random(1))
    for _ in range(5):
        backoff.next_delay_s()

    backoff.reset()

    assert backoff.next_delay_s() <= DELAY_S_FIRST


def test_limit_below_the_first_delay_holds_from_the_start() -> None:
    assert Backoff(Random(1), delay_s_max=0.01).next_delay_s() <= 0.01
