"""Addresses to listen on: whether two are the same, and whether one is this machine's alone."""

from __future__ import annotations

import pytest

from timebound.config.addresses import address_text, hosts_meet, is_loopback


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "192.0.2.1", True),
        ("0.0.0.0", "broker.example", True),
        ("localhost", "127.0.0.1", True),
        ("LOCALHOST", "::1", True),
        ("::", "::1", True),
        ("::", "2001:DB8::1", True),
        ("2001:db8:0::1", "2001:DB8::1", True),
        ("::", "0.0.0.0", False),
        ("::", "127.0.0.1", False),
        ("127.0.0.1", "192.0.2.1", False),
        ("broker.example", "BROKER.example", True),
        ("broker.example", "other.example", False),
    ],
)
def test_hosts_meet_where_one_port_cannot_serve_both(one: str, other: str, expected: bool) -> None:
    assert hosts_meet(one, other) is expected
    assert hosts_meet(other, one) is expected


def test_an_address_is_written_as_in_urls() -> None:
    assert address_text("127.0.0.1", 1883) == "127.0.0.1:1883"
    assert address_text("::1", 1883) == "[::1]:1883"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.168.1.1", False),
        ("localhost.evil.example", False),
    ],
)
def test_loopback_is_told_by_the_address(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
