"""`Client`: the calls of the asyncio client; `docs/client.md` is the guide.

Each call checks its arguments and passes them to the session (`session.py`), which outlives
connections; `keeper.py` makes the connections.
"""

from __future__ import annotations

import ssl
from random import Random
from types import TracebackType
from typing import Final, Unpack

from timebound.client.advertising import advertisement, withdrawal
from timebound.client.backoff import DELAY_S_MAX
from timebound.client.keeper import Keeper
from timebound.client.message import Message
from timebound.client.options import Address, ClientOptions, parse_address
from timebound.client.outbox import OutgoingMessage
from timebound.client.refusals import NotTimebound, PublishRefused
from timebound.client.requests import Requests
from timebound.client.session import ClientSession
from timebound.client.subscription import QUEUE_SIZE, Subscription
from timebound.client.terms import term_properties
from timebound.client.topics import check_filter, check_topic
from timebound.client.values import (
    Duration,
    Payload,
    UserPropertiesLike,
    check_qos,
    priority_text,
    to_ns,
    to_payload,
    to_positive_ns,
    to_user_properties,
    to_whole_seconds,
)
from timebound.client.will import Will
from timebound.errors import ClientError
from timebound.terms import TermArguments
from timebound.units import SECOND, format_duration
from timebound.wire.packets import Disconnect, SubscribeEntry
from timebound.wire.properties import Properties

CONNECT_TIMEOUT: Final = "10s"
# Limit of an operation, reconnecting included, before it fails.
OPERATION_TIMEOUT: Final = "30s"
# Unread messages with QoS 1 and 2 that the server may send ahead.
RECEIVE_MAXIMUM: Final = 1_000
TOPIC_ALIAS_MAXIMUM: Final = 64
_NO_MATCHING_SUBSCRIBERS: Final = 0x10
# Most messages have no properties: checking that first saves 2.3 of the 10.4 µs of a QoS 0 publish.
_NO_PROPERTIES: Final = (None, None, None, None, None)


