"""CONNECT, CONNACK, DISCONNECT and AUTH as a client sees them, clause by clause.

Clauses are those of MQTT 5.0 unless a test is for version 4, where they are those of 3.1.1.
"""

from __future__ import annotations

import pytest
from tests.conftest import BrokerProcess, ShareOver
from tests.peer import Peer, join, props

from timebound.wire.codec import encode
from timebound.wire.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Will,
)

# --- what CONNACK says ----------------------------------------------------------------


def test_connack_announces_limits_and_assigns_a_client_id(broker: BrokerProcess) -> None:
    """[MQTT-3.1.3-7] [MQTT-3.2.2-16]"""
    with Peer(broker.port) as first, Peer(broker.port) as second:
        granted = first.connect("").properties
        other = second.connect("").properties

    assert granted.assigned_client_identifier
    assert other.assigned_client_identifier
    assert granted.assigned_client_identifier != other.assigned_client_identifier
    assert granted.receive_maximum == 1024
    assert granted.maximum_packet_size == 1024 * 1024
    assert granted.topic_alias_maximum == 64
    assert granted.server_keep_alive is None
    assert granted.session_expiry_interval is None


@pytest.mark.parametrize(
    ("client_id", "packet_size_max", "answer"),
    [
        ("named", 17, "accepted"),
        ("", 17, "told"),  # the assigned client id has no room
        ("named", 5, "told"),
        ("named", 4, "closed"),
    ],
)
def test_connack_never_goes_beyond_the_clients_maximum_packet_size(
    broker: BrokerProcess, client_id: str, packet_size_max: int, answer: str
) -> None:
    """[MQTT-3.1.2-24] [MQTT-3.2.2-19]"""
    small = props(maximum_packet_size=packet_size_max)
    with Peer(broker.port) as peer:
        peer.send(Connect(client_id, properties=small))
        if answer == "closed":
            peer.expect_closed()
        else:
            connack = peer.expect(Connack)
            assert connack.reason_code == (0 if answer == "accepted" else 0x95)
            assert len(encode(connack, 5)) <= packet_size_max


def test_assigned_client_id_belongs_to_a_session_that_can_be_resumed(broker: BrokerProcess) -> None:
    with Peer(broker.port) as peer:
        connack = peer.connect("", properties=props(session_expiry_interval=60))
        client_id = connack.properties.assigned_client_identifier or ""
    with Peer(broker.port) as peer:
        again = peer.connect(client_id, clean=False)

    assert again.session_present
    assert again.properties.assigned_client_identifier is None


@pytest.mark.parametrize(
    ("clause", "version", "asked", "code"),
    [
        ("MQTT-3.1.3-6", 5, Connect("", 5, True), 0x00),
        ("MQTT-3.1.3-6", 5, Connect("", 5, False), 0x00),
        ("MQTT-3.1.3-6", 4, Connect("", 4, True), 0x00),
        ("MQTT-3.1.3-8", 4, Connect("", 4, False), 0x85),
        ("MQTT-3.1.3-5", 5, Connect("aA0" * 7 + "zZ", 5), 0x00),
        ("MQTT-3.1.3-5", 4, Connect("aA0" * 7 + "zZ", 4), 0x00),
        ("MQTT-3.1.3-8", 5, Connect("x" * 1025, 5), 0x85),
        ("MQTT-3.1.2-2", 4, Connect("level three", 3), 0x00),
        ("MQTT-4.12.0-1", 5, Connect("a1", 5, properties=props(authentication_method="KERBEROS")), 0x8C),
        ("MQTT-3.1.2-9", 5, Connect("a2", 5, will=Will("w", b"", 2, True)), 0x00),
        ("MQTT-3.1.3-11", 5, Connect("a3", 5, will=Will("$SYS/w", b"")), 0x87),
        ("MQTT-3.1.3-11", 5, Connect("a4", 5, will=Will("a/" * 64, b"")), 0x90),
        ("", 5, Connect("a5", 5, properties=props(user_properties=[("k", "v")] * 65)), 0x97),
        (
            "",
            5,
            Connect("a6", 5, will=Will("w", b"", properties=props(user_properties=[("timeout", "x")]))),
            0x83,
        ),
    ],
)
def test_connect_is_answered(
    broker: BrokerProcess, clause: str, version: int, asked: Connect, code: int
) -> None:
    with Peer(broker.port, version) as peer:
        peer.send_bytes(encode(asked, asked.protocol_version))
        connack = peer.expect(Connack)

        assert connack.reason_code == code
        assert not connack.session_present
        if code:
            assert peer.receive() is None
            assert bool(connack.properties.reason_string) == (version == 5)
        else:
            peer.expect_silence()


