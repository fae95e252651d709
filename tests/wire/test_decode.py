"""A table of bad packets with the reason code and the text each is refused with."""

from __future__ import annotations

import pytest

from timebound.errors import MalformedPacket
from timebound.wire.codec import Decoder
from timebound.wire.decode import decode_protocol
from timebound.wire.packets import Auth, Connect, Disconnect, Subscribe, SubscribeEntry
from timebound.wire.primitives import PacketReader


def refusal(data: str, version: int, *, is_server: bool) -> tuple[int, str]:
    decoder = Decoder(version, is_server=is_server)
    assert decoder.feed(bytes.fromhex(data)) == []
    assert decoder.error is not None
    return decoder.error.reason_code, str(decoder.error)


CONNECT = [
    ("10 06 0004 4d515454", 0x81, "protocol level is missing"),
    (
        "10 09 0004 4d515458 05 02 00",
        0x84,
        "protocol b'MQTX' level 5 is not supported (MQTT 3.1.1 and 5 are)",
    ),
    ("10 07 0004 4d515454 06", 0x84, "protocol b'MQTT' level 6 is not supported (MQTT 3.1.1 and 5 are)"),
    (
        "10 0a 0006 4d5149736470 04 02",
        0x84,
        "protocol b'MQIsdp' level 4 is not supported (MQTT 3.1.1 and 5 are)",
    ),
    ("10 08 0004 4d515454 05 03", 0x81, "reserved bit of the connect flags is set (0x03)"),
    ("10 08 0004 4d515454 05 1e", 0x81, "will QoS is 3 (0, 1 or 2)"),
    ("10 08 0004 4d515454 05 0a", 0x81, "will QoS or will retain without a will (0x0a)"),
    ("10 08 0004 4d515454 05 22", 0x81, "will QoS or will retain without a will (0x22)"),
    (
        "10 08 0004 4d515454 04 42",
        0x81,
        "password without a user name, which MQTT 3.1.1 does not allow",
    ),
    ("10 09 0004 4d515454 05 02 00", 0x81, "keep alive is cut short (needs 2 bytes, has 1)"),
    ("10 0a 0004 4d515454 05 02 0000", 0x81, "property length is missing"),
    ("10 0b 0004 4d515454 05 02 0000 00", 0x81, "client identifier is cut short (needs 2 bytes, has 0)"),
    ("10 0e 0004 4d515454 05 02 0000 00 0001 ff", 0x81, "client identifier is not UTF-8 at byte 0: b'\\xff'"),
    ("10 0e 0004 4d515454 05 02 0000 00 0000 61", 0x81, "CONNECT has 1 bytes too many"),
    ("10 10 0004 4d515454 05 06 0000 00 0000 00 0000", 0x81, "will topic is empty"),
    (
        "10 11 0004 4d515454 05 06 0000 00 0000 00 0001 23",
        0x81,
        "topic name contains a wildcard: b'#'",
    ),
    ("10 0d 0004 4d515454 05 82 0000 00 0000", 0x81, "user name is cut short (needs 2 bytes, has 0)"),
    ("10 0e 0004 4d515454 05 42 0000 00 0000 00", 0x81, "password is cut short (needs 2 bytes, has 1)"),
    ("11 00", 0x81, "flags of CONNECT are 0x1 (must be 0x0)"),
    ("10 ffffffff", 0x81, "remaining length is longer than four bytes"),
    ("00 00", 0x81, "packet type 0 is reserved"),
    ("47 45", 0x82, "first packet is PUBACK, not CONNECT"),
]


@pytest.mark.parametrize(("data", "reason", "message"), CONNECT)
def test_bad_connect_is_refused(data: str, reason: int, message: str) -> None:
    assert refusal(data, 0, is_server=True) == (reason, message)


