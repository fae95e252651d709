"""What a service manager is told: ready, alive or stopping (the protocol of systemd's sd_notify).

A message is one datagram to a socket that the manager names in the environment; without one, nothing is
sent. The watchdog is fed by the event loop itself, so a loop that hangs is noticed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

logger = logging.getLogger("timebound.node")

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"
# As systemd advises: twice within the time after which it would restart the service.
BEATS_PER_TIMEOUT: Final = 2


class ServiceManager:
    """The manager that started this process, if one did."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]  # an abstract socket, which is no file
        self.beat_s = _beat_s(environment)

    def tell(self, message: str) -> None:
        """Send a message; a manager that does not listen does not disturb the broker."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # The loop must not wait for a manager that reads nothing.
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            logger.debug("the service manager was not told %s: %s", message, error)

    async def feed_watchdog(self) -> None:
        """Report for ever that the event loop runs; return at once if nobody watches."""
        while self.beat_s:
            self.tell(ALIVE)
            await asyncio.sleep(self.beat_s)


def _beat_s(environment: Mapping[str, str]) -> float:
    """Return the interval of reports; 0 if this process is not watched."""
    try:
        timeout_us = int(environment.get("WATCHDOG_USEC", "0"))
        process = int(environment.get("WATCHDOG_PID", "0")) or os.getpid()
    except ValueError:
        return 0.0
    if timeout_us <= 0 or process != os.getpid():
        return 0.0
    return timeout_us / 1e6 / BEATS_PER_TIMEOUT