@pytest.mark.parametrize(("name", "level"), [(b"MQTT", 3), (b"MQTT", 6), (b"MQTT", 0), (b"MQIsdp", 4)])
def test_unsupported_protocol_level_is_answered_with_return_code_1(
    broker: BrokerProcess, name: bytes, level: int
) -> None:
    """[MQTT-3.1.2-2] of 3.1.1: its CONNACK is the one that a client of any level can read."""
    with Peer(broker.port, 4) as peer:
        body = len(name).to_bytes(2, "big") + name + bytes([level, 2, 0, 0, 0, 1, 0x61])
        peer.send_bytes(bytes([0x10, len(body)]) + body)

        assert peer.expect(Connack).reason_code == 0x84
        assert peer.receive() is None


def test_other_protocols_get_no_answer(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-1]"""
    with Peer(broker.port) as peer:
        peer.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert peer.expect_closed() == []


def test_malformed_connect_is_answered_with_its_reason(broker: BrokerProcess) -> None:
    """[MQTT-3.1.4-1]"""
    with Peer(broker.port) as peer:
        peer.send_bytes(bytes.fromhex("10 0e 0004 4d515454 05 03 0000 00 0001 61"))
        connack = peer.expect(Connack)

        assert connack.reason_code == 0x81
        assert "reserved bit" in (connack.properties.reason_string or "")
        assert peer.receive() is None


@pytest.mark.parametrize(
    ("clause", "flags_and_rest"),
    [
        ("MQTT-3.1.2-3", "03 0000 0001 61"),  # the reserved bit
        ("MQTT-3.1.2-13", "0a 0000 0001 61"),  # a will's QoS without a will
        ("MQTT-3.1.2-15", "22 0000 0001 61"),  # a will's retain without a will
        ("MQTT-3.1.2-14", "1e 0000 0001 61 0001 77 0000"),  # QoS 3
        ("MQTT-3.1.2-22", "42 0000 0001 61 0001 70"),  # a password without a user name
        ("MQTT-3.1.2-9", "06 0000 0001 61"),  # a will flag without a will
        ("MQTT-3.1.3-4", "02 0000 0001 ff"),  # a client id that is not UTF-8
        ("MQTT-3.1.4-1", "02 0000 0001 61 00"),  # more than there should be
    ],
)
@pytest.mark.parametrize(("name", "level"), [("0004 4d515454", "04"), ("0006 4d5149736470", "03")])
def test_malformed_connect_of_version_4_is_closed_without_connack(
    broker: BrokerProcess, clause: str, flags_and_rest: str, name: str, level: str
) -> None:
    """[MQTT-3.1.4-1] of 3.1.1"""
    body = bytes.fromhex(name + level + flags_and_rest)
    with Peer(broker.port, 4) as peer:
        peer.send_bytes(bytes([0x10, len(body)]) + body)

        assert peer.expect_closed() == []


def test_server_keep_alive_and_session_expiry_are_capped_and_said(share_over: ShareOver) -> None:
    """[MQTT-3.1.2-21] [MQTT-3.2.2-21]"""
    broker = share_over('[limits]\nkeep_alive_max = "30s"\nsession_expiry_max = "1h"\ntopic_alias_max = 0\n')
    with Peer(broker.port) as peer:
        long = peer.connect("long", keep_alive=60, properties=props(session_expiry_interval=7200)).properties
    with Peer(broker.port) as peer:
        none = peer.connect(
            "none", keep_alive=0, properties=props(session_expiry_interval=0xFFFFFFFF)
        ).properties
    with Peer(broker.port) as peer:
        short = peer.connect(
            "short", keep_alive=30, properties=props(session_expiry_interval=3600)
        ).properties

    assert (long.server_keep_alive, long.session_expiry_interval) == (30, 3600)
    assert (none.server_keep_alive, none.session_expiry_interval) == (30, 3600)
    assert (short.server_keep_alive, short.session_expiry_interval) == (None, None)
    assert short.topic_alias_maximum is None


# --- order and time -------------------------------------------------------------------


def test_second_connect_is_a_protocol_error(broker: BrokerProcess) -> None:
    """[MQTT-3.1.0-2]"""
    with join(broker.port) as peer:
        peer.send(Connect("again"))

        assert "second time" in peer.expect_disconnect(0x82)


def test_packets_sent_with_connect_are_processed_after_it(broker: BrokerProcess) -> None:
    """[MQTT-3.1.4-5]: a client need not wait for CONNACK."""
    with Peer(broker.port) as peer:
        peer.send(
            Connect("pipeline"),
            Subscribe(1, [SubscribeEntry("pipeline/a", 1)]),
            Publish("pipeline/a", b"1", 1, packet_id=2),
            Pingreq(),
        )

        assert peer.expect(Connack).reason_code == 0
        found: list[type[Packet]] = [type(peer.receive()) for _ in range(4)]
        assert sorted(kind.__name__ for kind in found) == ["Ack", "Pingresp", "Publish", "Suback"]


@pytest.mark.parametrize("expiry", [0, 60])
def test_connack_comes_before_the_disconnect_of_a_pipelined_mistake(
    broker: BrokerProcess, expiry: int
) -> None:
    """[MQTT-3.14.0-1] [MQTT-3.2.0-1]"""
    with Peer(broker.port) as peer:
        connect = Connect(f"hasty-{expiry}", properties=props(session_expiry_interval=expiry))
        peer.send_bytes(encode(connect, 5) + b"\x00\x00")

        first, *rest = peer.expect_closed()
        assert isinstance(first, Connack)
        if first.reason_code:
            assert (first.reason_code, rest) == (0x81, [])
        else:
            assert [type(packet) for packet in rest] == [Disconnect]


def test_a_client_that_says_everything_at_once_is_answered(broker: BrokerProcess) -> None:
    with Peer(broker.port) as peer:
        peer.send(Connect("brief"), Publish("brief/a", b"1", 1, packet_id=1), Disconnect())

        packets = peer.expect_closed()
        assert [type(packet) for packet in packets] == [Connack, Ack]


def test_bytes_may_come_one_by_one(broker: BrokerProcess) -> None:
    with Peer(broker.port) as peer:
        subscribe = Subscribe(1, [SubscribeEntry("bytewise/#", 2)])
        for packet in (Connect("bytewise"), subscribe, Publish("bytewise/a", b"x" * 20, 1, packet_id=2)):
            for byte in encode(packet, 5):
                peer.send_bytes(bytes([byte]))

        assert peer.expect(Connack).reason_code == 0
        assert peer.expect(Suback).reason_codes == [2]
        found = {type(peer.receive()), type(peer.receive())}
        assert found == {Ack, Publish}


def test_keep_alive_ends_after_one_and_a_half_of_it(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-22]"""
    with (
        join(broker.port, "silent", keep_alive=1) as silent,
        join(broker.port, "talking", keep_alive=1) as talking,
    ):
        for _ in range(12):
            talking.expect_silence()
            # The pause of a talking client is the point of this test, not a way to wait for something.
            packets = _wait_for_end(silent, 0.25)
            if packets is not None:
                break

        assert packets is not None
        assert [packet.reason_code for packet in packets if isinstance(packet, Disconnect)] == [0x8D]
        talking.expect_silence()


