"""Models of clients' links, on retained topics, for use before a link is measured.

    $timebound/link/<client>      JSON with mean_s_per_kb and variance; empty removes the model

`timebound pipeline live` publishes models from traces there, through the broker's Flight service; clients
with the right to do so may publish them as requests (`requests.py`). A connection whose link has not been
measured starts from its model instead of a guess.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from timebound.core.broker import Broker
from timebound.core.link.outlet import START_DELAY
from timebound.core.sessions.session import Session
from timebound.core.values.delay import MEAN_FLOOR_S_PER_KB, LinkDelay
from timebound.core.values.message import Message
from timebound.errors import ProtocolError
from timebound.wire.reasons import ReasonCode

logger = logging.getLogger("timebound.node")

LINK_PREFIX: Final = "$timebound/link/"
# An hour per KB: a slower link is a mistake of the measurement.
MEAN_MAX_S_PER_KB: Final = 3_600.0


class LinkModelPayload(msgspec.Struct):
    """What a payload says; other fields may stand beside these."""

    mean_s_per_kb: float
    variance: float


_READ_MODEL: Final = msgspec.json.Decoder(LinkModelPayload)


def announced_delay(broker: Broker, session: Session) -> LinkDelay | None:
    """Return the initial delay; None if the link was measured or no model was announced."""
    if session.delay is not START_DELAY:
        return None
    payload = broker.retained_payload(LINK_PREFIX + session.client_id)
    if not payload:
        return None
    model = read_model(payload)
    if model is None:
        logger.warning("link model of client %r cannot be used: %r", session.client_id, payload[:200])
    return model


def announce(broker: Broker, topic: str, payload: bytes, now_ns: int) -> None:
    """Keep what a client says about a link, for the next time that its client connects.

    Raises:
        ProtocolError: the payload is not a model, or the topic names no client.
    """
    if len(topic) == len(LINK_PREFIX):
        raise ProtocolError(ReasonCode.TOPIC_NAME_INVALID, f"{topic!r} names no client")
    if payload and read_model(payload) is None:
        reason = (
            f"link model: {payload[:60]!r} is not JSON with mean_s_per_kb up to {MEAN_MAX_S_PER_KB:g} and "
            "variance up to its square"
        )
        raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, reason)
    broker.route(Message(topic, payload, 0, True, now_ns), now_ns)


def read_model(payload: bytes) -> LinkDelay | None:
    """Return the delay that a payload describes; None if it is not a model."""
    try:
        announced = _READ_MODEL.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the last: nested too deeply
        return None
    mean, variance = announced.mean_s_per_kb, announced.variance
    if not (MEAN_FLOOR_S_PER_KB <= mean <= MEAN_MAX_S_PER_KB and 0.0 <= variance <= mean * mean):
        return None
    return LinkDelay(mean, variance)
