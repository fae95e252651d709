from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.client.scripted_server import options
from timebound import Client, Will
from timebound.client.options import Address, parse_address


@pytest.mark.parametrize(
    ("host", "port", "is_tls", "expected"),
    [
        ("broker", None, False, Address("broker", 1883, False, None, None)),
        ("broker", None, True, Address("broker", 8883, True, None, None)),
        ("mqtt://broker", None, False, Address("broker", 1883, False, None, None)),
        ("mqtts://broker/", None, False, Address("broker", 8883, True, None, None)),
        ("mqtt://[::1]:1900", None, False, Address("::1", 1900, False, None, None)),
        ("mqtt://ann:p%40ss@broker:99", 5, False, Address("broker", 99, False, "ann", "p@ss")),
    ],
)
def test_addresses_are_hosts_or_urls(host: str, port: int | None, is_tls: bool, expected: Address) -> None:
    assert parse_address(host, port, is_tls) == expected


@pytest.mark.parametrize("url", ["http://broker", "mqtt://", "mqtt://broker/path", "mqtt://broker?x=1"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="mqtt"):
        parse_address(url, None, False)


def test_error_about_a_url_does_not_show_the_password() -> None:
    with pytest.raises(ValueError, match="broker") as caught:
        parse_address("mqtt://ann:secret@broker/path", None, False)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"version": 3}, "version is 3; it must be 5"),
        ({"keep_alive": 65_536}, "keep_alive is 65536; it must be 0 to 65535"),
        ({"receive_maximum": 0}, "receive_maximum is 0; it must be 1 to 65535"),
        ({"port": 65_536}, "the port must be 1 to 65535"),
        ({"session_expiry": "soon"}, "is not a duration"),
        ({"connect_timeout": 0}, "connect_timeout is 0; it must be above zero"),
        ({"version": 4, "password": "x"}, "a password needs a user name"),
        ({"version": 4, "clean_start": False}, "client_id is empty"),
        ({"will": Will("a/#")}, "will topic 'a/#' has a wildcard"),
        ({"will": Will("a", qos=3)}, "will QoS is 3"),
        ({"version": 4, "will": Will("a", delay="1s")}, "will_delay_interval needs MQTT 5"),
    ],
)
def test_wrong_argument_is_refused_before_connecting(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Client(**arguments)


def test_session_that_is_kept_is_resumed_from_the_second_connect_on() -> None:
    kept = options(1883, session_expiry_s=60)
    fresh = options(1883)

    assert [kept.connect_packet("c", is_first=one).clean_start for one in (True, False)] == [True, False]
    assert [fresh.connect_packet("c", is_first=one).clean_start for one in (True, False)] == [True, True]


def test_connect_packet_announces_our_limits_in_mqtt_5_alone() -> None:
    limited = options(1883, receive_maximum=7, maximum_packet_size=100, topic_alias_maximum=0)

    assert limited.connect_packet("c", is_first=True).properties.present() == {
        "receive_maximum": 7,
        "maximum_packet_size": 100,
    }
    assert replace(limited, version=4).connect_packet("c", is_first=True).properties.present() == {}