def _wait_for_end(peer: Peer, timeout_s: float) -> list[Packet] | None:
    try:
        return peer.expect_closed(timeout_s)
    except AssertionError:
        return None


def test_client_that_sends_no_connect_in_time_is_dropped(share_over: ShareOver) -> None:
    """Idle sockets must not collect, and a byte now and then buys no more time."""
    broker = share_over('[limits]\nconnect_timeout = "1s"\n')
    with Peer(broker.port) as trickling, join(broker.port, "well") as well:
        packets: list[Packet] | None = None
        for byte in encode(Connect("trickling"), 5)[:-1]:
            trickling.send_bytes(bytes([byte]))
            packets = _wait_for_end(trickling, 0.3)
            if packets is not None:
                break

        assert packets == []
        well.expect_silence()


def test_take_over_ends_the_older_connection(broker: BrokerProcess) -> None:
    """[MQTT-3.1.4-3]"""
    with join(broker.port, "taken") as old, join(broker.port, "taken") as new:
        assert "taken" in old.expect_disconnect(0x8E)
        new.expect_silence()


def test_take_over_of_a_version_4_client_only_closes(broker: BrokerProcess) -> None:
    """[MQTT-3.1.4-2] of 3.1.1"""
    with join(broker.port, "taken-4", version=4) as old, join(broker.port, "taken-4", version=4) as new:
        assert old.expect_closed() == []
        new.expect_silence()


