"""Simulated clients keep to the standard: they resend, forget, and complain about the broker."""

from __future__ import annotations

from dataclasses import replace

from timebound.sim.deployment.clients import SimClient
from timebound.sim.deployment.script import ClientSetting
from timebound.wire.codec import encode
from timebound.wire.packets import Ack, Connack, Publish

from .plans import PUBLISHER, SUBSCRIBER, act, numbers, plan, publish, run, subscribe


def test_unacknowledged_message_is_sent_again_with_dup() -> None:
    slow = replace(PUBLISHER, latency_ns=600_000_000)
    deployment = run(
        plan(
            subscribe(1, "a/#"),
            publish(4, 1, qos=2),
            act(4.7, "vanish", "p"),
            act(6, "connect", "p"),
            clients=(slow, SUBSCRIBER),
        )
    )

    assert deployment.history.counts["publisher resends"] == 1
    assert numbers(deployment) == [1]
    assert not deployment.failures


def test_clean_start_forgets_what_was_not_acknowledged() -> None:
    slow = replace(PUBLISHER, latency_ns=600_000_000)
    deployment = run(
        plan(
            publish(4, 1, qos=2),
            act(4.7, "vanish", "p"),
            act(6, "connect", "p", clean=True),
            clients=(slow, SUBSCRIBER),
        )
    )

    assert deployment.history.counts["publisher resends"] == 0
    assert deployment.history.messages[1].acked_ns == -1


def test_messages_above_the_brokers_receive_maximum_wait() -> None:
    deployment = run(plan(subscribe(1, "a/#"), *[publish(2, number, qos=1) for number in range(1, 6)]))
    client: SimClient = deployment.clients["p"]

    client._server_maximum = 1
    client.publish(8, {"topic": "a/x", "qos": 1})
    client.publish(9, {"topic": "a/x", "qos": 1})

    assert len(client._sending) == 1
    assert len(client._waiting) == 1


def test_second_connection_takes_over_and_what_the_first_still_gets_is_not_read() -> None:
    deployment = run(plan(subscribe(1, "a/#"), act(2, "connect", "s"), publish(3, 1, qos=1)))

    assert deployment.history.counts["take-over"] == 1
    assert numbers(deployment) == [1]
    assert not deployment.failures


def complaints(*packets: Publish | Ack | Connack, setting: ClientSetting = SUBSCRIBER) -> list[str]:
    """What a connected client says about packets of its broker."""
    deployment = run(plan(clients=(setting,)))
    client = deployment.clients["s"]
    for packet in packets:
        client.data_received(encode(packet, 5))
    return client.violations


def test_client_complains_of_what_the_standard_forbids() -> None:
    assert complaints() == []
    assert complaints(Connack(False, 0)) == ["sent CONNACK twice"]
    first, second = Publish("a", b'{"id": 1}', 2, packet_id=5), Publish("a", b'{"id": 2}', 2, packet_id=5)
    assert complaints(first, second) == ["used packet id 5 again before PUBCOMP"]
    few = replace(SUBSCRIBER, receive_maximum=1)
    other = Publish("a", b'{"id": 2}', 2, packet_id=6)
    assert complaints(first, other, setting=few) == ["exceeded the Receive Maximum of 1"]
    small = replace(SUBSCRIBER, packet_size_max=20)
    assert complaints(Publish("a" * 30, b""), setting=small)[0].startswith("sent what cannot be read")


def test_lost_answer_to_connect_makes_the_session_unsure() -> None:
    once = run(plan(clients=(SUBSCRIBER,)))
    twice = run(plan(act(0.001, "connect", "s"), clients=(SUBSCRIBER,)))

    assert once.history.unsure == set()
    assert twice.history.unsure == {("s", 1)}
    assert not twice.failures


def test_client_that_renews_asks_again_for_what_the_broker_has_lost() -> None:
    flow = {"period": "100ms", "size": "100"}
    renewing = (replace(PUBLISHER, renews=True), replace(SUBSCRIBER, renews=True, expiry_s=0))
    actions = (
        subscribe(1, "a/#"),
        subscribe(1.1, "b/#"),
        act(1.2, "unsubscribe", "s", topic_filter="b/#", name=None),
        act(1.3, "request", "p", number=90, topic="$timebound/advertise/a/x", terms=flow),
        act(2, "crash", "n1"),
        act(3, "restart", "n1"),
        publish(6, 1, qos=1),
        publish(6.1, 2, qos=1, topic="b/x"),
    )

    deployment = run(plan(*actions, clients=renewing))
    forgetful = run(plan(*actions, clients=(PUBLISHER, replace(SUBSCRIBER, expiry_s=0))))

    assert numbers(deployment) == [1]
    assert numbers(forgetful) == []
    assert deployment.history.counts["message with a delay bound"] == 1
    assert not deployment.failures


def test_client_that_renews_leaves_a_session_as_it_is() -> None:
    deployment = run(
        plan(
            subscribe(1, "a/#"),
            act(2, "crash", "n1"),
            act(3, "restart", "n1"),
            publish(6, 1, qos=1),
            clients=(PUBLISHER, replace(SUBSCRIBER, renews=True)),
        )
    )

    assert numbers(deployment) == [1]
    assert len([one for one in deployment.history.subscriptions if one.client == "s"]) == 1