TO_SERVER = [
    (5, "36 00", 0x81, "QoS of a PUBLISH is 3 (0, 1 or 2)"),
    (5, "38 00", 0x81, "DUP is set on a PUBLISH with QoS 0"),
    (5, "30 00", 0x81, "topic name is cut short (needs 2 bytes, has 0)"),
    (5, "30 04 0003 6162", 0x81, "topic name is cut short (needs 3 bytes, has 2)"),
    (5, "30 04 0001 2b00", 0x81, "topic name contains a wildcard: b'+'"),
    (5, "30 04 0001 0000", 0x81, "topic name contains U+0000: b'\\x00'"),
    (5, "30 03 0000 00", 0x82, "topic name is empty and there is no topic alias"),
    (4, "30 03 0000 00", 0x81, "topic name is empty"),
    (5, "32 06 0001 61 0000 00", 0x82, "packet identifier is 0 (1 to 65535)"),
    (5, "32 04 0001 61 00", 0x81, "packet identifier is cut short (needs 2 bytes, has 1)"),
    (5, "30 03 0001 61", 0x81, "property length is missing"),
    (5, "30 04 0001 61 01", 0x81, "property block is cut short (needs 1 bytes, has 0)"),
    (5, "30 05 0001 61 8000", 0x81, "property length is not in its shortest form (value 0)"),
    (5, "30 05 0001 61 01 11", 0x81, "property 0x11 is not allowed in PUBLISH properties"),
    (5, "30 05 0001 61 01 ff", 0x81, "property 0xff is not allowed in PUBLISH properties"),
    (5, "30 07 0001 61 03 23 0000", 0x94, "topic alias is 0 (at least 1)"),
    (5, "30 06 0001 61 02 0b 01", 0x82, "subscription identifier in a PUBLISH from a client"),
    (5, "30 06 0001 61 02 01 02", 0x82, "payload format indicator is 2 (0 or 1)"),
    (5, "30 08 0001 61 04 01 00 01 00", 0x82, "property 0x01 of a PUBLISH is given twice"),
    (5, "30 0a 0001 61 06 23 0001 23 0001", 0x82, "property 0x23 of a PUBLISH is given twice"),
    (5, "30 08 0001 61 04 08 0001 2b", 0x82, "response topic '+' is not a topic name without wildcards"),
    (5, "30 07 0001 61 03 02 0000", 0x81, "message expiry interval is cut short (needs 4 bytes, has 2)"),
    (5, "30 08 0001 61 04 03 0001 ff", 0x81, "content type is not UTF-8 at byte 0: b'\\xff'"),
    (5, "30 07 0001 61 03 09 0005", 0x81, "correlation data is cut short (needs 5 bytes, has 0)"),
    (5, "40 01 00", 0x81, "packet identifier is cut short (needs 2 bytes, has 1)"),
    (5, "40 02 0000", 0x82, "packet identifier is 0 (1 to 65535)"),
    (5, "40 03 0001 01", 0x82, "PUBACK cannot carry reason code 0x01"),
    (5, "62 03 0001 10", 0x82, "PUBREL cannot carry reason code 0x10"),
    (5, "40 05 0001 00 00 00", 0x81, "PUBACK has 1 bytes too many"),
    (5, "40 07 0001 00 03 110000", 0x81, "session expiry interval is not allowed in PUBACK properties"),
    (4, "40 03 0001 00", 0x81, "PUBACK has 1 bytes too many"),
    (5, "60 02 0001", 0x81, "flags of PUBREL are 0x0 (must be 0x2)"),
    (5, "80 00", 0x81, "flags of SUBSCRIBE are 0x0 (must be 0x2)"),
    (5, "82 03 0001 00", 0x82, "SUBSCRIBE has no topic filter"),
    (4, "82 02 0001", 0x82, "SUBSCRIBE has no topic filter"),
    (5, "82 06 0001 00 0001 61", 0x81, "subscription options is missing"),
    (5, "82 06 0001 00 0000 00", 0x81, "topic filter is empty"),
    (5, "82 07 0001 00 0001 61 03", 0x82, "QoS of the subscription to 'a' is 3 (0, 1 or 2)"),
    (5, "82 07 0001 00 0001 61 30", 0x82, "retain handling of 'a' is 3 (0, 1 or 2)"),
    (5, "82 07 0001 00 0001 61 40", 0x81, "reserved bits of the subscription options are set (0x40)"),
    (4, "82 06 0001 0001 61 04", 0x81, "reserved bits of the subscription options are set (0x04)"),
    (
        5,
        "82 10 0001 00 000a 2473686172652f672f61 04",
        0x82,
        "no local on the shared subscription '$share/g/a'",
    ),
    (5, "a2 03 0001 00", 0x82, "UNSUBSCRIBE has no topic filter"),
    (5, "a2 05 0001 00 0000", 0x81, "topic filter is empty"),
    (5, "a0 00", 0x81, "flags of UNSUBSCRIBE are 0x0 (must be 0x2)"),
    (5, "c0 01 00", 0x81, "PINGREQ has 1 bytes too many"),
    (5, "e0 01 01", 0x82, "DISCONNECT cannot carry reason code 0x01"),
    (5, "e0 01 8b", 0x82, "DISCONNECT cannot carry reason code 0x8b"),
    (5, "e0 06 00 04 1c000161", 0x82, "server reference in a DISCONNECT from a client"),
    (5, "e0 03 00 00 00", 0x81, "DISCONNECT has 1 bytes too many"),
    (4, "e0 01 00", 0x81, "DISCONNECT has 1 bytes too many"),
    (5, "f0 00", 0x82, "AUTH cannot carry reason code 0x00"),
    (5, "f0 01 18", 0x81, "property length is missing"),
    (5, "f0 02 18 00", 0x82, "AUTH has no authentication method"),
    (4, "f0 00", 0x81, "packet type 15 is reserved"),
    (5, "10 00", 0x82, "CONNECT is sent a second time"),
    (5, "20 00", 0x82, "CONNACK is not for a server"),
    (5, "90 00", 0x82, "SUBACK is not for a server"),
    (5, "b0 00", 0x82, "UNSUBACK is not for a server"),
    (5, "d0 00", 0x82, "PINGRESP is not for a server"),
    (5, "00 00", 0x81, "packet type 0 is reserved"),
]


