"""A simulated client: it speaks MQTT over a cable, keeps its session, and notes what it sends and gets.

It resends what was not acknowledged when its session is still there, acknowledges after a delay, and connects
again whenever its connection fails. Everything that it promises by the standard it keeps, so whatever is
wrong is the broker's mistake.

Long, since what is sent, received and asked for is one state, the client's side of a session.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from timebound.sim.deployment.history import (
    ERROR_MIN,
    ID_PROPERTY,
    AskedSubscription,
    History,
    Received,
    SentMessage,
    number_in,
    payload_of,
    properties_of,
)
from timebound.sim.deployment.links import Cable
from timebound.sim.deployment.script import ClientSetting
from timebound.sim.deployment.timers import VirtualClock
from timebound.terms import with_name
from timebound.units import MILLISECOND, SECOND, parse_duration
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
    Will,
)
from timebound.wire.properties import Properties, encode_user_property

PUBACK, PUBREC, PUBREL, PUBCOMP = 4, 5, 6, 7
RETRY_NS: Final = 500 * MILLISECOND
PACKET_ID_MAX: Final = 65_535


class OpenPublish:
    """A message with QoS 1 or 2 that is not acknowledged to the end."""

    def __init__(self, packet: Publish, sent: SentMessage) -> None:
        self.packet = packet
        self.sent = sent
        self.is_received = False  # PUBREC was seen


class ClientEnd:
    """One connection of a client: what an earlier one still gets is not read any more."""

    def __init__(self, client: SimClient, cable: Cable) -> None:
        self._client = client
        self._cable = cable
        cable.attach(self)

    def data_received(self, data: bytes) -> None:
        if self._client.has(self._cable):
            self._client.data_received(data)

    def connection_lost(self) -> None:
        if self._client.has(self._cable):
            self._client.connection_lost()

    def pause_writing(self) -> None:
        """Write on: a simulated client writes little."""

    def resume_writing(self) -> None:
        """Nothing has waited."""


class SimClient:
    """One client, over all its connections."""

    def __init__(
        self,
        setting: ClientSetting,
        clock: VirtualClock,
        history: History,
        dial: Callable[[ClientSetting], Cable | None],
    ) -> None:
        self.setting = setting
        self.clock = clock
        self.is_wanted = False  # it should be connected
        self.is_open = False  # CONNACK was seen
        self.violations: list[str] = []  # of the standard, by the broker
        self.run = 0  # counts its sessions, at the broker
        self._history = history
        self._dial = dial
        self._cable: Cable | None = None
        self._decoder = Decoder(5, is_server=False)
        self._connection = 0
        self._is_clean = setting.clean_start
        self._will: dict[str, Any] | None = None
        self._last_id = 0
        self._sending: dict[int, OpenPublish] = {}  # by packet id, oldest first
        self._server_maximum = 65_535  # its Receive Maximum
        self._waiting: list[tuple[Publish, SentMessage]] = []  # QoS 1 and 2 above it
        self._receiving: dict[int, int] = {}  # QoS 2 packet ids, with their messages
        self._unacknowledged: set[int] = set()  # packet ids that count against the own maximum
        self._asked: dict[int, list[AskedSubscription]] = {}  # by packet id
        self._held: dict[str, AskedSubscription] = {}  # by filter and name
        self._is_mute = False
        self._unanswered = 0  # CONNECT packets since the last CONNACK
        self._ack_delay_ns = setting.ack_delay_ns
        self._aliases: dict[int, str] = {}
        # What it repeats after a new CONNACK, if it renews: requests always, as flows end with the
        # connection, and subscriptions if its session is gone.
        self._subscribing: dict[tuple[tuple[str, ...], str], Callable[[], None]] = {}
        self._requesting: dict[str, Callable[[], None]] = {}

    # --- what it does -----------------------------------------------------------------

    def connect(self, *, clean: bool | None = None, will: dict[str, Any] | None = None) -> None:
        """Connect, and again after every failure, until `disconnect` or `vanish`."""
        self.is_wanted = True
        self._is_clean = self.setting.clean_start if clean is None else clean
        self._will = will if will is not None else self.setting.will
        if self._cable is None:
            self._open()
        else:  # a second connection takes over from the first
            self._forget_connection()
            self._open()

    def disconnect(self, *, code: int = 0, expiry_s: int | None = None) -> None:
        """Send DISCONNECT; a code other than 0 leaves the will in force."""
        self.is_wanted = False
        cable = self._cable
        if cable is None:
            return
        if self.is_open:
            properties = Properties()
            properties.session_expiry_interval = expiry_s if self.setting.version == 5 else None
            self._write(Disconnect(code if self.setting.version == 5 else 0, properties))
        self._forget_connection()
        cable.close()

    def vanish(self) -> None:
        """Lose the connection without a word, and stay away."""
        self.is_wanted = False
        cable = self._cable
        self._forget_connection()
        if cable is not None:
            cable.cut()

    def mute(self) -> None:
        """Stop reading and sending, with the connection open."""
        self._is_mute = True
        if self._cable is not None:
            self._cable.pause_reading()

    def speak(self) -> None:
        """Read and send again."""
        self._is_mute = False
        if self._cable is not None:
            self._cable.resume_reading()

    def hurry(self) -> None:
        """Acknowledge at once from now on, and end what would never come to rest."""
        self._ack_delay_ns = 0
        # Also of those that may have been ended: a crash may have lost an UNSUBSCRIBE.
        timed = {
            (one.topic_filter, one.terms.get("name", "")): None
            for one in self._history.subscriptions
            if (one.client, one.run) == (self.setting.name, self.run)
            and ("watchdog" in one.terms or "every" in one.terms)
        }
        for topic_filter, name in timed:
            self.unsubscribe(topic_filter, name)

    def subscribe(self, entries: list[dict[str, Any]], terms: dict[str, str], identifier: int = 0) -> None:
        """Ask for some filters with the same terms."""
        key = (tuple(entry["topic_filter"] for entry in entries), terms.get("name", ""))
        self._subscribing[key] = partial(self.subscribe, entries, terms, identifier)
        if not self.is_open or self._is_mute:
            return
        if self.setting.version != 5:
            terms, identifier = {}, 0
        packet_id = self._next_id()
        asked = []
        for entry in entries:
            one = AskedSubscription(
                self.setting.name,
                self.run,
                self.setting.node,
                entry["topic_filter"],
                entry.get("qos", 0),
                entry.get("no_local", False) and self.setting.version == 5,
                terms,
                self.clock.now_ns(),
                entry.get("retain_handling", 0) if self.setting.version == 5 else 0,
            )
            asked.append(one)
            self._history.subscriptions.append(one)
        self._asked[packet_id] = asked
        properties = properties_of(terms)
        if identifier:
            properties.subscription_identifiers = [identifier]
        wanted = [
            SubscribeEntry(
                one.topic_filter,
                one.qos,
                one.no_local,
                entry.get("retain_as_published", False) and self.setting.version == 5,
                one.retain_handling,
            )
            for one, entry in zip(asked, entries, strict=True)
        ]
        self._write(Subscribe(packet_id, wanted, properties))

    def unsubscribe(self, topic_filter: str, name: str | None) -> None:
        """End the subscriptions to a filter, or the one of a name."""
        for key in [key for key in self._subscribing if key[0] == (topic_filter,) and name in (None, key[1])]:
            del self._subscribing[key]
        if not self.is_open or self._is_mute:
            return
        if self.setting.version != 5:
            name = None  # it cannot be told
        packet_id = self._next_id()
        asked = [one for some in self._asked.values() for one in some]
        ended = [
            one
            for one in [*self._held.values(), *asked]
            if one.topic_filter == topic_filter and name in (None, one.terms.get("name", ""))
        ]
        for one in ended:
            one.ended_ns = self.clock.now_ns()
            self._held.pop(with_name(one.topic_filter, one.terms.get("name", "")), None)
        properties = properties_of({} if name is None else {"name": name})
        self._write(Unsubscribe(packet_id, [topic_filter], properties))

    def publish(self, number: int, what: dict[str, Any]) -> None:
        """Publish a message; one with QoS 1 or 2 waits if the broker's Receive Maximum is used up."""
        if not self.is_open or self._is_mute:
            return
        properties: list[tuple[str, str]] = []
        is_v5 = self.setting.version == 5
        if is_v5:
            properties = [(ID_PROPERTY, str(number))]
            properties += [(name, what[name]) for name in ("kind", "timeout", "priority") if name in what]
            properties += what.get("properties", {}).items()
        named = dict(properties)
        expiry_s = what.get("expiry_s", -1) if is_v5 else -1
        is_empty = bool(what.get("is_empty", False)) and is_v5  # nothing else tells which one it is
        level = what.get("level", 0)
        sent = SentMessage(
            number,
            self.setting.name,
            self.run,
            what["topic"],
            what.get("qos", 0),
            what.get("retain", False),
            is_empty,
            self.clock.now_ns(),
            named.get("kind", ""),
            level,
            parse_duration(named["timeout"]) if "timeout" in named else 0,
            expiry_s,
            int(named.get("priority", "0")),
            place=len(self._history.messages),
            properties=tuple(properties),
        )
        self._history.messages[number] = sent
        packet = Publish(
            sent.topic,
            b"" if is_empty else payload_of(number, level, what.get("size", 0)),
            sent.qos,
            sent.retain,
            message_expiry_interval=expiry_s,
            user_properties=tuple(properties),
            passed_on=b"".join(encode_user_property(name, value) for name, value in properties),
        )
        if not packet.qos:
            self._write(packet)
        elif len(self._sending) >= self._server_maximum:
            self._waiting.append((packet, sent))
        else:
            self._send(packet, sent)

    def request(
        self, number: int, topic: str, payload: str = "", terms: dict[str, str] | None = None
    ) -> None:
        """Ask the broker itself for something by a message with QoS 1, such as to admit a flow."""
        self._requesting[topic] = partial(self.request, number, topic, payload, terms)
        if not self.is_open or self._is_mute:
            return
        asked: list[tuple[str, str]] = []
        if self.setting.version == 5 and terms:
            asked += terms.items()
        sent = SentMessage(
            number, self.setting.name, self.run, topic, 1, False, False, self.clock.now_ns(), "", 0
        )
        self._history.requests.append(sent)
        packet = Publish(topic, payload.encode(), 1, False, user_properties=tuple(asked))
        packet.passed_on = b"".join(encode_user_property(name, value) for name, value in asked)
        if len(self._sending) >= self._server_maximum:
            self._waiting.append((packet, sent))
        else:
            self._send(packet, sent)

    def _send(self, packet: Publish, sent: SentMessage) -> None:
        packet.packet_id = self._next_id()
        sent.sent_ns = self.clock.now_ns()
        self._sending[packet.packet_id] = OpenPublish(packet, sent)
        self._write(packet)

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % PACKET_ID_MAX + 1
            if self._last_id not in self._sending and self._last_id not in self._asked:
                return self._last_id

    # --- connections ------------------------------------------------------------------

    def _open(self) -> None:
        setting = self.setting
        if not self.is_wanted or self._cable is not None:
            return
        cable = self._dial(setting)
        if cable is None:
            self._retry()
            return
        self._connection += 1
        self._history.connections[setting.name, self._connection] = self.clock.now_ns()
        self._cable = cable
        if self._is_clean:
            self._begin_run()  # both sides forget what was before [MQTT-3.1.2-4]
        # A decoder refuses what is larger than announced.
        size_max = setting.packet_size_max or 1 << 28
        self._decoder = Decoder(setting.version, is_server=False, packet_size_max=size_max)
        ClientEnd(self, cable)
        if self._is_mute:
            cable.pause_reading()
        properties = Properties()
        if setting.version == 5:
            properties.session_expiry_interval = setting.expiry_s or None
            properties.receive_maximum = setting.receive_maximum
            properties.maximum_packet_size = setting.packet_size_max or None
        self._unanswered += 1
        self._write(
            Connect(
                setting.name,
                setting.version,
                clean_start=self._is_clean,
                keep_alive=setting.keep_alive_s,
                username=setting.user or None,
                will=None if self._will is None else _will(self._will, setting.version),
                properties=properties,
            )
        )
        self._note_will()
        connection = self._connection
        self._later(10 * SECOND, lambda: self._give_up(connection))

    def _note_will(self) -> None:
        what = self._will
        if what is not None and what["number"] not in self._history.messages:
            self._history.messages[what["number"]] = SentMessage(
                what["number"],
                self.setting.name,
                self.run,
                what["topic"],
                what.get("qos", 0),
                what.get("retain", False),
                False,
                self.clock.now_ns(),
                "",
                0,
                is_will=True,
            )

    def _give_up(self, connection: int) -> None:
        if connection == self._connection and not self.is_open and self._cable is not None:
            cable = self._cable
            self._forget_connection()
            cable.cut()
            self._retry()

    def _retry(self) -> None:
        self._later(RETRY_NS, self._open)

    def _forget_connection(self) -> None:
        self._cable = None
        self.is_open = False
        self._unacknowledged.clear()
        self._asked.clear()
        self._aliases.clear()

    def connection_lost(self) -> None:
        self._forget_connection()
        self._retry()

    def has(self, cable: Cable) -> bool:
        """Whether a connection is the present one."""
        return self._cable is cable

    def _ping(self, connection: int) -> None:
        if connection == self._connection and self._cable is not None:
            if not self._is_mute:
                self._write(Pingreq())
            self._later(self.setting.keep_alive_s * SECOND // 2, lambda: self._ping(connection))

    def _later(self, delay_ns: int, callback: Callable[[], None]) -> None:
        self.clock.call_at_ns(self.clock.now_ns() + delay_ns, callback)

    def _write(self, packet: Packet) -> None:
        if self._cable is not None:
            self._cable.write(encode(packet, self.setting.version))

    # --- what it gets -----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        packets = self._decoder.feed(data)
        if self._decoder.error is not None:
            self.violations.append(f"sent what cannot be read: {self._decoder.error}")
        for packet in packets:
            if self._cable is None:
                return
            self._take(packet)

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._on_publish(packet)
        elif isinstance(packet, Ack):
            self._on_ack(packet)
        elif isinstance(packet, Connack):
            self._on_connack(packet)
        elif isinstance(packet, Suback):
            self._on_suback(packet)
        elif isinstance(packet, Disconnect):
            self._history.count("disconnected by the broker")
            self._history.note(self.clock.now_ns(), self.setting.name, packet.reason_code)
            cable = self._cable
            self._forget_connection()
            if cable is not None:
                cable.close()
            if packet.reason_code != 0x8E:  # who took over is this client as well
                self._retry()
        elif isinstance(packet, Unsuback):
            self._history.note("unsuback", packet.reason_codes)

    def _on_connack(self, packet: Connack) -> None:
        if self.is_open:
            self.violations.append("sent CONNACK twice")
        if packet.reason_code:
            cable = self._cable
            self._forget_connection()
            if cable is not None:
                cable.close()
            self._retry()
            return
        self.is_open = True
        if packet.session_present and self._is_clean:
            self.violations.append("kept a session although Clean Start was set")
        if not packet.session_present:
            self._begin_run()
        elif self._unanswered > 1:
            if not self.run:
                self._begin_run()
            self._history.unsure.add((self.setting.name, self.run))
        elif not self.run:
            self.violations.append("claims a session that never was")
        self._unanswered = 0
        self._is_clean = False
        self._server_maximum = packet.properties.receive_maximum or 65_535
        for entry in list(self._sending.values()):
            if entry.is_received:
                self._write(Ack(PUBREL, entry.packet.packet_id))
            else:
                entry.packet.dup = True
                entry.sent.is_resent = True
                self._history.count("publisher resends")
                self._write(entry.packet)
        if self.setting.keep_alive_s:
            self._ping(self._connection)
        if self.setting.renews:
            self._renew(has_session=packet.session_present)

    def _renew(self, *, has_session: bool) -> None:
        """Ask again for what the broker does not have any more."""
        lost = [] if has_session else list(self._subscribing.values())
        for ask in [*lost, *self._requesting.values()]:
            ask()

    def _begin_run(self) -> None:
        """Begin a new session: nothing of the one before is left."""
        now_ns = self.clock.now_ns()
        self._history.run_ends[self.setting.name, self.run] = now_ns
        self.run += 1
        self._history.runs[self.setting.name] = self.run
        self._sending.clear()
        self._waiting.clear()
        self._receiving.clear()
        for one in self._held.values():
            one.ended_ns = now_ns
        self._held.clear()

    def _on_suback(self, packet: Suback) -> None:
        for one, code in zip(self._asked.pop(packet.packet_id, []), packet.reason_codes, strict=True):
            one.granted_ns = self.clock.now_ns()
            one.code = code
            self._history.note("suback", one.client, one.topic_filter, code)
            if code >= ERROR_MIN:
                self._history.count("refused subscribe")
                continue
            if one.ended_ns >= 0:
                continue  # an UNSUBSCRIBE followed it
            key = with_name(one.topic_filter, one.terms.get("name", ""))
            old = self._held.pop(key, None)
            if old is not None:
                old.ended_ns = one.asked_ns
            self._held[key] = one

    def _on_ack(self, packet: Ack) -> None:
        if packet.kind == PUBREL:
            self._receiving.pop(packet.packet_id, None)
            self._write(Ack(PUBCOMP, packet.packet_id))
            self._unacknowledged.discard(packet.packet_id)
            return
        entry = self._sending.get(packet.packet_id)
        if entry is None:
            return
        sent = entry.sent
        if packet.kind in (PUBACK, PUBREC) and sent.acked_ns < 0:
            sent.acked_ns, sent.code = self.clock.now_ns(), packet.reason_code
            self._history.note("ack", sent.number, packet.reason_code, sent.acked_ns)
        if packet.kind == PUBREC and packet.reason_code < ERROR_MIN:
            entry.is_received = True
            self._write(Ack(PUBREL, packet.packet_id))
            return
        del self._sending[packet.packet_id]
        if self._waiting:
            self._send(*self._waiting.pop(0))

    def _on_publish(self, packet: Publish) -> None:
        number = number_in(packet.payload, packet.user_properties)
        is_new = True
        if packet.qos:
            is_new = self._receive_qos(packet, number)
        if not packet.payload and not number:
            return  # nothing in it tells which one it is
        properties = dict(packet.user_properties)
        arrival = Received(
            self.setting.name,
            self.run,
            self._connection,
            self.setting.node,
            packet.topic,
            packet.qos,
            packet.retain,
            packet.dup,
            self.clock.now_ns(),
            number,
            is_new,
            properties.get("correlated", ""),
        )
        self._history.arrivals.append(arrival)
        self._history.note(arrival.client, arrival.topic, number, arrival.qos, packet.dup, arrival.time_ns)

    def _receive_qos(self, packet: Publish, number: int) -> bool:
        """Acknowledge a message with QoS 1 or 2, later; return whether it is new to the application."""
        packet_id = packet.packet_id
        is_new = True
        if packet.qos == 2 and packet_id in self._receiving:
            is_new = False
            self._history.count("QoS 2 message told apart by its packet id")
            if self._receiving[packet_id] != number:
                self.violations.append(f"used packet id {packet_id} again before PUBCOMP")
        if packet.dup:
            self._history.count("resend")
        self._unacknowledged.add(packet_id)
        if len(self._unacknowledged) > self.setting.receive_maximum and self.setting.version == 5:
            self.violations.append(f"exceeded the Receive Maximum of {self.setting.receive_maximum}")
        if packet.qos == 2:
            self._receiving[packet_id] = number
        connection = self._connection
        kind = PUBACK if packet.qos == 1 else PUBREC
        self._later(self._ack_delay_ns, lambda: self._acknowledge(kind, packet_id, connection))
        return is_new

    def _acknowledge(self, kind: int, packet_id: int, connection: int) -> None:
        if connection != self._connection or self._cable is None:
            return
        if self._is_mute:
            self._later(SECOND, lambda: self._acknowledge(kind, packet_id, connection))
            return
        self._write(Ack(kind, packet_id))
        if kind == PUBACK:
            self._unacknowledged.discard(packet_id)


def _will(what: dict[str, Any], version: int) -> Will:
    properties = Properties()
    if version == 5 and what.get("delay_s"):
        properties.will_delay_interval = what["delay_s"]
    payload = payload_of(what["number"], 0, 0)
    return Will(what["topic"], payload, what.get("qos", 0), what.get("retain", False), properties)
