"""Whole brokers under virtual time: what clients see over links, crashes and cuts, and that runs repeat."""

from __future__ import annotations

from timebound.records import Reason
from timebound.sim.deployment.deployment import Deployment

from .plans import (
    FAR,
    LINK,
    PUBLISHER,
    SUBSCRIBER,
    TWO,
    act,
    calm,
    numbers,
    plan,
    publish,
    run,
    subscribe,
)


def test_messages_of_each_qos_arrive_with_it() -> None:
    deployment = calm()

    assert [one.qos for one in deployment.history.arrivals if one.client == "s"] == [0, 1, 2, 0, 1, 2]


def test_messages_cross_a_link_between_brokers() -> None:
    messages = [publish(3 + number / 10, number + 1, qos=number % 3) for number in range(6)]

    deployment = run(plan(subscribe(1, "a/#"), *messages, clients=(PUBLISHER, FAR), configs=TWO, links=LINK))

    assert numbers(deployment) == [1, 2, 3, 4, 5, 6]
    assert not deployment.failures


def test_acknowledged_message_survives_the_crash_of_the_broker() -> None:
    gone = (act(1.5, "disconnect", "s"), act(2.5, "crash", "n1"), act(3, "restart", "n1"))

    deployment = run(plan(subscribe(1, "a/#"), publish(2, 1, qos=1), *gone, act(4, "connect", "s")))

    assert numbers(deployment) == [1]
    assert deployment.history.counts["restart with queued messages"] == 1
    assert not deployment.failures


def test_message_that_was_not_committed_is_lost_and_sent_again_by_its_publisher() -> None:
    crash = (act(8.02, "crash", "n1"), act(9, "restart", "n1"))
    slow = plan(subscribe(4, "a/#"), publish(8, 1, qos=1), *crash, commit_delay_ns=10**9)

    deployment = run(slow)

    assert numbers(deployment)[-1] == 1
    assert deployment.history.counts["crash before a commit"] == 1
    assert deployment.history.counts["publisher resends"] == 1
    assert not deployment.failures


def test_what_is_published_during_a_cut_arrives_after_it() -> None:
    cut = (act(3, "cut", "n1-n2"), act(6, "mend", "n1-n2"))

    deployment = run(
        plan(
            subscribe(1, "a/#"),
            publish(4, 1, qos=1),
            *cut,
            clients=(PUBLISHER, FAR),
            configs=TWO,
            links=LINK,
        )
    )

    [arrival] = [one for one in deployment.history.arrivals if one.client == "s"]
    assert arrival.number == 1
    assert arrival.time_ns > 6_000_000_000
    assert not deployment.failures


def test_silent_client_is_given_up_and_its_will_published() -> None:
    mute = SUBSCRIBER.__class__("m", "n1", keep_alive_s=2, will={"number": 90, "topic": "a/will", "qos": 1})

    deployment = run(
        plan(subscribe(1, "a/#"), act(2, "mute", "m"), publish(9, 1), clients=(PUBLISHER, SUBSCRIBER, mute))
    )

    assert numbers(deployment) == [90, 1]
    assert deployment.history.counts["keep alive timed out"] == 1


def test_slow_link_drops_what_cannot_arrive_in_time() -> None:
    slow = SUBSCRIBER.__class__("s", "n1", rate_bytes_per_s=1_000)
    messages = [publish(2 + number / 100, number + 1, size=1_000) for number in range(10)]

    deployment = run(plan(subscribe(1, "a/#", deadline="3s"), *messages, clients=(PUBLISHER, slow)))

    dropped = sum(deployment.nodes["n1"].broker.account.dropped.values())
    assert 1 <= len(numbers(deployment)) < 10
    assert dropped == 10 - len(numbers(deployment))
    assert not deployment.failures


def test_same_plan_gives_the_same_hash() -> None:
    wanted = plan(subscribe(1, "a/#"), publish(2, 1, qos=2), publish(2, 2, qos=1))

    first, second = run(wanted), run(wanted)
    other = run(plan(subscribe(1, "a/#"), publish(2, 1, qos=2), publish(2.001, 2, qos=1)))

    assert first.history.digest() == second.history.digest()
    assert first.history.digest() != other.history.digest()


def test_error_of_a_broker_is_a_failure_of_the_run() -> None:
    deployment = Deployment(plan(publish(2, 1), act(3, "vanish-wrongly", "p")), [])

    [failure] = deployment.run()

    assert failure.checker == "crash"
    assert "AssertionError: vanish-wrongly" in failure.text


def test_outcomes_of_the_trace_are_joined_to_the_messages_of_clients() -> None:
    deployment = calm()

    told = [(one.number, one.client, one.outcome) for one in deployment.history.outcomes if one.client == "s"]
    assert sorted(told) == [(number, "s", "in_time") for number in range(1, 7)]
    assert not deployment.history.counts[f"dropped: {Reason.DISCONNECTED.value}"]


def test_a_deployment_is_at_rest_while_nothing_is_impaired_or_waits() -> None:
    deployment = run(
        plan(subscribe(1, "a/#"), publish(3, 1, qos=1), clients=(PUBLISHER, FAR), configs=TWO, links=LINK)
    )
    assert deployment.is_at_rest()

    for kind in ("cut", "slow", "dead"):
        deployment._act_on_link(frozenset(("n1", "n2")), kind, {"factor": 2.0})
        assert not deployment.is_at_rest(), kind
        deployment._act_on_link(frozenset(("n1", "n2")), "mend", {})
        assert deployment.is_at_rest(), kind
    deployment.nodes["n2"].crash()
    assert not deployment.is_at_rest()
