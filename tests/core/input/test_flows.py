"""Weights, contracts and queues that agree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.account.counters import Counters
from timebound.core.input.bounds import UNBOUNDED
from timebound.core.input.contract import Contract
from timebound.core.input.flows import DEFAULT_FILTER, FILTERS_MAX, TOPICS_REMEMBERED_MAX, Flows
from timebound.core.input.options import EntranceOptions
from timebound.core.input.plan import PAPER_STEP
from timebound.core.input.publisher import InputMessage, Publisher
from timebound.core.input.queues import InputQueue
from timebound.core.input.scheduler import InputScheduler
from timebound.core.input.steps import finish
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import Message
from timebound.topics import matches

MILLISECOND = 1_000_000
QUANTUM_NS = 50_000
# Rounds of 2 ms and no stall: 4 ms of each bound are outside the queues.
OPTIONS = EntranceOptions(quantum_ns=QUANTUM_NS, round_ns_min=2 * MILLISECOND, stall_ns_min=0)
OUTSIDE_NS = 4 * MILLISECOND


class Desk:
    """Flows with their scheduler, and publishers by name."""

    def __init__(self, options: EntranceOptions = OPTIONS) -> None:
        self.scheduler: InputScheduler[InputMessage] = InputScheduler(step=PAPER_STEP)
        self.counters = Counters()
        self.flows = Flows(self.scheduler, options, self.counters)
        self.publishers: dict[str, Publisher] = {}

    def publisher(self, name: str) -> Publisher:
        if name not in self.publishers:
            self.publishers[name] = Publisher()
            self.publishers[name].client_input.name = name
        return self.publishers[name]

    def advertise(self, client: str, topic: str, **terms: int) -> tuple[bool, str]:
        contract = Contract(client, topic, **({"interval_ns": 20 * MILLISECOND} | terms))
        decision = self.flows.advertise(self.publisher(client), contract, 0)
        return decision.accepted, decision.reason

    def push(self, client: str, topic: str) -> InputQueue[InputMessage]:
        """A message of a client, as a connection queues it."""
        publisher = self.publisher(client)
        queue = publisher.queues.get(topic)
        if queue is None:
            queue = self.flows.queue_for(publisher, topic)
        session = Session(client, "", AccessList([]).for_client("", client))
        message = Message(topic, b"", 0, False, 0, client)
        assert self.scheduler.push(queue, InputMessage(publisher, session, message, 0), 1)
        return queue

    def served(self) -> list[str]:
        """All that waits, as it is served: client and topic."""
        served = []
        while (queued := self.scheduler.pop()) is not None:
            served.append(f"{queued.message.publisher} {queued.message.topic}")
        self.scheduler._check()
        return served


def test_weights_of_the_configuration_and_the_default_are_there_from_the_start() -> None:
    weights = (("alarm/#", 7), ("alarm/fire", 9))

    desk = Desk(replace(OPTIONS, default_weight=2, weights=weights))

    assert desk.flows.weights() == {"alarm/fire": 9, "alarm/#": 7, "#": 2}
    assert [desk.flows.weight_of(topic) for topic in ("alarm/fire", "alarm/x", "log")] == [9, 7, 2]


@given(
    st.lists(st.sampled_from(("a/#", "a/+", "a/b", "+/b", "+/+", "+", "a", "a/b/c", "#")), unique=True),
    st.sampled_from(("a", "a/b", "a/c", "b/b", "b/c", "a/b/c", "x/y/z")),
)
def test_the_most_specific_filter_that_matches_decides(filters: list[str], topic: str) -> None:
    desk = Desk()
    for number, topic_filter in enumerate(filters):
        assert desk.flows.set_weight(topic_filter, number + 1, 0).accepted

    def vagueness(topic_filter: str) -> list[int]:
        return [{"#": 2, "+": 1}.get(level, 0) for level in topic_filter.split("/")]

    found = min((one for one in {*filters, "#"} if matches(one, topic)), key=vagueness)
    assert desk.flows.background(topic).name == "\0" + found
    assert desk.flows.weight_of(topic) == (filters.index(found) + 1 if found in filters else 1)


def test_a_weight_that_would_break_a_guarantee_is_refused_and_changes_nothing() -> None:
    desk = Desk()
    assert desk.advertise("press", "t", delay_ns=OUTSIDE_NS + 6 * QUANTUM_NS) == (
        True,
        "flow 't' of client 'press' waits at most 4.150 ms",
    )

    raised = desk.flows.set_weight("log", 900, 0)
    changed = desk.flows.set_weight(DEFAULT_FILTER, 900, 0)

    assert not raised.accepted
    assert not changed.accepted
    assert (changed.broken_client, changed.broken_topic) == ("press", "t")
    assert desk.flows.weights() == {"#": 1}
    assert desk.flows.set_weight(DEFAULT_FILTER, 2, 0).accepted


def test_weights_have_a_limit_and_only_known_ones_are_removed() -> None:
    desk = Desk()
    for number in range(FILTERS_MAX - 1):
        desk.flows.set_weight(f"t{number}", 1, 0)

    with pytest.raises(ValueError, match=r"too many weights are set \(at most 256\)"):
        desk.flows.set_weight("one/more", 1, 0)
    with pytest.raises(ValueError, match="the weight of '#' cannot be removed; set another one"):
        finish(desk.flows.removing_weight("#", []))
    finish(desk.flows.removing_weight("t1", []))
    with pytest.raises(ValueError, match="no weight is set for 't1'; weights exist for 't0', 't2'"):
        finish(desk.flows.removing_weight("t1", []))


def test_a_removed_weight_moves_what_waits_and_closes_its_queues() -> None:
    desk = Desk()
    desk.flows.set_weight("alarm/#", 5, 0)
    for topic in ("alarm/1", "alarm/2", "log"):
        desk.push("a", topic)
    generation = desk.flows.generation

    finish(desk.flows.removing_weight("alarm/#", desk.publishers.values()))

    assert desk.flows.generation == generation + 1
    assert desk.flows.weights() == {"#": 1}
    assert sorted(desk.served()) == ["a alarm/1", "a alarm/2", "a log"]
    assert list(desk.publisher("a").client_input.queues) == ["\0#"]


def test_an_admitted_flow_has_a_topic_a_queue_and_a_policer_until_it_is_released() -> None:
    desk = Desk()
    press = desk.publisher("press")

    assert desk.advertise("press", "alarm/1", weight=4, delay_ns=50 * MILLISECOND)[0]

    queue = desk.push("press", "alarm/1")
    assert (queue.topic.name, queue.topic.weight, queue.topic.quanta_max) == ("alarm/1", 4, 0)
    assert press.policers["alarm/1"].guaranteed_ns == desk.flows.admission.last_bounds[0][1].delay_ns
    assert desk.flows.admission.flow_count() == 1
    desk.served()
    assert desk.flows.unadvertise(press, "press", "alarm/1", 0)
    assert not desk.flows.unadvertise(press, "press", "alarm/1", 0)
    assert (press.flow_queues, press.policers, "alarm/1" in press.queues) == ({}, {}, False)
    assert "alarm/1" not in desk.scheduler.topics
    assert desk.flows.admission.flow_count() == 0


def test_what_waits_of_a_flow_that_is_released_goes_on_as_background() -> None:
    desk = Desk()
    desk.advertise("press", "alarm/1")
    for topic in ("alarm/1", "alarm/1", "log"):
        desk.push("press", topic)

    finish(desk.flows.releasing(desk.publisher("press"), "press"))
    desk.flows.close_queues(desk.publisher("press"))

    assert sorted(desk.served()) == ["press alarm/1", "press alarm/1", "press log"]
    assert desk.publisher("press").client_input.queues == {}
    assert desk.scheduler.topics.keys() == {"\0#"}


def test_one_client_has_a_limited_number_of_flows_and_may_change_them() -> None:
    desk = Desk(replace(OPTIONS, flows_per_client_max=2))

    accepted = [desk.advertise("press", topic)[0] for topic in ("a", "b", "c", "a")]

    assert accepted == [True, True, False, True]
    assert desk.advertise("press", "c")[1].endswith("exceeds the limit of flows (flows_per_client_max=2)")


def test_a_flow_that_raises_its_topics_weight_is_told_from_when_it_counts() -> None:
    desk = Desk()
    desk.advertise("first", "t", weight=2)
    for _ in range(3):
        desk.push("other", "log")
        desk.push("first", "t")

    accepted, reason = desk.advertise("second", "t", weight=9)

    assert accepted
    assert reason.endswith(" once its new weight takes effect, within a cycle")
    assert desk.flows.admission.unsettled() == ["t"]
    desk.served()
    desk.scheduler.serve()  # nothing waits: the change takes effect
    desk.flows.settle(MILLISECOND)
    assert desk.flows.admission.unsettled() == []


def test_a_publisher_remembers_a_limited_number_of_queues_and_all_with_a_contract() -> None:
    desk = Desk()
    desk.advertise("a", "flow")
    publisher = desk.publisher("a")
    for number in range(TOPICS_REMEMBERED_MAX):
        desk.flows.queue_for(publisher, f"t/{number}")

    assert len(publisher.queues) <= TOPICS_REMEMBERED_MAX
    assert publisher.queues["flow"].topic.name == "flow"
    desk.flows.forget_queues(publisher)
    assert list(publisher.queues) == ["flow"]


def test_measured_times_change_every_bound_and_break_guarantees() -> None:
    desk = Desk()
    desk.advertise("press", "t", delay_ns=OUTSIDE_NS + 6 * QUANTUM_NS)
    desk.advertise("patient", "u", delay_ns=500 * MILLISECOND)
    policer = desk.publisher("press").policers["t"]

    assert not desk.flows.has_changed(QUANTUM_NS + QUANTUM_NS // 20, 2 * MILLISECOND, 0)  # noise
    assert desk.flows.has_changed(QUANTUM_NS, 2 * MILLISECOND, 30 * MILLISECOND)
    finish(desk.flows.measuring(QUANTUM_NS, 2 * MILLISECOND, 30 * MILLISECOND))

    assert [flow.topic for flow in desk.flows.broken] == ["t"]
    assert (desk.flows.stall_ns, desk.flows.admission.outside_ns) == (30 * MILLISECOND, 34 * MILLISECOND)
    assert policer.guaranteed_ns == OUTSIDE_NS + 6 * QUANTUM_NS  # what it was guaranteed, not what it gets
    assert desk.counters.alerts == [
        "delay guarantee of flow 't' of client 'press' is broken: "
        "a quantum takes 50.0 us, a round 2.0 ms, a stall 30.0 ms"
    ]
    finish(desk.flows.measuring(2 * QUANTUM_NS, 2 * MILLISECOND, 30 * MILLISECOND))
    assert len(desk.counters.alerts) == 1  # it is known by now
    finish(desk.flows.measuring(QUANTUM_NS, 2 * MILLISECOND, 0))
    assert desk.flows.broken == []


def test_the_report_names_weights_shares_and_bounds() -> None:
    desk = Desk()
    desk.flows.set_weight("alarm/#", 2, 0)
    desk.advertise("press", "t", weight=1, burst=2, size=100, delay_ns=50 * MILLISECOND)

    report = finish(desk.flows.reporting())

    assert (report["quantum_us"], report["round_ms"], report["stop_ms"]) == (50.0, 2.0, 0.0)
    assert report["service_rate"] == 20_000
    assert [(one["topic"], one["weight"], one["share"]) for one in report["topics"]] == [
        ("#", 1, 0.25),
        ("alarm/#", 2, 0.5),
        ("t", 1, 0.25),
    ]
    assert report["clients"] == {"press": 0.25}
    [row] = report["rows"]
    assert (row["topic"], row["client"], row["rate"], row["burst"], row["size"]) == ("t", "press", 50, 2, 100)
    assert row["delay_ms"] == 50
    assert OUTSIDE_NS / MILLISECOND < row["bound_ms"] <= 50
    assert row["kept"]
    assert desk.flows.admission.bounds()[0][1].delay_ns != UNBOUNDED
