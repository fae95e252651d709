"""Requests about the input: what they may say, who may send them, and what they change."""

from __future__ import annotations

import json

import pytest

from timebound.core.broker import Broker
from timebound.core.input.options import EntranceOptions
from timebound.core.input.publisher import Publisher
from timebound.core.input.requests import (
    ADVERTISE_PREFIX,
    BOUNDS_REQUEST,
    BOUNDS_TOPIC,
    WEIGHT_TOPIC,
    InputRequest,
    is_one,
    read_contract,
)
from timebound.core.input.steps import finish
from timebound.core.sessions.session import Session
from timebound.core.values.access import ALL, AccessList, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.errors import ProtocolError
from timebound.units import SECOND

PERIOD = ("period", "1s")


class Desk:
    """A broker that is asked, with a clock of its own."""

    def __init__(self, rules: list[AccessRule] | None = None, **options: int) -> None:
        self.broker = Broker(
            BrokerLimits(),
            AccessList(rules or []),
            entrance=EntranceOptions(**options),  # type: ignore[arg-type]
        )
        self.now_ns = SECOND
        self.clients: dict[str, tuple[Publisher, Session]] = {}
        self.note = ""

    def client(self, name: str, source: str = "") -> tuple[Publisher, Session]:
        if name not in self.clients:
            number = len(self.clients) + 1
            session, _ = self.broker.connect(name, "", True, 0, 10, None, number, self.now_ns)
            publisher = Publisher()
            publisher.source = source or name
            self.broker.entrance.join(name, publisher)
            self.clients[name] = (publisher, session)
        return self.clients[name]

    def ask(self, name: str, topic: str, *properties: tuple[str, str], payload: bytes = b"") -> str:
        """Return the answer, or the code of the refusal and its reason."""
        publisher, session = self.client(name)
        entrance = self.broker.entrance
        request = InputRequest(entrance, publisher, session, topic, properties, payload)
        entrance.jobs.add(request)
        self.work()
        assert request.is_done
        self.note = request.note
        error = request.error
        if isinstance(error, ProtocolError):
            return f"{error.reason_code:#x} {error}"
        assert error is None
        return request.answer

    def work(self) -> None:
        """Take all steps."""
        while len(self.broker.entrance.jobs) > 0:
            self.broker.continue_jobs(self.now_ns)

    def topics(self) -> list[str]:
        return [row["topic"] for row in finish(self.broker.entrance.flows.reporting())["rows"]]


def test_requests_about_the_input_are_told_by_their_topic() -> None:
    topics = [ADVERTISE_PREFIX + "a/b", WEIGHT_TOPIC, BOUNDS_REQUEST, "$timebound/control/strategy", "a"]

    assert [is_one(topic) for topic in topics] == [True, True, True, False, False]


def test_an_advertised_flow_is_answered_with_its_guarantee_until_it_ends() -> None:
    desk = Desk()

    answer = desk.ask("press", ADVERTISE_PREFIX + "t", PERIOD)

    assert answer.startswith("flow 't' of client 'press' waits at most ")
    assert desk.note == f"admitted: {answer}"
    assert desk.topics() == ["t"]
    assert desk.ask("press", ADVERTISE_PREFIX + "t") == ""
    assert desk.note == "'press' no longer advertises 't'"
    assert desk.topics() == []


def test_a_weight_is_set_and_removed_by_text() -> None:
    desk = Desk()

    assert desk.ask("a", WEIGHT_TOPIC, payload=b"alarm/# 10") == ""

    assert desk.note == "weight of 'alarm/#' is 10"
    assert desk.broker.entrance.flows.weights() == {"alarm/#": 10, "#": 1}
    assert desk.ask("a", WEIGHT_TOPIC, payload=b"alarm/# -") == ""
    assert desk.note == "weight of 'alarm/#' is removed"
    assert desk.broker.entrance.flows.weights() == {"#": 1}


