"""Requests about the input: advertise flows, set weights, publish bounds.

    $timebound/advertise/<topic>       user properties period or rate, burst, size, weight, delay
    $timebound/control/weight          payload: a topic filter and its weight, or `-` to remove it
    $timebound/control/bounds          publishes `$SYS/broker/bounds` again

`flows.py` carries them out, in steps; here their text is parsed, and answers are formatted. Each request
makes the broker examine all flows: so the requests per user and second are limited, per address where
clients are anonymous, and so is the time for all of them, which the driver measures. Ending a flow is always
allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from timebound.core.input.bounds import NEVER
from timebound.core.input.cells import WEIGHT_MAX
from timebound.core.input.contract import BURST_MAX, Contract
from timebound.core.input.entrance import Entrance
from timebound.core.input.jobs import EntranceJob
from timebound.core.input.publisher import Publisher
from timebound.core.input.steps import Steps
from timebound.core.sessions.session import Session
from timebound.core.values.limits import MQTT_PACKET_BYTES_MAX
from timebound.core.values.reason_codes import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    TOPIC_NAME_INVALID,
)
from timebound.errors import FilterError, ProtocolError, UnitError
from timebound.records import Reason
from timebound.topics import check_filter
from timebound.units import SECOND, parse_count, parse_duration, parse_number

ADVERTISE_PREFIX: Final = "$timebound/advertise/"
WEIGHT_TOPIC: Final = "$timebound/control/weight"
BOUNDS_REQUEST: Final = "$timebound/control/bounds"
BOUNDS_TOPIC: Final = "$SYS/broker/bounds"
REMOVE: Final = "-"  # instead of a weight

TERMS: Final = ("period", "rate", "burst", "size", "weight", "delay")
_SHOWN_VALUE_MAX: Final = 60
# Bounds that change more often are published about once a second.
REPORT_INTERVAL_NS: Final = SECOND // 10


def is_one(topic: str) -> bool:
    """Whether a topic is a request about the input."""
    return topic.startswith(ADVERTISE_PREFIX) or topic in (WEIGHT_TOPIC, BOUNDS_REQUEST)


class InputRequest(EntranceJob):
    """A request as it was published; once it is done, the answer, or in `error` the refusal (ProtocolError).

    `note` is what the log should tell of it.
    """

    __slots__ = ("answer", "note", "payload", "publisher", "session", "topic", "user_properties")

    def __init__(
        self,
        entrance: Entrance,
        publisher: Publisher,
        session: Session,
        topic: str,
        user_properties: Sequence[tuple[str, str]],
        payload: bytes,
    ) -> None:
        super().__init__(session.client_id)
        self.publisher = publisher
        self.session = session
        self.topic = topic
        self.user_properties = user_properties
        self.payload = payload
        self.answer = ""
        self.note = ""
        self.steps = _carrying_out(entrance, self)


def _carrying_out(entrance: Entrance, request: InputRequest) -> Steps[None]:
    """Carry out a request, and report what changed unless that was done a moment ago.

    Raises:
        ProtocolError: it is refused or wrong, or there were too many requests.
    """
    topic, flows = request.topic, entrance.flows
    if not topic.startswith(ADVERTISE_PREFIX) or request.user_properties:  # ending a flow is free
        _check_allowances(entrance, request.publisher)
    if topic == WEIGHT_TOPIC:
        yield from _setting_weight(entrance, request)
    elif topic != BOUNDS_REQUEST:
        yield from _advertising(entrance, request)
    if topic == BOUNDS_REQUEST or flows.now_ns - flows.reported_ns > REPORT_INTERVAL_NS:
        yield from flows.reporting()
    else:
        flows.is_report_due = True


def _check_allowances(entrance: Entrance, publisher: Publisher) -> None:
    now_ns = entrance.flows.now_ns
    own = entrance.flows.requesters.get(publisher.source, now_ns).allowance
    if not own.has_any(now_ns):
        raise _too_many("advertisements_per_second_max")
    if not entrance.flows.allowance.has_any(now_ns):
        raise _too_many("advertising_percent_max")
    own.take(1)


def _too_many(limit: str) -> ProtocolError:
    return ProtocolError(QUOTA_EXCEEDED, f"{Reason.QUOTA.value}: {limit} is reached; try again later")


def _advertising(entrance: Entrance, request: InputRequest) -> Steps[None]:
    """Admit the flow that a request describes, or end it if it describes none; answer with its guarantee."""
    topic, session, flows = request.topic, request.session, entrance.flows
    flow_topic = topic[len(ADVERTISE_PREFIX) :]
    if not flow_topic or flow_topic.startswith("$"):
        reason = f"{topic!r} names no topic; expected {ADVERTISE_PREFIX}<topic>"
        raise ProtocolError(TOPIC_NAME_INVALID, reason)
    if not session.access.may_publish(flow_topic):
        raise ProtocolError(NOT_AUTHORIZED, f"not_authorized: publishing to {flow_topic!r}")
    if not request.user_properties:
        if request.payload:
            raise _wrong(
                "an advertisement requires user properties: period or rate, burst, size, weight, delay"
            )
        if flows.unadvertise(request.publisher, session.client_id, flow_topic, flows.now_ns):
            request.note = f"{session.client_id!r} no longer advertises {flow_topic!r}"
        return
    weight = flows.weight_of(flow_topic)
    contract = read_contract(session.client_id, flow_topic, request.user_properties, weight)
    decision = yield from flows.advertising(request.publisher, contract)
    if not decision.accepted:
        request.note = f"refused an advertisement: {decision.reason}"
        raise ProtocolError(QUOTA_EXCEEDED, f"{Reason.NOT_ADMITTED.value}: {decision.reason}")
    request.note = f"admitted: {decision.reason}"
    request.answer = decision.reason


def read_contract(client_id: str, topic: str, properties: Sequence[tuple[str, str]], weight: int) -> Contract:
    """Parse the contract of a flow; `weight` is that of the topic.

    Raises:
        ProtocolError: with the property, its value, and the expected form.
    """
    terms: dict[str, str] = {}
    for name, value in properties:
        if name not in TERMS or name in terms:
            fault = "given twice" if name in terms else f"unknown; expected one of {', '.join(TERMS)}"
            raise _wrong(f"property {name!r} is {fault}")
        terms[name] = value
    if ("period" in terms) == ("rate" in terms):
        raise _wrong("an advertisement requires either period=20ms or rate=50 (per second)")
    if "period" in terms:
        interval_ns = _duration(terms, "period")
    else:
        interval_ns = _interval(terms)
    try:
        return Contract(
            client_id,
            topic,
            interval_ns=interval_ns,
            burst=_count(terms, "burst", 1, BURST_MAX),
            size=_count(terms, "size", 1, MQTT_PACKET_BYTES_MAX),
            weight=_count(terms, "weight", weight, WEIGHT_MAX),
            delay_ns=_duration(terms, "delay") if "delay" in terms else 0,
        )
    except ValueError as error:
        raise _wrong(f"advertisement: {error}") from error


def _setting_weight(entrance: Entrance, request: InputRequest) -> Steps[None]:
    """Set the weight of a filter's topics: `alarm/# 10`; or remove it: `alarm/# -`."""
    payload = request.payload
    topic_filter, _, text = payload.decode("utf-8", "replace").strip().rpartition(" ")
    try:
        if not topic_filter:
            raise ValueError(
                f"{payload[:60]!r} is not a topic filter and a weight, such as 'alarm/# 10', or 'alarm/# -'"
            )
        if text == REMOVE:
            yield from entrance.flows.removing_weight(topic_filter, entrance.publishers.values())
            request.note = f"weight of {topic_filter!r} is removed"
            return
        weight = parse_count(text[:_SHOWN_VALUE_MAX], 1, WEIGHT_MAX)
        check_filter(topic_filter)
        if topic_filter.startswith("$share/"):
            raise ValueError("messages are published to topics, not to shared subscriptions")
        decision = yield from entrance.flows.setting_weight(topic_filter, weight)
    except (FilterError, ValueError) as error:
        raise _wrong(f"weight: {error}") from error
    if not decision.accepted:
        raise ProtocolError(QUOTA_EXCEEDED, f"{Reason.NOT_ADMITTED.value}: {decision.reason}")
    request.note = f"weight of {topic_filter!r} is {text}"


