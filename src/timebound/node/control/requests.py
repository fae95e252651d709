"""Requests of clients to the broker itself, published under `$timebound/`.

    $timebound/control/strategy/<listener>     payload: the name of a strategy, and its mix in percent
    $timebound/control/strategy                the same for all listeners
    $timebound/control/strategies              returns the strategy of each listener, as JSON
    $timebound/control/mesh                    publishes `$SYS/broker/mesh/map`, what is known of the mesh
    $timebound/link/<client>                   the model of its link: `link_models.py`
    $timebound/advertise/<topic>, $timebound/control/weight, $timebound/control/bounds: serving/inquiry.py

The answer is the acknowledgement: 0x00 with a reason string, or an error code with a reason string that
names the expected form. So only a request with QoS 1 is answered; with QoS 0 a wrong one closes the
connection. Access rules decide who may send requests; if there are any rules, only clients that they allow.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from timebound.core.input.publisher import Publisher
from timebound.core.input.requests import is_one
from timebound.core.link.scheduling import Scheduling
from timebound.core.sessions.session import Session
from timebound.core.values.message import Message
from timebound.errors import ProtocolError, UnitError
from timebound.linking.mesh_map import MAP_TOPIC, encode_map
from timebound.node.control import link_models
from timebound.node.driver import Driver
from timebound.serving.inquiry import DONE, Inquiry, check_request
from timebound.units import parse_count
from timebound.wire.packets import Publish
from timebound.wire.reasons import ReasonCode

logger = logging.getLogger("timebound.node")

PREFIX: Final = "$timebound/"
STRATEGY_TOPIC: Final = "$timebound/control/strategy"
MESH_TOPIC: Final = "$timebound/control/mesh"
STRATEGIES_TOPIC: Final = "$timebound/control/strategies"
EXPECTED: Final = (
    "$timebound/control/strategy, strategies, mesh, weight or bounds, $timebound/advertise/<topic> "
    "or $timebound/link/<client>"
)


def handle(
    driver: Driver, publisher: Publisher, session: Session, packet: Publish, topic: str, now_ns: int
) -> Inquiry | None:
    """Carry out a request under `$timebound/` and acknowledge it, or return it if that takes long.

    Raises:
        ProtocolError: with the reason code and text for the refusal.
    """
    check_request(session, topic)
    answer = ""
    if is_one(topic):
        return Inquiry(driver.broker, publisher, session, packet, topic)
    if topic.startswith(link_models.LINK_PREFIX):
        link_models.announce(driver.broker, topic, packet.payload, now_ns)
    elif topic == STRATEGIES_TOPIC:
        answer = _strategies(driver)
    elif topic == MESH_TOPIC:
        _publish_map(driver, now_ns)
    elif topic == STRATEGY_TOPIC or topic.startswith(STRATEGY_TOPIC + "/"):
        _set_strategy(driver, topic[len(STRATEGY_TOPIC) + 1 :], packet.payload, now_ns)
    else:
        raise ProtocolError(
            ReasonCode.TOPIC_NAME_INVALID,
            f"unknown control topic {topic!r}; expected {EXPECTED}",
        )
    if packet.qos:
        driver.broker.accept_request(session, packet.qos, packet.packet_id, answer or DONE)
    return None


def _set_strategy(driver: Driver, listener: str, payload: bytes, now_ns: int) -> None:
    doors = [door for door in driver.doors if listener in ("", door.listener.label)]
    mesh = driver.mesh
    links = [] if mesh is None else [name for name in mesh.neighbours if listener in ("", name)]
    if not doors and not links:
        known = [door.listener.label for door in driver.doors]
        if mesh is not None:
            known += mesh.neighbours
        raise ProtocolError(
            ReasonCode.TOPIC_NAME_INVALID,
            f"no listener {listener!r}; listeners are {', '.join(map(repr, known))}",
        )
    name, mix = _read_strategy(payload)
    for door in doors:
        try:
            scheduling = Scheduling(
                name,
                mix,
                door.scheduling.untimed_share,
                door.scheduling.epsilon,
                door.scheduling.shares,
                margin_ns=door.scheduling.margin_ns,
            )
        except ValueError as error:
            raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(error)) from error
        door.scheduling = scheduling
        label = door.listener.label
        count = driver.broker.set_scheduling(label, scheduling, now_ns)
        logger.info("listener %s: strategy %s for %d sessions", label, name, count)
    for link in links:
        assert mesh is not None, "links are those of a mesh"
        try:
            mesh.set_strategy(link, name, mix, now_ns)
        except ValueError as error:
            raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(error)) from error
        logger.info("link to %s: strategy %s", link, name)


def _strategies(driver: Driver) -> str:
    """Return the strategy of each listener and link, in the form of requests: `ebpc 70`."""
    in_use = {
        door.listener.label: _written(door.scheduling.name, door.scheduling.mix) for door in driver.doors
    }
    if driver.mesh is not None:
        for link, (name, mix) in driver.mesh.strategies.items():
            in_use[link] = _written(name, mix)
    return json.dumps(in_use)


def _publish_map(driver: Driver, now_ns: int) -> None:
    mesh = driver.mesh
    if mesh is None:
        reason = "this broker is in no mesh: it has no [[neighbours]]"
        raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, reason)
    mesh.report_links(now_ns)
    payload = encode_map(mesh.member, now_ns)
    driver.broker.route(Message(MAP_TOPIC, payload, 0, True, now_ns), now_ns)


def _written(name: str, mix: float) -> str:
    return name if mix < 0 else f"{name} {mix * 100:.0f}"


def _read_strategy(payload: bytes) -> tuple[str, float]:
    """Read `ebpc 70`, `ebpc mix=70` or the old `ebpc weight=70`: the name and the mix, -1 for its default."""
    words = payload.decode("utf-8", "replace").split()
    if not 1 <= len(words) <= 2:
        reason = f"the payload has {len(words)} words; write a strategy and perhaps its mix in percent"
        raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, reason)
    if len(words) == 1:
        return words[0], -1.0
    label, equals, number = words[1].rpartition("=")
    try:
        if label not in (("mix", "weight") if equals else ("",)):
            raise UnitError(f"{label!r} is not mix")
        percent = parse_count(number, 0, 100)
    except UnitError as error:
        reason = f"mix {words[1][:20]!r} is not a whole number of percent from 0 to 100"
        raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, reason) from error
    return words[0], percent / 100
