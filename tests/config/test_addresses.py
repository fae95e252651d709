"""Whether two parts of a broker would listen on the same address."""

from __future__ import annotations

import errno
import socket

import pytest

from timebound.config.addresses import address_text, cannot_listen, hosts_meet


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


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            OSError(errno.EADDRINUSE, "…"),
            "another program uses this port; choose another one with a.port, or stop that program",
        ),
        (
            OSError(errno.EACCES, "…"),
            "not permitted, as for most ports below 1024; choose a higher one with a.port",
        ),
        (OSError(errno.EADDRNOTAVAIL, "…"), "this machine does not have that address"),
        (OSError(errno.ENETDOWN, "…"), "network is down"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
    ],
)
def test_address_that_cannot_be_listened_on_is_named_with_the_reason(error: OSError, expected: str) -> None:
    assert str(cannot_listen(error, "::1", 80, "a.port")) == f"cannot listen on [::1]:80: {expected}"


def test_an_address_is_written_as_in_urls() -> None:
    assert address_text("127.0.0.1", 1883) == "127.0.0.1:1883"
    assert address_text("::1", 1883) == "[::1]:1883"
