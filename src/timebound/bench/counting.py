"""Counts what a connection receives, many packets at a time; the load generator's hot path.

A generator that decoded every message would measure itself. Load consists of long runs of
packets with the same fixed header, so a run is recognised as a whole: from a known packet
boundary, if the header bytes repeat at a distance of one packet size, each repetition is again a
boundary. The comparison takes one strided slice per header byte, which is C code even where this
module is not compiled; acknowledgements are written the same way, as columns.

The payload of a sampled message starts with `STAMP_MARK` and the sender's monotonic clock.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from timebound.errors import MalformedPacket
from timebound.wire import packet_types as types

STAMP: Final = struct.Struct(">BQ")  # mark, monotonic nanoseconds
STAMP_SIZE: Final = STAMP.size
STAMP_MARK: Final = 0xF5
_STAMP_MARK_BYTE: Final = b"\xf5"
_REFUSED_FROM: Final = 0x80  # reason codes from here on are failures (MQTT 5, 2.4)
_LENGTH_BYTES_MAX: Final = 4


class Samples:
    """Latencies in nanoseconds of the messages received while `is_open`."""

    __slots__ = ("is_open", "latencies_ns")

    def __init__(self) -> None:
        self.is_open = False
        self.latencies_ns = array("q")


class Scanner:
    """Counts what one connection receives: messages, acknowledgements, refusals.

    `replies` collects the answers that MQTT requires (PUBACK, PUBREC, PUBREL, PUBCOMP); the owner
    sends and clears it. `payload_size` locates a payload from the end of its packet, so that
    properties and topics need not be parsed.
    """

    __slots__ = (
        "acknowledged",
        "disconnect_reason",
        "payload_size",
        "publishes",
        "refused",
        "replies",
        "samples",
    )

    def __init__(self, payload_size: int, samples: Samples) -> None:
        self.payload_size = payload_size
        self.samples = samples
        self.publishes = 0  # PUBLISH packets received
        self.acknowledged = 0  # own messages whose exchange is complete: PUBACK, PUBCOMP, or refused
        self.refused = 0  # of these, refused with a reason code
        self.disconnect_reason = -1  # reason code of a DISCONNECT; -1 = none
        self.replies = bytearray()

    def scan(self, data: bytearray, end: int, now_ns: int) -> int:
        """Count the whole packets in data[:end]; return their number of bytes.

        The caller prepends the rest to the next piece.

        Raises:
            MalformedPacket: a length of more than four bytes, or no room for a packet id.
        """
        position = 0
        while position + 1 < end:
            length = 0
            start = position + 1
            more = True
            while more and start < end:
                if start - position > _LENGTH_BYTES_MAX:
                    raise MalformedPacket("remaining length has more than four bytes")
                byte = data[start]
                length |= (byte & 0x7F) << (7 * (start - position - 1))
                more = byte >= 0x80
                start += 1
            size = start - position + length
            if more or position + size > end:
                break
            position += self._take_run(data, position, start - position, size, end, now_ns)
        return position

    def _take_run(
        self, data: bytearray, position: int, header_size: int, size: int, end: int, now_ns: int
    ) -> int:
        """Count the packet at `position` and all that follow with the same header; return their bytes."""
        kind = data[position] >> 4
        qos = (data[position] >> 1) & 3
        is_publish = kind == types.PUBLISH
        if types.PUBACK <= kind <= types.PUBCOMP and size < header_size + 2:
            raise MalformedPacket(f"{types.NAMES[kind]} of {size} bytes has no room for its packet id")
        # With a packet id the topic's length counts as header, because the id follows the topic.
        same_size = header_size + 2 if is_publish and qos and size > header_size + 2 else header_size
        count = run_length(data, position, same_size, size, (end - position) // size)
        if is_publish:
            self._take_publishes(data, position, header_size, size, count, qos, now_ns)
        elif kind == types.PUBREL:
            self.replies += acknowledgements(0x70, data, position + header_size, size, count)
        elif types.PUBACK <= kind <= types.PUBCOMP:
            self._take_acknowledgements(data, position, header_size, size, count, kind)
        elif kind == types.DISCONNECT:
            self.disconnect_reason = data[position + 2] if size > 2 else 0
        return count * size

    def _take_publishes(
        self,
        data: bytearray,
        position: int,
        header_size: int,
        size: int,
        count: int,
        qos: int,
        now_ns: int,
    ) -> None:
        self.publishes += count
        if qos:
            topic = position + header_size
            packet_id = topic + 2 + (data[topic] << 8) + data[topic + 1] if size > header_size + 1 else topic
            if packet_id + 2 > position + size:
                raise MalformedPacket(f"PUBLISH of {size} bytes has no room for its packet id")
            self.replies += acknowledgements(0x40 if qos == 1 else 0x50, data, packet_id, size, count)
        if not self.samples.is_open or not STAMP_SIZE <= self.payload_size < size:
            return
        payload = position + size - self.payload_size
        marks = data[payload : position + count * size : size]
        latencies_ns = self.samples.latencies_ns
        index = marks.find(_STAMP_MARK_BYTE)
        while index >= 0:
            stamp = payload + index * size
            latencies_ns.append(now_ns - int.from_bytes(data[stamp + 1 : stamp + STAMP_SIZE], "big"))
            index = marks.find(_STAMP_MARK_BYTE, index + 1)

    def _take_acknowledgements(
        self, data: bytearray, position: int, header_size: int, size: int, count: int, kind: int
    ) -> None:
        """Count PUBACK and PUBCOMP as the end of an exchange; answer PUBREC with PUBREL."""
        refused = 0
        if size > header_size + 2:  # with a reason code, MQTT 5 only
            reasons = bytes(data[position + header_size + 2 : position + count * size : size])
            refused = sum([1 for reason in reasons if reason >= _REFUSED_FROM])
        if kind != types.PUBREC:
            self.acknowledged += count
            self.refused += refused
            return
        if not refused:
            self.replies += acknowledgements(0x62, data, position + header_size, size, count)
            return
        # MQTT 5, 4.3.3: a refused message ends with its PUBREC, the others continue.
        self.acknowledged += refused
        self.refused += refused
        for start in range(position, position + count * size, size):
            if data[start + header_size + 2] < _REFUSED_FROM:
                self.replies += acknowledgements(0x62, data, start + header_size, size, 1)


def run_length(data: bytearray, position: int, header_size: int, size: int, limit: int) -> int:
    """Return the number of packets of `size` bytes, at most `limit`, that share the header at `position`."""
    for offset in range(position, position + header_size):
        if limit == 1:
            break
        column = data[offset : position + limit * size : size]
        # Nearly always all are equal, and one comparison is cheaper than a search.
        if column != column[:1] * limit:
            limit -= len(column.lstrip(column[:1]))
    return limit


def acknowledgements(first_byte: int, data: bytearray, packet_id: int, size: int, count: int) -> bytearray:
    """Return `count` acknowledgements for the packet ids at `packet_id`, `packet_id + size`, ..."""
    block = bytearray(4 * count)
    stop = packet_id + (count - 1) * size + 2
    block[0::4] = bytes([first_byte]) * count
    block[1::4] = b"\x02" * count
    block[2::4] = data[packet_id : stop - 1 : size]
    block[3::4] = data[packet_id + 1 : stop : size]
    return block
