"""What the MQTT standards demand of bytes and packets, row by row, with the clause each row shows.

Clauses are those of MQTT 5.0 unless a row is for version 4, where they are those of MQTT 3.1.1.
A row is one packet and what the decoder of a server (or client) has to make of it: 0 means
that it is accepted, any other number is the reason code it is refused with. Clauses that need a
session or a network are shown elsewhere.
"""

from __future__ import annotations

import pytest

from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connect, Publish

SERVER = True
CLIENT = False
OK = 0
MALFORMED = 0x81
PROTOCOL = 0x82
VERSION = 0x84
ALIAS = 0x94

# A CONNECT up to its flags, and the usual rest: keep alive, no properties, client identifier "a".
HEAD_5 = "0004 4d515454 05"
HEAD_4 = "0004 4d515454 04"


def connect(flags: str, rest: str = "0000 00 0001 61", head: str = HEAD_5) -> str:
    body = bytes.fromhex(head + flags + rest)
    return f"10 {len(body):02x} {body.hex()}"


ROWS = [
    # Strings and integers
    ("MQTT-1.5.4-1", 5, SERVER, "30 05 0002 c328 00", MALFORMED),
    ("MQTT-1.5.4-1", 5, SERVER, "30 06 0003 eda080 00", MALFORMED),
    ("MQTT-1.5.4-1", 5, SERVER, "30 06 0003 edbfbf 00", MALFORMED),
    ("MQTT-1.5.4-1", 5, SERVER, "30 05 0002 c0af 00", MALFORMED),
    ("MQTT-1.5.4-1", 5, SERVER, "30 07 0004 f09f9880 00", OK),
    ("MQTT-1.5.4-2", 5, SERVER, "30 06 0003 610062 00", MALFORMED),
    ("MQTT-1.5.4-3", 5, SERVER, "30 07 0004 efbbbf61 00", OK),
    ("MQTT-1.5.5-1", 5, SERVER, "30 05 0001 61 8000", MALFORMED),
    ("MQTT-1.5.5-1", 5, SERVER, "c0 8000", MALFORMED),
    ("MQTT-1.5.7-1", 5, SERVER, "30 0b 0001 61 07 26 0001 00 0001 61", MALFORMED),
    ("MQTT-1.5.7-1", 5, SERVER, "30 0b 0001 61 07 26 0001 61 0001 ff", MALFORMED),
    ("MQTT-1.5.3-1", 4, SERVER, "30 04 0002 c328", MALFORMED),
    ("MQTT-1.5.3-2", 4, SERVER, "30 05 0003 610062", MALFORMED),
    # Fixed header
    *[
        ("MQTT-2.1.3-1", 5, SERVER, f"{kind:x}{flags:x} 00", MALFORMED)
        for kind, right in ((4, 0), (5, 0), (6, 2), (7, 0), (8, 2), (10, 2), (12, 0), (14, 0), (15, 0))
        for flags in range(16)
        if flags != right
    ],
    *[
        ("MQTT-2.1.3-1", 5, CLIENT, f"{kind:x}{flags:x} 00", MALFORMED)
        for kind in (2, 4, 5, 7, 9, 11, 13, 14, 15)
        for flags in range(1, 16)
    ],
    *[("MQTT-2.1.3-1", 0, SERVER, f"1{flags:x} 00", MALFORMED) for flags in range(1, 16)],
    ("MQTT-2.2.2-2", 4, SERVER, "c1 00", MALFORMED),
    ("MQTT-2.2.2-2", 4, SERVER, "e4 00", MALFORMED),
    # Packet identifiers
    ("MQTT-2.2.1-2", 5, SERVER, "30 06 0001 61 00 0000", OK),
    ("MQTT-2.2.1-3", 5, SERVER, "32 06 0001 61 0000 00", PROTOCOL),
    ("MQTT-2.2.1-3", 5, SERVER, "34 06 0001 61 0000 00", PROTOCOL),
    ("MQTT-2.2.1-3", 5, SERVER, "82 07 0000 00 0001 61 00", PROTOCOL),
    ("MQTT-2.2.1-3", 5, SERVER, "a2 06 0000 00 0001 61", PROTOCOL),
    ("MQTT-2.2.1-4", 5, CLIENT, "32 06 0001 61 0000 00", PROTOCOL),
    ("MQTT-2.2.1-5", 5, CLIENT, "40 02 0000", PROTOCOL),
    ("MQTT-2.2.1-6", 5, CLIENT, "90 04 0000 00 00", PROTOCOL),
    ("MQTT-2.3.1-1", 4, SERVER, "82 06 0000 0001 61 00", PROTOCOL),
    ("MQTT-2.3.1-1", 4, SERVER, "32 05 0001 61 0000", PROTOCOL),
    ("MQTT-2.2.2-1", 5, SERVER, "30 03 0001 61", MALFORMED),
    ("MQTT-2.2.2-1", 5, SERVER, "30 04 0001 61 00", OK),
    # CONNECT
    ("MQTT-3.1.0-1", 0, SERVER, "c0 00", PROTOCOL),
    ("MQTT-3.1.0-1", 0, SERVER, "30 04 0001 61 00", PROTOCOL),
    ("MQTT-3.1.0-2", 5, SERVER, connect("02"), PROTOCOL),
    ("MQTT-3.1.0-2", 4, SERVER, connect("02", "0000 0001 61", HEAD_4), PROTOCOL),
    ("MQTT-3.1.2-1", 0, SERVER, connect("02", head="0004 6d717474 05"), VERSION),
    ("MQTT-3.1.2-2", 0, SERVER, connect("02", head="0004 4d515454 06"), VERSION),
    ("MQTT-3.1.2-2", 0, SERVER, connect("02", head="0004 4d515454 03"), VERSION),
    ("MQTT-3.1.2-3", 0, SERVER, connect("03"), MALFORMED),
    ("MQTT-3.1.2-3", 0, SERVER, connect("03", "0000 0001 61", HEAD_4), MALFORMED),
    ("MQTT-3.1.2-9", 0, SERVER, connect("06"), MALFORMED),
    ("MQTT-3.1.2-9", 0, SERVER, connect("06", "0000 00 0001 61 00 0001 77 0000"), OK),
    ("MQTT-3.1.2-11", 0, SERVER, connect("0a"), MALFORMED),
    ("MQTT-3.1.2-11", 0, SERVER, connect("12"), MALFORMED),
    ("MQTT-3.1.2-12", 0, SERVER, connect("1e", "0000 00 0001 61 00 0001 77 0000"), MALFORMED),
    ("MQTT-3.1.2-12", 0, SERVER, connect("16", "0000 00 0001 61 00 0001 77 0000"), OK),
    ("MQTT-3.1.2-13", 0, SERVER, connect("22"), MALFORMED),
    ("MQTT-3.1.2-16", 0, SERVER, connect("02", "0000 00 0001 61 0001 75"), MALFORMED),
    ("MQTT-3.1.2-17", 0, SERVER, connect("82"), MALFORMED),
    ("MQTT-3.1.2-17", 0, SERVER, connect("82", "0000 00 0001 61 0001 75"), OK),
    ("MQTT-3.1.2-19", 0, SERVER, connect("42"), MALFORMED),
    ("MQTT-3.1.2-19", 0, SERVER, connect("42", "0000 00 0001 61 0001 70"), OK),
    ("MQTT-3.1.2-22", 0, SERVER, connect("42", "0000 0001 61 0001 70", HEAD_4), MALFORMED),
    ("MQTT-3.1.3-3", 0, SERVER, connect("02", "0000 00"), MALFORMED),
    ("MQTT-3.1.3-4", 0, SERVER, connect("02", "0000 00 0001 ff"), MALFORMED),
    ("MQTT-3.1.3-6", 0, SERVER, connect("02", "0000 00 0000"), OK),
    ("MQTT-3.1.3-11", 0, SERVER, connect("06", "0000 00 0001 61 00 0001 ff 0000"), MALFORMED),
    ("MQTT-3.1.3-12", 0, SERVER, connect("82", "0000 00 0001 61 0001 ff"), MALFORMED),
    ("MQTT5 3.1.2.11.2", 0, SERVER, connect("02", "0000 0a 1100000001 1100000001 0001 61"), PROTOCOL),
    ("MQTT5 3.1.2.11.3", 0, SERVER, connect("02", "0000 03 210000 0001 61"), PROTOCOL),
    ("MQTT5 3.1.2.11.4", 0, SERVER, connect("02", "0000 05 2700000000 0001 61"), PROTOCOL),
    ("MQTT5 3.1.2.11.6", 0, SERVER, connect("02", "0000 02 1902 0001 61"), PROTOCOL),
    ("MQTT5 3.1.2.11.7", 0, SERVER, connect("02", "0000 02 1702 0001 61"), PROTOCOL),
    ("MQTT5 3.1.2.11.10", 0, SERVER, connect("02", "0000 04 16000161 0001 61"), PROTOCOL),
    ("MQTT5 2.2.2.2", 0, SERVER, connect("02", "0000 03 230001 0001 61"), MALFORMED),
    # CONNACK
    ("MQTT-3.2.2-1", 5, CLIENT, "20 03 80 00 00", MALFORMED),
    ("MQTT-3.2.2-1", 4, CLIENT, "20 02 02 00", MALFORMED),
    ("MQTT-3.2.2-6", 5, CLIENT, "20 03 01 88 00", PROTOCOL),
    ("MQTT-3.2.2-4", 4, CLIENT, "20 02 01 05", PROTOCOL),
    ("MQTT-3.2.2-8", 5, CLIENT, "20 03 00 8d 00", PROTOCOL),
    # PUBLISH
    ("MQTT-3.3.1-2", 5, SERVER, "38 04 0001 61 00", MALFORMED),
    ("MQTT-3.3.1-2", 4, SERVER, "38 03 0001 61", MALFORMED),
    ("MQTT-3.3.1-4", 5, SERVER, "36 06 0001 61 0001 00", MALFORMED),
    ("MQTT-3.3.1-4", 4, SERVER, "36 05 0001 61 0001", MALFORMED),
    ("MQTT-3.3.2-1", 5, SERVER, "30 04 0001 ff 00", MALFORMED),
    ("MQTT-3.3.2-2", 5, SERVER, "30 06 0003 612f23 00", MALFORMED),
    ("MQTT-3.3.2-2", 5, SERVER, "30 06 0003 2b2f61 00", MALFORMED),
    ("MQTT-3.3.2-2", 4, SERVER, "30 05 0003 612f23", MALFORMED),
    ("MQTT-3.3.2-8", 5, SERVER, "30 07 0001 61 03 230000", ALIAS),
    ("MQTT-3.3.2-13", 5, SERVER, "30 08 0001 61 04 080001ff", MALFORMED),
    ("MQTT-3.3.2-14", 5, SERVER, "30 08 0001 61 04 0800012b", PROTOCOL),
    ("MQTT-3.3.2-19", 5, SERVER, "30 08 0001 61 04 030001ff", MALFORMED),
    ("MQTT-3.3.4-6", 5, SERVER, "30 06 0001 61 02 0b01", PROTOCOL),
    ("MQTT-3.3.4-6", 5, CLIENT, "30 06 0001 61 02 0b01", OK),
    ("MQTT5 3.3.2.3.3", 5, SERVER, "30 0e 0001 61 0a 0200000001 0200000001", PROTOCOL),
    ("MQTT5 3.3.2.3.4", 5, SERVER, "30 03 0000 00", PROTOCOL),
    ("MQTT5 3.3.2.3.4", 5, SERVER, "30 06 0000 03 230001", OK),
    ("MQTT-4.7.3-1", 4, SERVER, "30 02 0000", MALFORMED),
    # Acknowledgements
    ("MQTT-3.4.2-1", 5, SERVER, "40 03 0001 92", PROTOCOL),
    ("MQTT-3.4.2-1", 5, SERVER, "40 03 0001 10", OK),
    ("MQTT-3.5.2-1", 5, SERVER, "50 03 0001 01", PROTOCOL),
    ("MQTT-3.6.1-1", 5, SERVER, "60 02 0001", MALFORMED),
    ("MQTT-3.6.1-1", 4, SERVER, "60 02 0001", MALFORMED),
    ("MQTT-3.6.2-1", 5, SERVER, "62 03 0001 80", PROTOCOL),
    ("MQTT-3.6.2-1", 5, SERVER, "62 03 0001 92", OK),
    ("MQTT-3.7.2-1", 5, SERVER, "70 03 0001 80", PROTOCOL),
    # SUBSCRIBE, UNSUBSCRIBE and their answers
    ("MQTT-3.8.1-1", 5, SERVER, "80 07 0001 00 0001 61 00", MALFORMED),
    ("MQTT-3.8.1-1", 4, SERVER, "80 06 0001 0001 61 00", MALFORMED),
    ("MQTT-3.8.3-1", 5, SERVER, "82 07 0001 00 0001 ff 00", MALFORMED),
    ("MQTT-3.8.3-2", 5, SERVER, "82 03 0001 00", PROTOCOL),
    ("MQTT-3.8.3-3", 4, SERVER, "82 02 0001", PROTOCOL),
    ("MQTT-3.8.3-4", 5, SERVER, "82 10 0001 00 000a 2473686172652f672f61 04", PROTOCOL),
    ("MQTT-3.8.3-5", 5, SERVER, "82 07 0001 00 0001 61 80", MALFORMED),
    ("MQTT-3-8.3-4", 4, SERVER, "82 06 0001 0001 61 08", MALFORMED),
    ("MQTT5 3.8.3.1", 5, SERVER, "82 07 0001 00 0001 61 03", PROTOCOL),
    ("MQTT5 3.8.3.1", 5, SERVER, "82 07 0001 00 0001 61 30", PROTOCOL),
    ("MQTT5 3.8.2.1.2", 5, SERVER, "82 09 0001 02 0b00 0001 61 00", PROTOCOL),
    ("MQTT-3.9.3-2", 5, CLIENT, "90 04 0001 00 04", PROTOCOL),
    ("MQTT-3.9.3-2", 4, CLIENT, "90 03 0001 03", PROTOCOL),
    ("MQTT-3.10.1-1", 5, SERVER, "a0 06 0001 00 0001 61", MALFORMED),
    ("MQTT-3.10.3-1", 5, SERVER, "a2 06 0001 00 0001 ff", MALFORMED),
    ("MQTT-3.10.3-2", 5, SERVER, "a2 03 0001 00", PROTOCOL),
    ("MQTT-3.10.3-2", 4, SERVER, "a2 02 0001", PROTOCOL),
    ("MQTT-3.11.3-2", 5, CLIENT, "b0 04 0001 00 02", PROTOCOL),
    ("MQTT-4.7.3-1", 5, SERVER, "82 06 0001 00 0000 00", MALFORMED),
    ("MQTT-4.7.3-2", 5, SERVER, "82 07 0001 00 0001 00 00", MALFORMED),
    # DISCONNECT and AUTH
    ("MQTT-3.14.1-1", 5, SERVER, "e1 00", MALFORMED),
    ("MQTT-3.14.1-1", 4, SERVER, "e1 00", MALFORMED),
    ("MQTT-3.14.2-1", 5, SERVER, "e0 01 10", PROTOCOL),
    ("MQTT-3.14.2-2", 5, CLIENT, "e0 07 00 05 1100000001", PROTOCOL),
    ("MQTT-3.14.2-2", 5, SERVER, "e0 07 00 05 1100000001", OK),
    ("MQTT-3.15.1-1", 5, SERVER, "f2 00", MALFORMED),
    ("MQTT-3.15.2-1", 5, SERVER, "f0 06 1a 04 15000161", PROTOCOL),
    ("MQTT5 3.15.2.2.2", 5, SERVER, "f0 02 18 00", PROTOCOL),
]


