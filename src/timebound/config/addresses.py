"""Addresses to listen on: how they are written, and whether two are the same.

Names are not looked up, but for `localhost`: a configuration means the same wherever it is checked.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from typing import Final

# `localhost` is listened on with both protocols.
_LOCALHOST: Final = ("127.0.0.1", "::1")
_EVERY: Final = {"0.0.0.0": 4, "::": 6}


def address_text(host: str, port: int) -> str:
    """Write an address as URLs have it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def cannot_listen(error: OSError, host: str, port: int, change: str) -> OSError:
    """Return the error in words that name the address and what to do; `change` says what sets the port."""
    number = error.errno or 0
    if number == errno.EADDRINUSE:
        why = f"another program uses this port; choose another one with {change}, or stop that program"
    elif number == errno.EACCES:
        why = f"not permitted, as for most ports below 1024; choose a higher one with {change}"
    elif number == errno.EADDRNOTAVAIL:
        why = "this machine does not have that address"
    else:
        why = os.strerror(number).lower() if number > 0 else str(error.strerror or error)
    return OSError(f"cannot listen on {address_text(host, port)}: {why}")


def hosts_meet(one: str, other: str) -> bool:
    """Whether one port cannot be listened on at both hosts."""
    return any(_meet(first, second) for first in _addresses(one) for second in _addresses(other))


def _addresses(host: str) -> tuple[str, ...]:
    if host.lower() == "localhost":
        return _LOCALHOST
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        return (host.lower(),)


def _meet(one: str, other: str) -> bool:
    if one == other:
        return True
    # 0.0.0.0 takes a port on every IPv4 address, :: on every IPv6 address; neither meets the other.
    return _EVERY.get(one, 0) == _version(other) or _EVERY.get(other, 0) == _version(one)


def _version(host: str) -> int:
    """The protocol of an address; a name is taken for one of IPv4, as most are."""
    return 6 if ":" in host else 4
