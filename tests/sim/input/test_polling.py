"""The polling broker against one that really looks into every queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.input.scheduler import ClientInput, InputQueue, InputTopic
from timebound.sim.input.polling import PollingServer, QueueKey
from timebound.sim.input.server import Arrival

SEARCH, RELAY, PERIOD = 10, 500, 20_000


def queue(name: str) -> InputQueue[Arrival]:
    return InputQueue(name, ClientInput("c"), InputTopic(name, 1, 0, 0))


QUEUES = {name: queue(name) for name in "abc"}


def look_one_by_one(cycles: list[list[QueueKey]], arrivals: list[Arrival]) -> list[tuple[Arrival, int]]:
    waiting = list(arrivals)
    done = []
    now = position = 0
    period = -1
    while waiting:
        if min(now // PERIOD, len(cycles) - 1) > period:
            period += 1
            position = 0
        cycle = cycles[period]
        here = [a for a in waiting if a.time_ns <= now]
        strays = [a for a in here if ("c", a.queue.name) not in cycle]
        hits = strays or [a for a in here if ("c", a.queue.name) == cycle[position]]
        now += SEARCH
        if hits:
            now += RELAY
            done.append((hits[0], now))
            waiting.remove(hits[0])
        if not strays:
            position = (position + 1) % len(cycle)
    return done


cycles = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), min_size=1, max_size=2)


@given(cycles, st.lists(st.tuples(st.integers(0, 25_000), st.sampled_from("abc")), max_size=12, unique=True))
def test_counted_looks_give_the_same_times_as_real_ones(
    names: list[list[str]], sent: list[tuple[int, str]]
) -> None:
    keys: list[list[QueueKey]] = [[("c", name) for name in cycle] for cycle in names]
    arrivals = [Arrival(time, QUEUES[name]) for time, name in sorted(sent)]

    relayed = PollingServer(keys, period_ns=PERIOD, search_ns=SEARCH, relay_ns=RELAY).relay(arrivals)

    got = sorted(
        (message.arrival.time_ns, message.arrival.queue.name, message.done_ns) for message in relayed
    )
    expected = look_one_by_one(keys, arrivals)
    assert got == sorted((arrival.time_ns, arrival.queue.name, done) for arrival, done in expected)
