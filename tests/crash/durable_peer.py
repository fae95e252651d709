"""An MQTT 5 client that keeps its session state as the standard asks, whatever the broker does.

It remembers, across connections, the packets it has not seen acknowledged and the packet ids
of QoS 2 messages it has received and not yet seen released. So what arrives twice here would
arrive twice at any correct client.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from timebound.wire import packet_types as types
from timebound.wire.codec import Decoder, encode, encode_ack
from timebound.wire.packets import Ack, Connack, Connect, Packet, Publish, Suback, Subscribe, SubscribeEntry
from timebound.wire.properties import Properties

WAIT_S = 20.0
NO_MATCHING_SUBSCRIBERS = 0x10


class DurablePeer:
    """One client id with a session that never expires."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.received: Counter[bytes] = Counter()
        self.acknowledged: set[bytes] = set()
        self.unwanted: set[bytes] = set()  # of these: without a matching subscription
        self.is_session_present = False
        self._unfinished: dict[int, tuple[str, bytes, int, bool]] = {}  # topic, payload, qos, released
        self._unreleased: set[int] = set()
        self._next_id = 1
        self._writer: asyncio.StreamWriter | None = None
        self._reader_task: asyncio.Task[None] | None = None
        self._answers: asyncio.Queue[Packet] = asyncio.Queue()
        self.changed = asyncio.Event()

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    @property
    def is_connected(self) -> bool:
        return self._writer is not None

    async def connect(self, host: str, port: int) -> None:
        """Connect, resume the session, and send again what was not acknowledged."""
        reader, writer = await asyncio.open_connection(host, port)
        properties = Properties()
        properties.session_expiry_interval = 0xFFFFFFFF
        writer.write(encode(Connect(self.client_id, clean_start=False, properties=properties), 5))
        self._answers = asyncio.Queue()
        self._writer = writer
        self._reader_task = asyncio.create_task(self._read(reader))
        connack = await asyncio.wait_for(self._answers.get(), WAIT_S)
        assert isinstance(connack, Connack)
        assert connack.reason_code == 0
        self.is_session_present = connack.session_present
        for packet_id, (topic, payload, qos, is_released) in list(self._unfinished.items()):
            if is_released:
                writer.write(encode_ack(types.PUBREL, packet_id, 0, 5))
            else:
                writer.write(encode(Publish(topic, payload, qos, False, True, packet_id), 5))

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        assert self._writer is not None
        self._writer.write(encode(Subscribe(1, [SubscribeEntry(topic_filter, qos)]), 5))
        suback = await asyncio.wait_for(self._answers.get(), WAIT_S)
        assert isinstance(suback, Suback)
        assert suback.reason_codes == [qos]

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        """Send a message and remember it until the broker has taken responsibility for it."""
        while self._next_id in self._unfinished:
            self._next_id = self._next_id % 65_535 + 1
        packet_id = self._next_id
        self._next_id = self._next_id % 65_535 + 1
        self._unfinished[packet_id] = (topic, payload, qos, False)
        if self._writer is not None:
            self._writer.write(encode(Publish(topic, payload, qos, False, False, packet_id), 5))

    async def lost(self) -> None:
        """Wait until the connection is gone, as after a kill."""
        if self._reader_task is not None:
            await asyncio.wait_for(self._reader_task, WAIT_S)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        await self.lost()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder = Decoder(5, is_server=False)
        try:
            while data := await reader.read(65_536):
                for packet in decoder.feed(data):
                    self._take(packet)
                assert decoder.error is None, decoder.error
                self.changed.set()
        except ConnectionError:
            pass
        finally:
            if self._writer is not None:
                self._writer.close()
            self._writer = None
            self.changed.set()

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._take_publish(packet)
        elif isinstance(packet, Ack):
            self._take_ack(packet)
        else:
            self._answers.put_nowait(packet)

    def _take_publish(self, packet: Publish) -> None:
        if packet.qos < 2 or packet.packet_id not in self._unreleased:
            self.received[packet.payload] += 1
        if packet.qos == 1:
            self._send_ack(types.PUBACK, packet.packet_id)
        elif packet.qos == 2:
            self._unreleased.add(packet.packet_id)
            self._send_ack(types.PUBREC, packet.packet_id)

    def _take_ack(self, packet: Ack) -> None:
        if packet.kind == types.PUBREL:
            self._unreleased.discard(packet.packet_id)
            self._send_ack(types.PUBCOMP, packet.packet_id)
            return
        known = self._unfinished.get(packet.packet_id)
        if known is None:
            return
        topic, payload, qos, _ = known
        if packet.kind == types.PUBREC:
            # From here on the broker answers for the message; the rest frees the packet id.
            self.acknowledged.add(payload)
            self._unfinished[packet.packet_id] = (topic, payload, qos, True)
            self._send_ack(types.PUBREL, packet.packet_id)
        else:
            self.acknowledged.add(payload)
            if packet.reason_code == NO_MATCHING_SUBSCRIBERS:
                self.unwanted.add(payload)
            del self._unfinished[packet.packet_id]

    def _send_ack(self, kind: int, packet_id: int) -> None:
        if self._writer is not None:
            self._writer.write(encode_ack(kind, packet_id, 0, 5))