def _interval(terms: dict[str, str]) -> int:
    """Parse a period or rate; the interval is rounded down, so the bound is never too small."""
    try:
        parse_number(terms["rate"])
        rate = Fraction(terms["rate"])  # exactly as written: a float of 0.1 is slightly more
    except UnitError:
        rate = Fraction(0)
    if not 0 < rate <= SECOND:
        raise _wrong_value(terms, "rate", f"a number above zero and up to {SECOND}, per second")
    return min(int(SECOND / rate), NEVER)


def _duration(terms: dict[str, str], name: str) -> int:
    try:
        duration_ns = parse_duration(terms[name])
    except UnitError:
        duration_ns = 0
    if duration_ns < 1:
        raise _wrong_value(terms, name, "a duration above zero like 20ms or 1.5s, at most 100 years")
    return duration_ns


def _count(terms: dict[str, str], name: str, default: int, most: int) -> int:
    text = terms.get(name)
    if text is None:
        return default
    try:
        return parse_count(text, 1, most)
    except UnitError as error:
        raise _wrong_value(terms, name, f"a whole number from 1 to {most}") from error


def _wrong_value(terms: dict[str, str], name: str, right: str) -> ProtocolError:
    return _wrong(f"property {name!r} is {terms[name][:_SHOWN_VALUE_MAX]!r}; it must be {right}")


def _wrong(reason: str) -> ProtocolError:
    return ProtocolError(IMPLEMENTATION_SPECIFIC_ERROR, reason)
