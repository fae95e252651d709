"""Requests about the input: advertise flows, set weights, publish bounds.

    $timebound/advertise/<topic>       user properties period or rate, burst, size, weight, delay
    $timebound/control/weight          payload: a topic filter and its weight, or `-` to remove it
    $timebound/control/bounds          publishes `$SYS/broker/bounds` again

`input/flows.py` carries them out; here packets are parsed and answers formatted. Each request makes the
broker examine all flows: so the requests per user and second are limited, per address where clients are
anonymous, and so is the time for all of them. Ending a flow is always allowed.
"""

from __future__ import annotations

import json
import logging
import time
from fractions import Fraction
from typing import Final

from timebound.config.limits import MQTT_PACKET_BYTES_MAX
from timebound.core.input.bounds import NEVER
from timebound.core.input.cells import WEIGHT_MAX
from timebound.core.input.contract import BURST_MAX, Contract
from timebound.core.sessions.session import Session
from timebound.core.values.message import Message
from timebound.errors import FilterError, ProtocolError, UnitError
from timebound.node.driver import Driver
from timebound.node.input.flows import Flows
from timebound.node.input.input import Input
from timebound.node.input.publisher import Publisher
from timebound.records import Reason
from timebound.topics import check_filter
from timebound.units import SECOND, parse_count, parse_duration, parse_number
from timebound.wire.packets import Publish
from timebound.wire.reasons import ReasonCode

logger = logging.getLogger("timebound.node")

ADVERTISE_PREFIX: Final = "$timebound/advertise/"
WEIGHT_TOPIC: Final = "$timebound/control/weight"
BOUNDS_REQUEST: Final = "$timebound/control/bounds"
BOUNDS_TOPIC: Final = "$SYS/broker/bounds"
REMOVE: Final = "-"  # instead of a weight

TERMS: Final = ("period", "rate", "burst", "size", "weight", "delay")
_SHOWN_VALUE_MAX: Final = 60
# Bounds that change more often are published once a second.
REPORT_INTERVAL_NS: Final = SECOND // 10


def is_one(topic: str) -> bool:
    """Whether a topic is a request about the input."""
    return topic.startswith(ADVERTISE_PREFIX) or topic in (WEIGHT_TOPIC, BOUNDS_REQUEST)


def handle(
    driver: Driver, publisher: Publisher, session: Session, packet: Publish, topic: str, now_ns: int
) -> str:
    """Carry out a request about the input; return the answer as text.

    Raises:
        ProtocolError: it is refused or wrong, or there were too many requests.
    """
    flows = driver.input.flows
    is_ending = topic.startswith(ADVERTISE_PREFIX) and not packet.user_properties
    if not is_ending:
        _check_allowances(flows, publisher, now_ns)
    began_ns = time.thread_time_ns()
    try:
        answer = ""
        if topic == WEIGHT_TOPIC:
            set_weight(driver.input, packet.payload, now_ns)
        elif topic != BOUNDS_REQUEST:
            answer = advertise(flows, publisher, session, packet, topic, now_ns)
        if topic == BOUNDS_REQUEST or now_ns - flows.reported_ns > REPORT_INTERVAL_NS:
            publish_bounds(driver, now_ns)
        else:
            flows.is_report_due = True
    finally:
        flows.allowance.take(time.thread_time_ns() - began_ns)
    return answer


def _check_allowances(flows: Flows, publisher: Publisher, now_ns: int) -> None:
    own = flows.requesters.get(publisher.source, now_ns).allowance
    if not own.has_any(now_ns):
        raise _too_many("advertisements_per_second_max")
    if not flows.allowance.has_any(now_ns):
        raise _too_many("advertising_percent_max")
    own.take(1)


def _too_many(limit: str) -> ProtocolError:
    reason = f"{Reason.QUOTA.value}: {limit} is reached; try again later"
    return ProtocolError(ReasonCode.QUOTA_EXCEEDED, reason)


def advertise(
    flows: Flows, publisher: Publisher, session: Session, packet: Publish, topic: str, now_ns: int
) -> str:
    """Admit the flow that a packet describes, or end it if it describes none; return the guarantee.

    Raises:
        ProtocolError: the flow is refused, or its description is wrong.
    """
    flow_topic = topic[len(ADVERTISE_PREFIX) :]
    if not flow_topic or flow_topic.startswith("$"):
        raise ProtocolError(
            ReasonCode.TOPIC_NAME_INVALID, f"{topic!r} names no topic; expected {ADVERTISE_PREFIX}<topic>"
        )
    if not session.access.may_publish(flow_topic):
        raise ProtocolError(ReasonCode.NOT_AUTHORIZED, f"not_authorized: publishing to {flow_topic!r}")
    if not packet.user_properties:
        if packet.payload:
            raise _wrong(
                "an advertisement requires user properties: period or rate, burst, size, weight, delay"
            )
        if flows.unadvertise(publisher, session.client_id, flow_topic, now_ns):
            logger.info("%r no longer advertises %r", session.client_id, flow_topic)
        return ""
    contract = read_contract(
        session.client_id, flow_topic, packet.user_properties, flows.weight_of(flow_topic)
    )
    decision = flows.advertise(publisher, contract, now_ns)
    if not decision.accepted:
        logger.info("refused an advertisement: %s", decision.reason)
        raise ProtocolError(ReasonCode.QUOTA_EXCEEDED, f"{Reason.NOT_ADMITTED.value}: {decision.reason}")
    logger.info("admitted: %s", decision.reason)
    return decision.reason


def read_contract(
    client_id: str, topic: str, properties: tuple[tuple[str, str], ...] | list[tuple[str, str]], weight: int
) -> Contract:
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


def set_weight(input_: Input, payload: bytes, now_ns: int) -> None:
    """Set the weight of a filter's topics: `alarm/# 10`; or remove it: `alarm/# -`.

    Raises:
        ProtocolError: it is wrong, or would violate a guarantee.
    """
    topic_filter, _, text = payload.decode("utf-8", "replace").strip().rpartition(" ")
    try:
        if not topic_filter:
            raise ValueError(
                f"{payload[:60]!r} is not a topic filter and a weight, such as 'alarm/# 10', or 'alarm/# -'"
            )
        if text == REMOVE:
            input_.flows.remove_weight(topic_filter, input_.publishers.values(), now_ns)
            logger.info("weight of %r is removed", topic_filter)
            return
        weight = parse_count(text[:_SHOWN_VALUE_MAX], 1, WEIGHT_MAX)
        check_filter(topic_filter)
        if topic_filter.startswith("$share/"):
            raise ValueError("messages are published to topics, not to shared subscriptions")
        decision = input_.flows.set_weight(topic_filter, weight, now_ns)
    except (FilterError, ValueError) as error:
        raise _wrong(f"weight: {error}") from error
    if not decision.accepted:
        raise ProtocolError(ReasonCode.QUOTA_EXCEEDED, f"{Reason.NOT_ADMITTED.value}: {decision.reason}")
    logger.info("weight of %r is %s", topic_filter, text)


def publish_bounds(driver: Driver, now_ns: int) -> None:
    """Publish the current weights, shares and bounds, retained."""
    flows = driver.input.flows
    flows.reported_ns = now_ns
    flows.is_report_due = False
    report = json.dumps(flows.report()).encode()
    driver.broker.route(Message(BOUNDS_TOPIC, report, 0, True, now_ns), now_ns)


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
    return ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, reason)
