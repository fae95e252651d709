"""Requests of clients to the broker itself: what is published under `$timebound/`.

    $timebound/control/strategy/<listener>     payload: the name of a strategy, and its weight in percent

The answer is the acknowledgement: 0x00, or a reason code with a reason string that says what would
be right. So a request needs QoS 1 to be answered; with QoS 0 a wrong one closes the connection.
Who may ask is decided by the access rules; with any rules at all, only who is allowed to.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from timebound.core.scheduling import STRATEGY_NAMES, Scheduling
from timebound.core.session import Session
from timebound.errors import ProtocolError
from timebound.wire.packets import Publish
from timebound.wire.reasons import ReasonCode

if TYPE_CHECKING:
    from timebound.node.connection import Connection

logger = logging.getLogger("timebound.node")

PREFIX: Final = "$timebound/"
STRATEGY_PREFIX: Final = "$timebound/control/strategy/"


def handle(connection: Connection, session: Session, packet: Publish, topic: str, now_ns: int) -> None:
    """Do what a message under `$timebound/` asks for, and acknowledge it.

    Raises:
        ProtocolError: with the reason code and text to refuse it with.
    """
    if not session.access.may_publish(topic):
        raise ProtocolError(ReasonCode.NOT_AUTHORIZED, f"not_authorized: publishing to {topic!r}")
    if topic.startswith(STRATEGY_PREFIX):
        _set_strategy(connection, topic[len(STRATEGY_PREFIX) :], packet.payload, now_ns)
    else:
        raise ProtocolError(
            ReasonCode.TOPIC_NAME_INVALID, f"{topic!r} is no request; {STRATEGY_PREFIX}<listener> is one"
        )
    if packet.qos:
        connection.broker.accept_request(session, packet.qos, packet.packet_id)


def _set_strategy(connection: Connection, listener: str, payload: bytes, now_ns: int) -> None:
    words = payload.decode("utf-8", "replace").split()
    try:
        if not 1 <= len(words) <= 2:
            raise ValueError(
                f"the payload is a strategy and perhaps its weight, such as {STRATEGY_NAMES[0]!r}"
            )
        weight = int(words[1]) / 100 if len(words) == 2 else -1.0
        for door in connection.driver.doors:
            if door.listener.label == listener:
                scheduling = Scheduling(words[0], weight, door.scheduling.untimed_share)
                door.scheduling = scheduling
                count = connection.broker.set_scheduling(listener, scheduling, now_ns)
                logger.info("listener %s: strategy %s for %d sessions", listener, words[0], count)
                return
    except ValueError as error:
        raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, f"strategy: {error}") from error
    known = ", ".join([repr(door.listener.label) for door in connection.driver.doors])
    raise ProtocolError(
        ReasonCode.TOPIC_NAME_INVALID, f"there is no listener {listener!r}; there are {known}"
    )