@pytest.mark.parametrize(
    ("topic", "payload", "answer"),
    [
        (ADVERTISE_PREFIX, b"", "0x90 '$timebound/advertise/' names no topic"),
        (ADVERTISE_PREFIX + "$SYS/x", b"", "0x90 '$timebound/advertise/$SYS/x' names no topic"),
        (ADVERTISE_PREFIX + "secret", b"", "0x87 not_authorized: publishing to 'secret'"),
        (ADVERTISE_PREFIX + "open", b"x", "0x83 an advertisement requires user properties"),
        (WEIGHT_TOPIC, b"alarm/#", "0x83 weight: b'alarm/#' is not a topic filter and a weight"),
        (WEIGHT_TOPIC, b"a/#/b 3", "0x83 weight: topic filter 'a/#/b'"),
        (WEIGHT_TOPIC, b"# -", "0x83 weight: the weight of '#' cannot be removed"),
    ],
)
def test_a_wrong_request_is_refused_with_its_code(topic: str, payload: bytes, answer: str) -> None:
    desk = Desk([AccessRule("*", ALL, topic, True) for topic in ("open", "$timebound/#")])

    assert desk.ask("a", topic, payload=payload).startswith(answer)


def test_requests_of_a_source_and_the_time_of_all_are_limited_but_ending_a_flow_is_free() -> None:
    desk = Desk(flows_per_user_max=2, advertisements_per_second_max=1)
    asked = [desk.ask("a", ADVERTISE_PREFIX + "t", PERIOD)[:4] for _ in range(4)]
    desk.broker.entrance.flows.allowance.take(3 * SECOND)  # as if requests had taken so long
    late = desk.ask("b", ADVERTISE_PREFIX + "u", PERIOD)

    assert asked == ["flow", "flow", "flow", "0x97"]
    assert late == "0x97 quota: advertising_percent_max is reached; try again later"
    assert desk.ask("a", ADVERTISE_PREFIX + "t") == ""
    assert desk.topics() == []


def test_bounds_are_published_on_request_and_changes_soon_after() -> None:
    desk = Desk()

    def published() -> list[str]:
        return [row["topic"] for row in json.loads(desk.broker.retained_payload(BOUNDS_TOPIC))["rows"]]

    desk.ask("a", ADVERTISE_PREFIX + "t", PERIOD)
    assert published() == ["t"]
    desk.ask("a", ADVERTISE_PREFIX + "u", PERIOD)
    assert published() == ["t"], "published a moment ago"
    desk.broker.entrance.update(desk.now_ns)
    desk.work()
    assert published() == ["t", "u"]
    desk.ask("a", ADVERTISE_PREFIX + "u")
    desk.ask("a", BOUNDS_REQUEST)
    assert published() == ["t"]


def test_rate_is_rounded_to_the_faster_side() -> None:
    assert read_contract("c", "t", [("rate", "3")], 1).interval_ns == 333_333_333
    with pytest.raises(ProtocolError, match="given twice"):
        read_contract("c", "t", [("rate", "3"), ("rate", "3")], 1)


@pytest.mark.parametrize(("rate", "interval_ns"), [("0.1", 10_000_000_000), ("0.3", 3_333_333_333)])
def test_a_rate_is_taken_as_it_is_written(rate: str, interval_ns: int) -> None:
    assert read_contract("c", "t", [("rate", rate)], 1).interval_ns == interval_ns


@pytest.mark.parametrize("number", ["+1", " 1", "1_0", "1e3", "nan", "inf", "0x10", "٣", "１", "²", "1" * 41])
@pytest.mark.parametrize("name", ["rate", "period", "burst", "size", "weight", "delay"])
def test_no_term_of_a_flow_takes_an_odd_number(name: str, number: str) -> None:
    value = number + "s" if name in ("period", "delay") else number
    terms = [(name, value)] if name in ("rate", "period") else [("rate", "1"), (name, value)]

    with pytest.raises(ProtocolError) as caught:
        read_contract("c", "t", terms, 1)

    assert f"property {name!r} is {value!r}; it must be a " in str(caught.value)
