"""Weights and contracts: scheduler, plan and the queues of publishers agree after every change."""

from __future__ import annotations

import pytest

from timebound.config.input import InputConfig, WeightEntry
from timebound.core.input.contract import Contract
from timebound.core.input.scheduler import InputScheduler
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import Message
from timebound.node.input.flows import FILTERS_MAX, TOPICS_REMEMBERED_MAX, Flows
from timebound.node.input.publisher import InputMessage, Publisher
from timebound.units import MILLISECOND

QUANTUM_NS = 50_000


def make(config: InputConfig | None = None) -> tuple[Flows, InputScheduler[InputMessage]]:
    scheduler: InputScheduler[InputMessage] = InputScheduler()
    return Flows(scheduler, config or InputConfig(), QUANTUM_NS), scheduler


def contract(topic: str = "t", client: str = "a", period_ms: int = 10, delay_ms: int = 0) -> Contract:
    return Contract(client, topic, interval_ns=period_ms * MILLISECOND, delay_ns=delay_ms * MILLISECOND)


def waiting(publisher: Publisher, topic: str) -> InputMessage:
    return InputMessage(
        publisher, Session("a", "", AccessList([]).for_client("", "a")), Message(topic, b"", 0, False, 0), 0
    )


def test_most_specific_filter_decides_the_weight() -> None:
    flows, _ = make()
    for topic_filter, weight in (("a/#", 2), ("a/+/c", 3), ("a/b/c", 4), ("+/b/c", 5)):
        flows.set_weight(topic_filter, weight, 0)

    table = {"a/b/c": 4, "a/x/c": 3, "a/x": 2, "a": 2, "x/b/c": 5, "x": 1, "$own/b/c": 1}
    assert {topic: flows.weight_of(topic) for topic in table} == table


def test_weights_of_the_configuration_count_from_the_start() -> None:
    flows, scheduler = make(InputConfig(default_weight=2, weights=(WeightEntry("alarm/#", 10),)))

    assert flows.weights() == {"alarm/#": 10, "#": 2}
    assert [topic.weight for topic in scheduler.topics.values()] == [2, 10]


def test_a_weight_that_changes_reaches_plan_and_scheduler() -> None:
    flows, scheduler = make()
    flows.set_weight("alarm/#", 3, 0)
    generation = flows.generation

    assert flows.set_weight("alarm/#", 7, 0).accepted

    assert flows.weights()["alarm/#"] == 7
    assert scheduler.topics["\0alarm/#"].weight == 7
    assert flows.generation == generation  # messages wait where they did


def test_filters_are_limited() -> None:
    flows, _ = make()
    for number in range(FILTERS_MAX - 1):  # `#` is one
        flows.set_weight(f"t/{number}", 1, 0)

    with pytest.raises(ValueError, match=f"there are {FILTERS_MAX} weights already"):
        flows.set_weight("one/more", 1, 0)


def test_a_filter_that_is_removed_leaves_what_waits_to_the_next_one() -> None:
    flows, scheduler = make()
    flows.set_weight("alarm/#", 3, 0)
    publisher = Publisher()
    queue = flows.queue_for(publisher, "alarm/x")
    for _ in range(3):
        scheduler.push(queue, waiting(publisher, "alarm/x"), 10)

    flows.remove_weight("alarm/#", [publisher], 0)

    assert list(scheduler.topics) == ["\0#"]
    assert [scheduler.pop() is not None for _ in range(4)] == [True, True, True, False]
    scheduler._check()


@pytest.mark.parametrize(("topic_filter", "message"), [("#", "cannot be removed"), ("no/such", "'no/such'")])
def test_a_filter_that_cannot_be_removed_is_named(topic_filter: str, message: str) -> None:
    flows, _ = make()

    with pytest.raises(ValueError, match=message):
        flows.remove_weight(topic_filter, [], 0)


