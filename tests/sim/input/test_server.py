"""The server of the input scheduler: when each message is through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.input.scheduler import ClientInput, InputScheduler
from timebound.sim.input.server import Arrival, Relayed, SchedulerChange, relay

QUANTUM = 100  # ns
QUANTUM_BYTES = 10


def server(
    topics: dict[str, int], **options: int
) -> tuple[InputScheduler[Arrival], dict[str, ClientInput[Arrival]]]:
    """A scheduler, and one client for each of its topics."""
    scheduler: InputScheduler[Arrival] = InputScheduler(quantum_bytes=QUANTUM_BYTES, **options)
    clients: dict[str, ClientInput[Arrival]] = {}
    for name, weight in topics.items():
        clients[name] = ClientInput(name)
        scheduler.open_queue(clients[name], scheduler.add_topic(name, weight))
    return scheduler, clients


def first_come_first_served(sent: list[tuple[int, int]]) -> list[int]:
    """When each message of (time, quanta) is through at a server that never idles while one waits."""
    done = []
    free_ns = 0
    for time_ns, quanta in sent:
        free_ns = max(free_ns, time_ns) + quanta * QUANTUM
        done.append(free_ns)
    return done


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 4)), max_size=30).map(sorted))
def test_one_queue_is_served_first_come_first_served(sent: list[tuple[int, int]]) -> None:
    scheduler, clients = server({"t": 1})
    queue = clients["t"].queues["t"]

    relayed = relay(
        scheduler, [Arrival(time, queue, size=quanta * QUANTUM_BYTES) for time, quanta in sent], QUANTUM
    )

    assert [message.done_ns for message in relayed] == first_come_first_served(sent)
    assert [message.arrival.time_ns for message in relayed] == [time for time, _ in sent]


@given(st.lists(st.tuples(st.integers(0, 3_000), st.sampled_from("abc")), max_size=30).map(sorted))
def test_the_server_never_idles_while_a_message_waits(sent: list[tuple[int, str]]) -> None:
    scheduler, clients = server({"a": 3, "b": 2, "c": 1})
    arrivals = [Arrival(time, clients[name].queues[name]) for time, name in sent]

    relayed = relay(scheduler, arrivals, QUANTUM)

    # Which of them goes first is the scheduler's choice; when one is through is not.
    assert [message.done_ns for message in relayed] == first_come_first_served(
        [(time, 1) for time, _ in sent]
    )
    assert sorted((message.arrival.time_ns, message.arrival.queue.name) for message in relayed) == sent


def test_a_message_that_arrives_as_a_quantum_begins_still_gets_it() -> None:
    scheduler, clients = server({"t": 1})
    queue = clients["t"].queues["t"]

    relayed = relay(scheduler, [Arrival(0, queue), Arrival(QUANTUM, queue)], QUANTUM)

    assert [message.done_ns for message in relayed] == [QUANTUM, 2 * QUANTUM]
    assert [message.delay_ns for message in relayed] == [QUANTUM, QUANTUM]


def test_a_change_applies_at_its_time() -> None:
    scheduler, clients = server({"t": 1})
    queue = clients["t"].queues["t"]
    seen: list[int] = []
    change = SchedulerChange(150, lambda: seen.append(3 - len(queue)))

    relay(scheduler, [Arrival(0, queue), Arrival(0, queue), Arrival(0, queue), change], QUANTUM)

    assert seen == [2]  # of three; at 150 ns the second quantum is under way


def test_events_out_of_order_are_refused() -> None:
    scheduler, clients = server({"t": 1})
    queue = clients["t"].queues["t"]

    with pytest.raises(ValueError, match="event at 5 ns comes after one at 10 ns"):
        relay(scheduler, [Arrival(10, queue), Arrival(5, queue)], QUANTUM)


def test_a_message_that_the_queue_refuses_ends_the_run() -> None:
    scheduler, clients = server({"t": 1}, client_quanta_max=2)
    queue = clients["t"].queues["t"]

    with pytest.raises(ValueError, match="client 't' exceeds client_quanta_max=2"):
        relay(scheduler, [Arrival(0, queue)] * 3, QUANTUM)


def test_nothing_to_relay_gives_nothing() -> None:
    scheduler, _ = server({"t": 1})

    assert relay(scheduler, [], QUANTUM) == []


def test_the_delay_counts_from_the_arrival() -> None:
    _, clients = server({"t": 1})

    assert Relayed(Arrival(40, clients["t"].queues["t"]), 100).delay_ns == 60