@pytest.mark.parametrize(("version", "data", "reason", "message"), TO_SERVER)
def test_bad_packet_to_a_server_is_refused(version: int, data: str, reason: int, message: str) -> None:
    assert refusal(data, version, is_server=True) == (reason, message)


TO_CLIENT = [
    (5, "20 03 02 00 00", 0x81, "reserved bits of the connect acknowledge flags are set (0x02)"),
    (5, "20 03 00 01 00", 0x82, "CONNACK cannot carry reason code 0x01"),
    (5, "20 03 01 87 00", 0x82, "CONNACK refuses with 0x87 and has session present set"),
    (4, "20 02 00 06", 0x82, "connect return code 6 does not exist (0 to 5)"),
    (4, "20 03 00 00 00", 0x81, "CONNACK has 1 bytes too many"),
    (5, "20 02 00 00", 0x81, "property length is missing"),
    (5, "90 03 0001 00", 0x81, "SUBACK has no reason code"),
    (5, "90 04 0001 00 03", 0x82, "SUBACK cannot carry reason code 0x03"),
    (4, "90 03 0001 87", 0x82, "SUBACK cannot carry reason code 0x87"),
    (5, "b0 04 0001 00 01", 0x82, "UNSUBACK cannot carry reason code 0x01"),
    (4, "b0 03 0001 00", 0x81, "UNSUBACK has 1 bytes too many"),
    (5, "30 06 0001 61 02 0b 00", 0x82, "subscription identifier is 0 (1 to 268435455)"),
    (5, "e0 07 00 05 1100000001", 0x82, "session expiry interval in a DISCONNECT from a server"),
    (5, "e0 01 04", 0x82, "DISCONNECT cannot carry reason code 0x04"),
    (5, "f0 06 19 04 15000161", 0x82, "AUTH cannot carry reason code 0x19"),
    (4, "e0 00", 0x82, "DISCONNECT is not for a client"),
    (5, "82 00", 0x82, "SUBSCRIBE is not for a client"),
    (5, "10 00", 0x82, "CONNECT is not for a client"),
    (5, "c0 00", 0x82, "PINGREQ is not for a client"),
]


@pytest.mark.parametrize(("version", "data", "reason", "message"), TO_CLIENT)
def test_bad_packet_to_a_client_is_refused(version: int, data: str, reason: int, message: str) -> None:
    assert refusal(data, version, is_server=False) == (reason, message)


def accepted(data: str, version: int) -> object:
    decoder = Decoder(version, is_server=True)
    packets = decoder.feed(bytes.fromhex(data))
    assert decoder.error is None
    return packets[0]


def test_connect_of_mqtt_3_1_is_read_like_3_1_1() -> None:
    decoder = Decoder(is_server=True)

    packets = decoder.feed(bytes.fromhex("10 0f 0006 4d5149736470 03 02 003c 0001 61"))

    assert packets == [Connect("a", 3, True, 60)]
    assert decoder.version == 4


def test_password_without_user_name_is_fine_in_mqtt_5() -> None:
    packet = accepted("10 11 0004 4d515454 05 42 0000 00 0000 0002 7077", 0)

    assert packet == Connect("", 5, True, 0, None, b"pw")


def test_short_forms_of_disconnect_are_read() -> None:
    assert accepted("e0 00", 5) == Disconnect(0)
    assert accepted("e0 01 04", 5) == Disconnect(4)
    assert accepted("e0 02 04 00", 5) == Disconnect(4)


def test_auth_is_read_with_its_method() -> None:
    packet = accepted("f0 06 19 04 15000161", 5)

    assert isinstance(packet, Auth)
    assert packet.reason_code == 0x19
    assert packet.properties.authentication_method == "a"


def test_subscription_options_are_taken_apart() -> None:
    packet = accepted("82 0b 0001 00 0001 61 2e 0001 62 01", 5)

    assert packet == Subscribe(1, [SubscribeEntry("a", 2, True, True, 2), SubscribeEntry("b", 1)])


def test_protocol_name_that_is_cut_short_is_malformed_not_unsupported() -> None:
    with pytest.raises(MalformedPacket, match="protocol name is cut short"):
        decode_protocol(PacketReader(b"\0\4MQ", 0, 4))