class Client:
    """An MQTT client for asyncio.

    Use it as `async with Client("mqtt://host") as client`, or call `connect` and `disconnect`.
    `host` may be a URL, `mqtt://user:password@host:port` or `mqtts://` for TLS. Durations are
    texts like `"250ms"`, numbers of seconds, or timedeltas. The client reconnects with growing
    delays, unless `reconnect` is False or the server's reason rules it out.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int | None = None,
        *,
        client_id: str = "",
        username: str | None = None,
        password: str | bytes | None = None,
        tls: bool | ssl.SSLContext = False,
        keep_alive: int = 60,
        clean_start: bool = True,
        session_expiry: Duration = "0s",
        will: Will | None = None,
        version: int = 5,
        reconnect: bool = True,
        reconnect_delay_max: Duration = DELAY_S_MAX,
        connect_timeout: Duration = CONNECT_TIMEOUT,
        operation_timeout: Duration = OPERATION_TIMEOUT,
        receive_maximum: int = RECEIVE_MAXIMUM,
        maximum_packet_size: int = 0,
        topic_alias_maximum: int = TOPIC_ALIAS_MAXIMUM,
    ) -> None:
        address = parse_address(host, port, bool(tls))
        username = address.username if username is None else username
        password = address.password if password is None else password
        self._options: Final = ClientOptions(
            address=address,
            client_id=client_id,
            username=username,
            password=password.encode() if isinstance(password, str) else password,
            tls=_tls_context(address, tls),
            keep_alive=keep_alive,
            clean_start=clean_start,
            session_expiry_s=to_whole_seconds(session_expiry, "session_expiry"),
            will=will,
            version=version,
            reconnect=reconnect,
            reconnect_delay_s_max=to_positive_ns(reconnect_delay_max, "reconnect_delay_max") / SECOND,
            connect_timeout_s=to_positive_ns(connect_timeout, "connect_timeout") / SECOND,
            operation_timeout_s=to_positive_ns(operation_timeout, "operation_timeout") / SECOND,
            receive_maximum=receive_maximum,
            maximum_packet_size=maximum_packet_size,
            topic_alias_maximum=topic_alias_maximum,
        )
        self._options.check()
        random = Random()
        self._session: Final = ClientSession(self._options, random)
        self._keeper: Final = Keeper(self._options, self._session, random)
        self._requests: Final = Requests(self._subscribe_to_answers)

    # State

    @property
    def is_connected(self) -> bool:
        return self._session.connection is not None

    @property
    def client_id(self) -> str:
        """The client id: the one that the server assigned, if it did."""
        return self._keeper.client_id

    @property
    def session_present(self) -> bool:
        """Whether the server resumed a session at the last CONNECT."""
        connack = self._keeper.connack
        return connack is not None and connack.session_present

    @property
    def server_properties(self) -> Properties:
        """The properties of the server's last CONNACK."""
        connack = self._keeper.connack
        return Properties() if connack is None else connack.properties

    @property
    def reconnects(self) -> int:
        """The number of reconnections."""
        return self._keeper.reconnects

    @property
    def last_failure(self) -> ClientError | None:
        """The reason why the connection was last lost, or could not be made again."""
        return self._keeper.last_failure

    # Connecting

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.disconnect()

    async def connect(self) -> None:
        """Connect; the first connection has one attempt, so that a wrong address fails at once.

        Raises:
            ConnectError: the server refused, or could not be reached in time.
        """
        await self._keeper.open()

    async def disconnect(self, *, with_will: bool = False, session_expiry: Duration | None = None) -> None:
        """Send DISCONNECT and close; waiting calls raise NotConnected, iterators end.

        `with_will` asks the server to publish the will nevertheless, `session_expiry` changes
        how long it keeps the session. Both need MQTT 5.
        """
        if self._options.version != 5 and (with_will or session_expiry is not None):
            raise ValueError("with_will and session_expiry need MQTT 5 (version is 4)")
        packet = Disconnect(0x04 if with_will else 0x00)
        if session_expiry is not None:
            packet.properties.session_expiry_interval = to_whole_seconds(session_expiry, "session_expiry")
        await self._keeper.close(packet)
        self._requests.fail_all()

    async def ping(self) -> float:
        """Send a PINGREQ and return the seconds until its answer.

        A server answers in order, so it has then read everything that was sent before. Messages with
        QoS 0 have no acknowledgement, but a connection that the server ended because of one shows here.

        Raises:
            NotConnected: the connection ended before the answer, with the server's reason if it gave
                one, or there was no connection in time.
        """
        return await self._session.ping()

    # Publishing

    async def publish(
        self,
        topic: str,
        payload: Payload = None,
        *,
        qos: int = 0,
        retain: bool = False,
        timeout: Duration | None = None,  # noqa: ASYNC109  the message's, not the call's
        priority: int | None = None,
        expiry: Duration | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        user_properties: UserPropertiesLike | None = None,
    ) -> int:
        """Publish a message; with QoS 1 and 2 return when the server has acknowledged it.

        `timeout` is how long the message stays valid, counted from this call; the remaining time
        travels with it. `priority` is 0 to 9. `expiry` is MQTT's own, in whole seconds.
        Returns the reason code: 0, or 0x10 if the server reports no subscriber.

        Raises:
            PublishError: refused (a PublishRefused), too large, or too late to send.
            NotConnected: there was no connection in time.
            ValueError: MQTT cannot carry an argument.
        """
        check_topic(topic)
        check_qos(qos)
        passed_on = _passed_on(priority, content_type, response_topic, correlation_data, user_properties)
        timeout_ns = 0 if timeout is None else to_positive_ns(timeout, "timeout")
        expiry_s = -1 if expiry is None else to_whole_seconds(expiry, "expiry")
        if self._options.version != 5 and (passed_on or timeout_ns or expiry_s >= 0):
            raise ValueError("timeout, priority, expiry and properties need MQTT 5 (version is 4)")
        outgoing = OutgoingMessage(
            topic, to_payload(payload), qos, retain, passed_on, timeout_ns=timeout_ns, expiry_s=expiry_s
        )
        return await self._session.publish(outgoing)

    async def request(
        self,
        topic: str,
        payload: Payload = None,
        *,
        timeout: Duration = "5s",  # noqa: ASYNC109  it travels with the request
        qos: int = 1,
        user_properties: UserPropertiesLike | None = None,
    ) -> Message:
        """Publish a request and return the first answer to it; `reply` sends one.

        The request stays valid while the caller waits: `timeout` is both, and travels with it.

        Raises:
            TimeoutError: no answer came in time.
            PublishError: the request was refused, or nobody is subscribed to its topic.
            NotConnected: there was no connection in time.
        """
        limit_s = to_positive_ns(timeout, "timeout") / SECOND
        correlation_data = await self._requests.open()
        try:
            reason_code = await self.publish(
                topic,
                payload,
                qos=qos,
                timeout=timeout,
                response_topic=self._requests.topic,
                correlation_data=correlation_data,
                user_properties=user_properties,
            )
            if reason_code == _NO_MATCHING_SUBSCRIBERS:
                raise PublishRefused(topic, reason_code, "nobody can answer")
            return await self._requests.wait(correlation_data, limit_s)
        except TimeoutError:
            raise TimeoutError(
                f"no answer from {topic!r} within {format_duration(to_ns(timeout, 'timeout'))}"
            ) from None
        finally:
            self._requests.close(correlation_data)

    async def reply(
        self,
        message: Message,
        payload: Payload = None,
        *,
        qos: int = 1,
        timeout: Duration | None = None,  # noqa: ASYNC109  the message's, not the call's
    ) -> int:
        """Answer a request; returns and raises what `publish` does."""
        if message.response_topic is None:
            raise ValueError(f"message on {message.topic!r} has no response topic to answer to")
        return await self.publish(
            message.response_topic,
            payload,
            qos=qos,
            timeout=timeout,
            correlation_data=message.correlation_data,
        )

    # Advertising

    async def advertise(
        self,
        topic: str,
        *,
        period: Duration | None = None,
        rate: float | None = None,
        burst: int | None = None,
        size: int | None = None,
        weight: int | None = None,
        delay: Duration | None = None,
    ) -> str:
        """Advertise a flow to get a guaranteed delay bound; return the server's answer.

        One message per `period`, or `rate` per second, up to `burst` at once, of up to `size` bytes.
        `weight` raises the topic's share, `delay` is the longest acceptable delay. A Timebound broker
        admits the flow if all delay bounds still hold. The contract is renewed after a reconnection,
        and ends with `unadvertise` or `disconnect`.

        Raises:
            PublishError: refused; the reason names the bound that would break and what would fit.
            NotConnected: there was no connection in time.
            ValueError: an argument is out of range, or MQTT 3.1.1 is used, which has no properties.
        """
        outgoing = advertisement(
            topic, period=period, rate=rate, burst=burst, size=size, weight=weight, delay=delay
        )
        answer = await self._ask(outgoing)
        self._session.advertised.add(outgoing)
        return answer

    async def unadvertise(self, topic: str) -> None:
        """End the contract of an advertised flow; raises what `publish` does."""
        outgoing = withdrawal(topic)
        self._session.advertised.remove(outgoing)
        await self._ask(outgoing)

    async def control(self, request: str, payload: Payload = None) -> str:
        """Send a request such as `control("control/strategy", "fifo")` to the broker; return its answer.

        `request` is the topic without `$timebound/`.

        Raises:
            PublishError: refused, with the broker's reason, or the server is not a Timebound broker.
            NotConnected: there was no connection in time.
            ValueError: an argument is invalid, or MQTT 3.1.1 is used, whose answers have no text.
        """
        topic = f"$timebound/{request}"
        check_topic(topic)
        return await self._ask(OutgoingMessage(topic, to_payload(payload), 1, False, b""))

    async def _ask(self, outgoing: OutgoingMessage) -> str:
        if self._options.version != 5:
            raise ValueError("requests to the broker, such as advertising, need MQTT 5 (version is 4)")
        reason_code = await self._session.publish(outgoing)
        if reason_code == _NO_MATCHING_SUBSCRIBERS or not outgoing.answer:
            raise NotTimebound(outgoing.topic)
        return outgoing.answer

    # Subscribing

    def subscribe(
        self,
        *topic_filters: str,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: UserPropertiesLike | None = None,
        queue_size: int = QUEUE_SIZE,
        **terms: Unpack[TermArguments],
    ) -> Subscription:
        """Return a subscription; it begins when it is first awaited, iterated or entered.

        Of the terms, `where` selects by content, `deadline` is the age allowed on arrival, `price` is earned
        by a message in time and `penalty` paid for a late one; docs/wire.md lists all. Subscriptions to one
        filter need different names (`name`). `properties` are further user properties.
        Up to `queue_size` unread messages with QoS 0 are kept; beyond it the oldest are dropped.

        Raises:
            ValueError: MQTT cannot carry an argument. If the server refuses, SubscribeError is raised
                when the subscription is first awaited, iterated or entered.
        """
        if not topic_filters:
            raise ValueError("no topic filter is given")
        for topic_filter in topic_filters:
            check_filter(topic_filter)
        check_qos(qos)
        if retain_handling not in (0, 1, 2):
            raise ValueError(f"retain_handling is {retain_handling!r}; it must be 0, 1 or 2")
        if queue_size < 1:
            raise ValueError(f"queue_size is {queue_size!r}; it must be at least 1")
        wanted = Properties()
        wanted.user_properties = to_user_properties(properties) + term_properties(terms)
        has_options = no_local or retain_as_published or retain_handling
        if self._options.version != 5 and (wanted.user_properties or has_options):
            raise ValueError("terms such as where and deadline, and options, need MQTT 5 (version is 4)")
        entries = [
            SubscribeEntry(topic_filter, qos, no_local, retain_as_published, retain_handling)
            for topic_filter in topic_filters
        ]
        return Subscription(self._session, entries, wanted, queue_size=queue_size)

    def _subscribe_to_answers(self, topic_filter: str, consumer: Requests) -> Subscription:
        entries = [SubscribeEntry(topic_filter, 1)]
        return Subscription(self._session, entries, Properties(), consumer=consumer)


def _passed_on(
    priority: int | None,
    content_type: str | None,
    response_topic: str | None,
    correlation_data: bytes | None,
    user_properties: UserPropertiesLike | None,
) -> bytes:
    """Encode the properties of a message that a server passes on unaltered."""
    given = (priority, content_type, response_topic, correlation_data, user_properties)
    if given == _NO_PROPERTIES:
        return b""
    properties = Properties()
    properties.content_type = content_type
    properties.correlation_data = correlation_data
    if response_topic is not None:
        check_topic(response_topic, "response topic")
        properties.response_topic = response_topic
    properties.user_properties = to_user_properties(user_properties)
    if priority is not None:
        properties.user_properties.append(("priority", priority_text(priority)))
    return properties.encode_passed_on()


def _tls_context(address: Address, tls: bool | ssl.SSLContext) -> ssl.SSLContext | None:
    if isinstance(tls, ssl.SSLContext):
        return tls
    return ssl.create_default_context() if address.is_tls else None