@pytest.mark.parametrize(
    ("clause", "version", "is_server", "data", "expected"),
    ROWS,
    ids=[f"{row[0]} v{row[1]} {row[3]}" for row in ROWS],
)
def test_decoder_does_what_the_clause_says(
    clause: str, version: int, is_server: bool, data: str, expected: int
) -> None:
    decoder = Decoder(version, is_server=is_server)

    packets = decoder.feed(bytes.fromhex(data))

    reason = 0 if decoder.error is None else decoder.error.reason_code
    assert reason == expected, f"{clause}: {decoder.error}"
    assert len(packets) == (1 if expected == OK else 0)


def test_byte_order_mark_stays_in_the_string() -> None:
    """[MQTT-1.5.4-3]"""
    decoder = Decoder(5, is_server=True)

    (packet,) = decoder.feed(bytes.fromhex("30 07 0004 efbbbf61 00"))

    assert packet == Publish("\ufeffa", b"")


def test_fields_of_a_connect_come_in_the_order_of_the_standard() -> None:
    """[MQTT-3.1.3-1]"""
    data = connect("c6", "003c 00 0001 61 00 0001 77 0001 78 0001 75 0001 70")
    decoder = Decoder(is_server=True)

    (packet,) = decoder.feed(bytes.fromhex(data))

    assert isinstance(packet, Connect)
    assert packet.will is not None
    assert (packet.client_id, packet.keep_alive) == ("a", 60)
    assert (packet.will.topic, packet.will.payload) == ("w", b"x")
    assert (packet.username, packet.password) == ("u", b"p")


def test_user_properties_stay_in_order_and_may_repeat() -> None:
    """[MQTT-3.3.2-17], [MQTT-3.3.2-18]"""
    block = "26 0001 62 0001 32 26 0001 61 0001 31 26 0001 62 0001 33"
    data = bytes.fromhex(f"30 19 0001 61 15 {block}")
    decoder = Decoder(5, is_server=True)

    (packet,) = decoder.feed(data)

    assert isinstance(packet, Publish)
    assert packet.user_properties == (("b", "2"), ("a", "1"), ("b", "3"))
    assert encode(packet, 5) == data
