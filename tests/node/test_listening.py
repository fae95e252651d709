"""Errors of listening: the address, the reason and the remedy are named."""

from __future__ import annotations

import errno
import socket

import pytest

from timebound.node.listening import cannot_listen


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
