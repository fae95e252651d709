"""The rare packets of an open connection: SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH.

The first two name up to thousands of filters, each of which may match all retained messages: so they are
handled in steps, between which other clients get their turn. The node's connections and the simulator's use
the same.
"""

from __future__ import annotations

from typing import Final, Protocol

from timebound.config.limits import Limits
from timebound.core.broker import Broker
from timebound.core.distribution import RetainedReplay
from timebound.core.sessions.durability import ALL_SO_FAR
from timebound.core.sessions.session import Session
from timebound.core.values.subscription import Subscription
from timebound.errors import FilterError, ProtocolError
from timebound.linking.mesh import Mesh
from timebound.records import Reason
from timebound.serving.subscribe import make_subscription
from timebound.topics import check_filter, check_wildcards
from timebound.wire.codec import encode
from timebound.wire.packets import (
    Auth,
    Disconnect,
    Packet,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from timebound.wire.reasons import ReasonCode
from timebound.wire.terms import parse_unsubscribe_name, subscribe_hints

# Per packet; enough for the reasons of several filters.
REASON_STRING_LENGTH_MAX: Final = 1_024
# Nodes of the retained topics visited between two readings of the clock: about 50 us.
RETAINED_STEPS: Final = 64
# Characters of a property that are read at once: 256 take 0.3 ms, the longest filter 5 ms.
READ_AT_ONCE_MAX: Final = 256
NOTHING: Final = -2  # instead of a mark: the answer depends on no store order


class ServingDriver(Protocol):
    """What drives a connection."""

    @property
    def limits(self) -> Limits: ...

    @property
    def mesh(self) -> Mesh | None: ...

    def now_ns(self) -> int: ...


class FrameLimit(Protocol):
    """What knows the client's maximum packet size."""

    def fits(self, frame: bytes) -> bool: ...


class Serving(Protocol):
    """A client's connection, as its requests see it."""

    @property
    def driver(self) -> ServingDriver: ...

    @property
    def broker(self) -> Broker: ...

    @property
    def session(self) -> Session | None: ...

    @property
    def number(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def outgoing(self) -> FrameLimit: ...

    @property
    def request_problem_information(self) -> bool: ...

    @property
    def connect_expiry_s(self) -> int: ...

    def close(self, reason_code: int, reason: str) -> None: ...

    def end(self, reason_code: int) -> None: ...

    def note(self, reason: str) -> None: ...

    def hint(self, text: str) -> None: ...


def handle(connection: Serving, session: Session, packet: Packet) -> None:
    """Act on a packet that is neither PUBLISH nor an acknowledgement, nor a `Request`."""
    if isinstance(packet, Disconnect):
        _disconnect(connection, session, packet)
    elif isinstance(packet, Auth):
        # MQTT 5, 4.12: a client that named no method in CONNECT must not send AUTH.
        connection.close(ReasonCode.PROTOCOL_ERROR, "AUTH without an authentication method in CONNECT")
    else:
        connection.close(ReasonCode.PROTOCOL_ERROR, f"unexpected {type(packet).__name__.upper()}")


class Request:
    """A SUBSCRIBE or UNSUBSCRIBE in progress; each turn does as much of it as time allows.

    The answer is sent when all is done. If the client leaves or its session is taken over meanwhile, the
    rest is not done: nothing was acknowledged yet.
    """

    def __init__(
        self,
        connection: Serving,
        session: Session,
        packet: Subscribe | Unsubscribe,
        retained_steps: int = RETAINED_STEPS,
    ) -> None:
        """`retained_steps`: nodes of the retained topics that one step visits."""
        self._retained_steps = retained_steps
        self._connection = connection
        self._session = session
        self._packet = packet
        self._broker = connection.broker
        self._mark = connection.broker.mark()
        self._replay: RetainedReplay | None = None  # of the last filter that was subscribed to
        self._codes: list[int] = []
        self._reasons: list[str] = []

    def begin(self, until_ns: int) -> bool:
        """Do as `continue_request`, unless the first step takes long: that has to wait for its turn."""
        if self._takes_long():
            self._wait()
            return False
        return self.continue_request(until_ns)

    def _takes_long(self) -> bool:
        """Whether a content filter or correlation is so long that many at a time would hold up others."""
        texts = self._packet.properties.user_properties
        return bool(texts) and any(len(text) > READ_AT_ONCE_MAX for _, text in texts)

    def _wait(self) -> None:
        # A session that is not stored gives no store orders; else all of them must be on disk.
        self._mark = ALL_SO_FAR if self._session.is_durable else NOTHING

    def continue_request(self, until_ns: int) -> bool:
        """Do one step at least, and more until `until_ns`; True if there is nothing left to do."""
        connection = self._connection
        while connection.session is self._session and self._session.connection == connection.number:
            now_ns = connection.driver.now_ns()
            if self._replay is not None:
                if self._broker.continue_replay(self._replay, self._retained_steps, now_ns):
                    self._replay = None
            elif not self._do_next(now_ns):
                self._answer()
                return True
            if connection.driver.now_ns() >= until_ns and not self._is_done():
                self._wait()
                return False
        self.cancel()
        return True

    def is_replaying(self) -> bool:
        """Whether retained messages are still to be sent."""
        return self._replay is not None

    def cancel(self) -> None:
        """Stop, since the client has left."""
        if self._replay is not None:
            self._broker.stop_replay(self._replay)
            self._replay = None

    def _is_done(self) -> bool:
        return self._replay is None and len(self._codes) == len(_filters_of(self._packet))

    def _do_next(self, now_ns: int) -> bool:
        """Act on the next filter; return False if there is none."""
        packet = self._packet
        number = len(self._codes)
        if number == 0 and _is_violated(self._connection, _filters_of(packet)):
            return True
        if isinstance(packet, Unsubscribe):
            if number < len(packet.topic_filters):
                self._unsubscribe(packet, packet.topic_filters[number], now_ns)
                return True
        elif number < len(packet.entries):
            self._subscribe(packet, packet.entries[number], now_ns)
            return True
        return False

    def _subscribe(self, packet: Subscribe, entry: SubscribeEntry, now_ns: int) -> None:
        connection, session = self._connection, self._session
        if len(packet.properties.user_properties) > connection.driver.limits.user_properties_max:
            connection.close(ReasonCode.QUOTA_EXCEEDED, "too many user properties")
            return
        if entry.no_local and entry.topic_filter.startswith("$share/"):
            # MQTT 5, 3.8.3.1
            connection.close(ReasonCode.PROTOCOL_ERROR, "no local on a shared subscription")
            return
        try:
            subscription = make_subscription(connection.driver.limits, session.client_id, packet, entry)
            _check_announceable(connection, subscription)
        except FilterError as error:
            self._refuse(ReasonCode.TOPIC_FILTER_INVALID, str(error))
            return
        except ProtocolError as error:
            self._refuse(error.reason_code, str(error))
            return
        code, self._replay = self._broker.begin_subscribe(session, subscription, now_ns)
        if code < 0x80:
            self._codes.append(code)
        elif code == ReasonCode.NOT_AUTHORIZED:
            text = f"subscribing to {entry.topic_filter!r} is not allowed"
            self._refuse(code, f"{Reason.NOT_AUTHORIZED.value}: {text}")
        else:
            limit = self._broker.limit_reached(session, subscription)
            self._refuse(code, f"{Reason.QUOTA.value}: {limit} is reached at {entry.topic_filter!r}")

    def _unsubscribe(self, packet: Unsubscribe, topic_filter: str, now_ns: int) -> None:
        try:
            check_filter(topic_filter)
            name = parse_unsubscribe_name(packet.properties.user_properties)
        except FilterError as error:
            self._refuse(ReasonCode.TOPIC_FILTER_INVALID, str(error))
        except ProtocolError as error:
            self._refuse(error.reason_code, str(error))
        else:
            self._codes.append(self._broker.unsubscribe(self._session, topic_filter, now_ns, name))

    def _refuse(self, code: int, reason: str) -> None:
        self._codes.append(code)
        self._reasons.append(reason)

    def _answer(self) -> None:
        packet = self._packet
        answer: Suback | Unsuback
        hints: list[str] = []
        if isinstance(packet, Subscribe):
            answer = Suback(packet.packet_id, self._codes)
            for reason in self._reasons:
                self._connection.note(f"subscription: {reason}")
            hints = subscribe_hints(packet.properties.user_properties)
            for hint in hints:
                self._connection.hint(f"subscription: {hint}")
        else:
            answer = Unsuback(packet.packet_id, self._codes)
        mark = self._broker.mark() if self._mark == NOTHING else self._mark
        _answer(self._connection, self._session, answer, self._reasons + hints, mark)


def _filters_of(packet: Subscribe | Unsubscribe) -> list[str]:
    if isinstance(packet, Unsubscribe):
        return packet.topic_filters
    return [entry.topic_filter for entry in packet.entries]


def _is_violated(connection: Serving, topic_filters: list[str]) -> bool:
    """Close the connection for a filter that MQTT 3.1.1 does not allow [MQTT-4.7.1-3] [MQTT-4.8.0-1].

    MQTT 5 has a reason code for each filter; here the whole packet is refused.
    """
    if connection.version == 5:
        return False
    for topic_filter in topic_filters:
        try:
            check_wildcards(topic_filter)
        except FilterError as error:
            connection.close(ReasonCode.MALFORMED_PACKET, str(error))
            return True
    return False


def _answer(
    connection: Serving, session: Session, answer: Suback | Unsuback, reasons: list[str], mark: int
) -> None:
    frame = _with_reasons(connection, answer, reasons)
    if connection.outgoing.fits(frame):
        connection.broker.reply(session, frame, mark)
    else:
        # [MQTT-3.1.2-24]: it must not be sent, and without an answer the client would wait forever.
        reason = f"the answer has {len(frame)} bytes, more than the client's maximum packet size"
        connection.close(ReasonCode.PACKET_TOO_LARGE, reason)


def _with_reasons(connection: Serving, answer: Suback | Unsuback, reasons: list[str]) -> bytes:
    """Encode an answer, with its reasons where the client wants them and has room for them."""
    bare = encode(answer, connection.version)
    if not reasons or not connection.request_problem_information:
        return bare
    answer.properties.reason_string = "; ".join(reasons)[:REASON_STRING_LENGTH_MAX]
    frame = encode(answer, connection.version)
    return frame if connection.outgoing.fits(frame) else bare


def _check_announceable(connection: Serving, subscription: Subscription) -> None:
    mesh = connection.driver.mesh
    refusal = mesh.refusal(subscription) if mesh is not None else ""
    if refusal:
        raise ProtocolError(ReasonCode.QUOTA_EXCEEDED, f"{Reason.QUOTA.value}: {refusal}")


def _disconnect(connection: Serving, session: Session, packet: Disconnect) -> None:
    expiry_interval_s = packet.properties.session_expiry_interval
    if expiry_interval_s is not None:
        if expiry_interval_s and not connection.connect_expiry_s:
            # MQTT 5, 3.14.2.2.2
            connection.close(
                ReasonCode.PROTOCOL_ERROR, "session expiry was 0 in CONNECT and cannot be raised now"
            )
            return
        session.expiry_interval_s = min(expiry_interval_s, connection.driver.limits.session_expiry_max_s)
    connection.end(packet.reason_code)
