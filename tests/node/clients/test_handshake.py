"""CONNECT decided without a network: limits granted, doors counted, certificates read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.peer import props

from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.tls import TlsConfig
from timebound.config.values import Config
from timebound.node.clients.handshake import Accepted, Door, Refused, _certificate_user, source_of_client
from timebound.wire.codec import Decoder
from timebound.wire.packets import Connack, Connect
from timebound.wire.reasons import CONNACK_CODES


class Driver:
    """Only what a door asks of a driver: how many there are."""

    def __init__(self, count: int) -> None:
        self.connections = dict.fromkeys(range(count))
        self.authenticated = count


def door(limits: Limits, count: int = 0, listener: ListenerConfig | None = None) -> Door:
    config = Config(limits=limits)
    return Door(listener or ListenerConfig(), config, Driver(count), None, None, None)  # type: ignore[arg-type]  # a double


def decode(frame: bytes, version: int) -> Connack:
    [packet] = Decoder(version, is_server=False).feed(frame)
    assert isinstance(packet, Connack)
    return packet


@pytest.mark.parametrize(
    ("asked_s", "maximum_s", "granted_s", "is_said"),
    [(0, 0, 0, False), (60, 0, 60, False), (60, 60, 60, False), (61, 60, 60, True), (0, 60, 60, True)],
)
def test_keep_alive_is_capped_and_said(asked_s: int, maximum_s: int, granted_s: int, is_said: bool) -> None:
    """[MQTT-3.1.2-21]; 3.1.1 cannot say it, so there the client's choice stands."""
    limits = Limits(keep_alive_max_s=maximum_s)

    accepted = Accepted(Connect("a", keep_alive=asked_s), "a", "", limits, 0)
    old = Accepted(Connect("a", 4, keep_alive=asked_s), "a", "", limits, 0)

    assert accepted.keep_alive_s == granted_s
    assert decode(accepted.connack(False, 5), 5).properties.server_keep_alive == (
        granted_s if is_said else None
    )
    assert old.keep_alive_s == asked_s


@pytest.mark.parametrize(
    ("packet", "granted_s", "said_s"),
    [
        (Connect("a"), 0, None),
        (Connect("a", properties=props(session_expiry_interval=50)), 50, None),
        (Connect("a", properties=props(session_expiry_interval=101)), 100, 100),
        (Connect("a", properties=props(session_expiry_interval=0xFFFFFFFF)), 100, 100),
        (Connect("a", 4, clean_start=True), 0, None),
        (Connect("a", 4, clean_start=False), 100, None),
    ],
)
def test_session_expiry_is_capped(packet: Connect, granted_s: int, said_s: int | None) -> None:
    accepted = Accepted(packet, "a", "", Limits(session_expiry_max_s=100), 0)

    version = packet.protocol_version
    assert accepted.expiry_interval_s == granted_s
    assert decode(accepted.connack(True, version), version).properties.session_expiry_interval == said_s


def test_what_a_client_leaves_out_has_the_standards_default() -> None:
    accepted = Accepted(Connect("a"), "a", "", Limits(), 0)

    assert accepted.receive_maximum == 65_535
    assert accepted.packet_size_max == 0
    assert accepted.topic_alias_maximum == 0
    assert accepted.wants_reasons
    assert not Accepted(
        Connect("a", properties=props(request_problem_information=False)), "a", "", Limits(), 0
    ).wants_reasons


@pytest.mark.parametrize("code", [0x80, 0x84, 0x87, 0x8B, 0x8E, 0x93, 0x96, 0x97])
def test_refusal_carries_only_codes_that_connack_knows(code: int) -> None:
    connack = decode(Refused(code, "why").connack(5), 5)

    assert connack.reason_code == (code if code in CONNACK_CODES else 0x88)
    assert connack.properties.reason_string == "why"
    assert decode(Refused(code, "why").connack(4), 4).reason_code >= 0x80


def test_door_counts_the_connections_of_an_address() -> None:
    entrance = door(Limits(connections_per_address_max=2))

    assert [entrance.enter(port, f"10.0.0.1:{port}") for port in range(3)] == [True, True, False]
    assert entrance.enter(3, "10.0.0.2:1")
    assert entrance.enter(4, "fe80::1:1")
    entrance.leave(0)
    entrance.leave(2)  # the refused one leaves as well
    assert entrance.enter(5, "10.0.0.1:3")


def test_connection_leaves_a_door_once() -> None:
    entrance = door(Limits(connections_per_address_max=2))
    for number in range(2):
        entrance.enter(number, "10.0.0.1:1")

    entrance.leave(0)
    entrance.leave(0)

    assert [entrance.enter(number, "10.0.0.1:1") for number in (2, 3)] == [True, False]


@pytest.mark.parametrize(
    ("user", "peer", "source"),
    [
        ("ann", "10.0.0.1:1", "user ann"),
        ("", "10.0.0.1:1", "10.0.0.1"),
        ("", "::ffff:10.0.0.1:7", "10.0.0.1"),
        ("", "2001:db8::1:7", "2001:db8::/64"),
    ],
)
def test_requests_count_for_a_user_or_for_the_address_of_an_anonymous_client(
    user: str, peer: str, source: str
) -> None:
    assert source_of_client(door(Limits()), user, peer) == source


def test_full_broker_still_hears_out_as_many_again() -> None:
    assert door(Limits(connections_max=5), 9).enter(1, "10.0.0.1:1")
    assert not door(Limits(connections_max=5), 10).enter(1, "10.0.0.1:1")


@pytest.mark.parametrize(
    ("identity", "certificate", "user"),
    [
        (
            "common_name",
            {"subject": ((("organizationName", "o"),), (("commonName", "device-7"),))},
            "device-7",
        ),
        ("common_name", {"subject": ((("organizationName", "o"),),)}, ""),
        ("common_name", None, ""),
        ("none", {"subject": ((("commonName", "device-7"),),)}, ""),
    ],
)
def test_user_is_the_common_name_of_the_certificate(
    identity: str, certificate: dict[str, object] | None, user: str
) -> None:
    class Transport:
        def get_extra_info(self, name: str) -> object:
            return certificate if name == "peercert" else None

    tls = TlsConfig(Path("c"), Path("k"), Path("ca"), True, identity)  # type: ignore[arg-type]  # one of two words
    entrance = door(Limits(), 0, ListenerConfig(tls=tls))

    assert _certificate_user(entrance, Transport()) == user
