"""Input under virtual time: every quantum takes some, weights and contracts decide, requests are answered."""

from __future__ import annotations

from dataclasses import replace

from timebound.config.input import InputConfig, WeightEntry
from timebound.config.values import Config
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.intake import SimIntake
from timebound.units import MILLISECOND, SECOND

from .plans import ONE, PUBLISHER, SUBSCRIBER, act, numbers, plan, publish, run, subscribe

OTHER = replace(PUBLISHER, name="q")
ALL = (PUBLISHER, OTHER, SUBSCRIBER)
# Ten quanta in a turn.
SLOW = InputConfig(turn_s=0.1, quantum_time_s=0.01)
ADVERTISE = "$timebound/advertise/"


def configured(values: InputConfig) -> tuple[Config, ...]:
    return (replace(ONE[0], input=values),)


def flood(deployment_input: InputConfig) -> Deployment:
    """Thirty messages each of two clients at once, on two topics."""
    messages = [publish(2, number, topic="a/x") for number in range(1, 31)]
    messages += [publish(2, number, who="q", topic="a/y") for number in range(31, 61)]
    return run(plan(subscribe(1, "a/#"), *messages, clients=ALL, configs=configured(deployment_input)))


def codes(deployment: Deployment) -> list[int]:
    return [one.code for one in deployment.history.requests]


def test_clients_take_turns_and_a_quantum_takes_its_time() -> None:
    deployment = flood(SLOW)

    order = numbers(deployment)
    assert sorted(order[:20]) == [*range(1, 11), *range(31, 41)]
    times = [one.time_ns for one in deployment.history.arrivals if one.client == "s"]
    assert 500 * MILLISECOND <= times[-1] - times[0] <= 600 * MILLISECOND  # sixty quanta, six turns


def test_weights_of_the_configuration_decide_who_is_served() -> None:
    deployment = flood(replace(SLOW, weights=(WeightEntry("a/y", 4),)))

    first = numbers(deployment)[:25]
    assert sum(number > 30 for number in first) == 20


def test_weight_that_a_client_sets_counts_from_then_on() -> None:
    request = act(1.5, "request", "p", number=99, topic="$timebound/control/weight", payload="a/y 4")
    messages = [publish(2, number, topic="a/x") for number in range(1, 31)]
    messages += [publish(2, number, who="q", topic="a/y") for number in range(31, 61)]

    deployment = run(plan(subscribe(1, "a/#"), request, *messages, clients=ALL, configs=configured(SLOW)))

    assert codes(deployment) == [0]
    assert sum(number > 30 for number in numbers(deployment)[:25]) == 20


def test_flows_are_admitted_or_refused_and_excess_is_policed() -> None:
    config = replace(SLOW, excess="refuse")
    admitted = act(
        1, "request", "p", number=98, topic=ADVERTISE + "a/x", terms={"period": "1s", "size": "99"}
    )
    refused = act(1.2, "request", "q", number=99, topic=ADVERTISE + "a/y", terms={"period": "2ms"})
    wrong = act(1.3, "request", "q", number=97, topic=ADVERTISE + "a/y", terms={"period": "soon"})
    messages = [publish(3 + number / 100, number, qos=1) for number in range(1, 4)]

    deployment = run(plan(admitted, refused, wrong, *messages, clients=ALL, configs=configured(config)))

    assert codes(deployment) == [0, 0x97, 0x83]
    assert [deployment.history.messages[number].code for number in (1, 2, 3)] == [0x10, 0x97, 0x97]
    counts = deployment.history.counts
    assert (counts["refused admission"], counts["refused request"]) == (1, 1)
    assert (counts["policed excess refused"], counts["message with a delay bound"]) == (2, 1)


def test_flow_of_a_lost_client_is_released() -> None:
    admitted = act(
        1, "request", "p", number=98, topic=ADVERTISE + "a/x", terms={"period": "1s", "size": "99"}
    )

    deployment = run(plan(admitted, act(2, "vanish", "p")))

    assert deployment.history.counts["flow of a lost client released"] == 1
    assert deployment.nodes["n1"].broker.entrance.flows.admission.flow_count() == 0


def test_bounds_are_published_when_they_are_asked_for() -> None:
    request = act(2, "request", "p", number=98, topic="$timebound/control/bounds")

    deployment = run(plan(subscribe(1, "$SYS/broker/bounds"), request))

    assert [one.topic for one in deployment.history.arrivals if one.client == "s"] == ["$SYS/broker/bounds"]


def test_what_the_queues_have_no_room_for_stays_in_order_and_is_not_read() -> None:
    deployment = flood(replace(SLOW, queue_quanta_max=16))

    order = numbers(deployment)
    assert [number for number in order if number <= 30] == list(range(1, 31))
    assert [number for number in order if number > 30] == list(range(31, 61))


def test_publisher_that_is_gone_is_forgotten_once_its_messages_are_served() -> None:
    messages = [publish(2, number) for number in range(1, 31)]
    leaving = act(2.05, "vanish", "p")

    deployment = run(plan(subscribe(1, "a/#"), *messages, leaving, configs=configured(SLOW)))

    assert numbers(deployment) == list(range(1, 31))
    intake: SimIntake = deployment.nodes["n1"].intake
    assert len(intake._owners) == len(deployment.nodes["n1"].connections)
    assert not intake._covered
    assert deployment.kernel.now_ns > 30 * SECOND