def test_an_admitted_flow_has_a_topic_a_queue_and_a_policer_until_it_is_withdrawn() -> None:
    flows, scheduler = make()
    publisher = Publisher()

    assert flows.advertise(publisher, contract(), 0).accepted
    assert publisher.queues["t"] is publisher.flow_queues["t"]
    assert publisher.policers["t"].guaranteed_ns > 0
    assert "t" in scheduler.topics

    assert flows.unadvertise(publisher, "a", "t", 0)
    assert not flows.unadvertise(publisher, "a", "t", 0)
    assert (publisher.queues, publisher.flow_queues, publisher.policers) == ({}, {}, {})
    assert list(scheduler.topics) == ["\0#"]
    assert flows.admission.flow_count() == 0


def test_flows_of_one_client_are_limited_and_a_known_one_may_change() -> None:
    flows, _ = make(InputConfig(flows_per_client_max=1))
    publisher = Publisher()
    assert flows.advertise(publisher, contract(), 0).accepted

    refused = flows.advertise(publisher, contract("u"), 0)

    assert not refused.accepted
    assert "flows_per_client_max" in refused.reason
    assert flows.advertise(publisher, contract(period_ms=20), 0).accepted


def test_a_publisher_that_leaves_gives_all_back() -> None:
    flows, scheduler = make()
    publisher = Publisher()
    for topic in ("t", "u"):
        assert flows.advertise(publisher, contract(topic), 0).accepted
    flows.queue_for(publisher, "x")

    flows.release(publisher, "a", 0)

    assert (flows.admission.flow_count(), publisher.queues) == (0, {})
    assert scheduler.topics["\0#"].queues_open == 0


def test_a_publisher_of_many_topics_is_remembered_by_its_contracts_and_the_last_ones() -> None:
    flows, _ = make()
    publisher = Publisher()
    assert flows.advertise(publisher, contract(), 0).accepted
    own = publisher.queues["t"]

    for number in range(TOPICS_REMEMBERED_MAX + 1):
        flows.queue_for(publisher, f"x/{number}")

    assert len(publisher.queues) < TOPICS_REMEMBERED_MAX
    assert publisher.queues["t"] is own


def test_slower_measurement_reports_the_flows_it_breaks(caplog: pytest.LogCaptureFixture) -> None:
    flows, _ = make()
    publisher = Publisher()
    assert flows.advertise(publisher, contract(delay_ms=30), 0).accepted

    flows.set_measured(QUANTUM_NS, 6 * MILLISECOND, 0)
    assert [row["kept"] for row in flows.report()["rows"]] == [False]
    assert [flow.topic for flow in flows.broken] == ["t"]
    assert "delay guarantee of flow 't' of client 'a' is broken" in caplog.text

    flows.set_measured(QUANTUM_NS, 4 * MILLISECOND, 0)
    assert [row["kept"] for row in flows.report()["rows"]] == [True]


def test_longer_stall_than_allowed_for_counts_once_it_is_measured() -> None:
    flows, _ = make()
    assert flows.advertise(Publisher(), contract(period_ms=100), 0).accepted
    bounds = [flows.report()["rows"][0]["bound_ms"]]

    for stall_ms in (5, 21, 60, 5):
        flows.set_measured(QUANTUM_NS, 2 * MILLISECOND, stall_ms * MILLISECOND)
        bounds.append(flows.report()["rows"][0]["bound_ms"])

    # A quantum of its own, one of `#` and one just begun; two rounds; 21 ms differ by less than a tenth.
    assert bounds == [24.15, 24.15, 24.15, 64.15, 24.15]


def test_the_report_names_topics_as_people_do_and_adds_up() -> None:
    flows, _ = make(InputConfig(weights=(WeightEntry("alarm/#", 3),)))
    assert flows.advertise(Publisher(), contract(), 0).accepted

    report = flows.report()

    assert [row["topic"] for row in report["topics"]] == ["#", "alarm/#", "t"]
    assert sum(row["share"] for row in report["topics"]) == pytest.approx(1.0)
    assert report["service_rate"] == 20_000
    (row,) = report["rows"]
    assert (row["topic"], row["client"], row["rate"], row["delay_ms"], row["kept"]) == (
        "t",
        "a",
        100.0,
        None,
        True,
    )
    assert list(report["clients"]) == ["a"]