def test_take_over_hands_on_what_is_owed(broker: BrokerProcess) -> None:
    """[MQTT-4.4.0-1]: unacknowledged messages come again, with DUP."""
    expiry = props(session_expiry_interval=60)
    with join(broker.port, "heir", properties=expiry) as old, Peer(broker.port) as new:
        assert old.subscribe("heir/#", qos=1).reason_codes == [1]
        with join(broker.port) as publisher:
            publisher.publish("heir/a", b"1", 1)
            publisher.expect(Ack)
        first = old.expect_publish("heir/a", b"1")
        connack = new.connect("heir", clean=False, properties=expiry)

        assert connack.session_present
        again = new.expect_publish("heir/a", b"1")
        assert (again.dup, again.packet_id) == (True, first.packet_id)
        old.expect_disconnect(0x8E)
        new.send(Ack(4, again.packet_id))
        new.expect_silence()


def test_connack_comes_before_anything_owed_to_a_resumed_session(broker: BrokerProcess) -> None:
    """[MQTT-3.2.0-1]: PUBLISH, PUBREL and everything else follow CONNACK."""
    expiry = props(session_expiry_interval=60)
    with join(broker.port, "owed", properties=expiry) as peer:
        peer.subscribe("owed/#", qos=2)
        with join(broker.port) as publisher:
            for number in range(3):
                packet_id = publisher.publish("owed/a", b"%d" % number, 2)
                publisher.expect(Ack)
                publisher.send(Ack(6, packet_id))
                publisher.expect(Ack)
        first = peer.expect_publish("owed/a", b"0")
        peer.expect_publish("owed/a", b"1")
        peer.expect_publish("owed/a", b"2")
        peer.send(Ack(5, first.packet_id))
        assert peer.expect(Ack).kind == 6
    with Peer(broker.port) as peer:
        connack = peer.connect("owed", clean=False, properties=expiry)

        assert connack.session_present
        owed = [peer.receive(), peer.receive(), peer.receive()]
        releases = [packet for packet in owed if isinstance(packet, Ack)]
        resent = [packet for packet in owed if isinstance(packet, Publish)]
        assert [(packet.kind, packet.packet_id) for packet in releases] == [(6, first.packet_id)]
        assert [(packet.payload, packet.dup) for packet in resent] == [(b"1", True), (b"2", True)]


