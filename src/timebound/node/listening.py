"""Errors of listening on an address, with advice."""

from __future__ import annotations

import errno
import os

from timebound.config.addresses import address_text


def cannot_listen(error: OSError, host: str, port: int, change: str) -> OSError:
    """Return the error with the address and advice; `change` names what sets the port."""
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
