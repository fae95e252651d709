"""What a simulated broker writes to a client, and when it leaves the client unread."""

from __future__ import annotations

from dataclasses import replace

from timebound.sim.deployment.output import UNREAD_REPLIES_MAX, ServedOutput
from timebound.sim.deployment.served import ServedClient

from .plans import PUBLISHER, SUBSCRIBER, act, numbers, plan, publish, run, subscribe


def test_silent_reader_gets_everything_in_order_when_it_reads_again() -> None:
    messages = [publish(2 + number / 100, number, qos=1) for number in range(1, 21)]

    deployment = run(plan(subscribe(1, "a/#"), act(1.5, "mute", "s"), *messages, act(6, "speak", "s")))

    assert numbers(deployment) == list(range(1, 21))
    assert all(one.time_ns >= 6_000_000_000 for one in deployment.history.arrivals)


def test_client_that_does_not_read_its_answers_is_not_read() -> None:
    # With a full disk no answer is released, and they count.
    slow = replace(PUBLISHER, receive_maximum=65_535)
    messages = [publish(3, number, qos=1) for number in range(1, UNREAD_REPLIES_MAX + 200)]

    deployment = run(
        plan(
            act(2, "disk-fails", "n1"),
            subscribe(1, "a/#"),
            *messages,
            act(8, "disk-works", "n1"),
            clients=(slow, replace(SUBSCRIBER, receive_maximum=65_535)),
        )
    )

    assert deployment.history.counts["publisher slowed"] >= 1
    assert numbers(deployment) == list(range(1, UNREAD_REPLIES_MAX + 200))
    assert not deployment.failures


def test_connection_is_both_sides_of_a_client() -> None:
    deployment = run(plan(publish(2, 1)))

    connections = deployment.nodes["n1"].connections.values()
    assert all(isinstance(one, ServedClient) and isinstance(one, ServedOutput) for one in connections)