# --- AUTH and DISCONNECT --------------------------------------------------------------


def test_auth_without_a_method_in_connect_is_a_protocol_error(broker: BrokerProcess) -> None:
    """[MQTT-4.12.0-6] [MQTT-4.12.1-1]"""
    for code in (0x18, 0x19):
        with join(broker.port) as peer:
            peer.send(Auth(code, props(authentication_method="SCRAM-SHA-256")))

            assert "authentication method" in peer.expect_disconnect(0x82)


def test_auth_does_not_exist_in_version_4(broker: BrokerProcess) -> None:
    with join(broker.port, version=4) as peer:
        peer.send_bytes(b"\xf0\x00")

        assert peer.expect_closed() == []


def test_disconnect_may_shorten_the_session(broker: BrokerProcess) -> None:
    """[MQTT-3.14.4-3], 3.14.2.2.2"""
    with join(broker.port, "shorter", properties=props(session_expiry_interval=60)) as peer:
        peer.send(Disconnect(0, props(session_expiry_interval=0)))
        assert peer.expect_closed() == []
    with Peer(broker.port) as peer:
        assert not peer.connect("shorter", clean=False).session_present


def test_disconnect_may_lengthen_a_session_that_had_an_expiry(broker: BrokerProcess) -> None:
    with join(broker.port, "longer", properties=props(session_expiry_interval=1)) as peer:
        peer.send(Disconnect(0, props(session_expiry_interval=100)))
        assert peer.expect_closed() == []
    with Peer(broker.port) as peer:
        assert peer.connect("longer", clean=False).session_present


def test_disconnect_cannot_revive_a_session_of_expiry_0(broker: BrokerProcess) -> None:
    """3.14.2.2.2"""
    with join(broker.port, "revive") as peer:
        peer.send(Disconnect(0, props(session_expiry_interval=10)))

        assert "session expiry" in peer.expect_disconnect(0x82)


def test_nothing_after_disconnect_counts(broker: BrokerProcess) -> None:
    """[MQTT-3.14.4-1]"""
    with join(broker.port) as watcher, join(broker.port) as peer:
        watcher.subscribe("after/#")
        peer.send(Publish("after/a", b"before"), Disconnect(), Publish("after/a", b"behind"))
        assert peer.expect_closed() == []

        watcher.expect_publish("after/a", b"before")
        watcher.expect_silence()


def test_clean_session_of_version_4_forgets_and_keeps(broker: BrokerProcess) -> None:
    """[MQTT-3.1.2-4] [MQTT-3.1.2-6] [MQTT-3.2.2-2] of 3.1.1"""
    present: list[bool] = []
    for clean in (False, False, True, False):
        with Peer(broker.port, 4) as peer:
            present.append(peer.connect(f"tidy-{broker.scheme}", clean=clean).session_present)

    assert present == [False, True, False, False]


def test_version_3_is_not_told_of_a_present_session(broker: BrokerProcess) -> None:
    """MQTT 3.1, 3.2: the first byte of CONNACK is reserved; Session Present came with 3.1.1."""
    told = []
    for level in (3, 3, 4):
        with Peer(broker.port, 4) as peer:
            peer.send_bytes(encode(Connect("level-three", level, False), level))
            told.append(peer.expect(Connack).session_present)

    assert told == [False, False, True]


@pytest.mark.parametrize("version", [4, 5])
def test_pingreq_is_answered(broker: BrokerProcess, version: int) -> None:
    """[MQTT-3.12.4-1]"""
    with join(broker.port, version=version) as peer:
        peer.send(Pingreq(), Pingreq())

        peer.expect(Pingresp)
        peer.expect(Pingresp)
