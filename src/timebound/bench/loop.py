"""The loop that drives all clients of a load run: one thread, one epoll.

Clients decide what to send (`clients.py`); the loop calls them when a socket is ready, when a
message is due at a fixed rate, and when a server expects a PINGREQ.
"""

from __future__ import annotations

import contextlib
import heapq
import select
import time
from typing import Final

from timebound.bench.clients import SECOND, LoadClient, LoadPublisher
from timebound.errors import MalformedPacket

SLEEP_S_MAX: Final = 0.05  # the end of a part is noticed at most this late
RETRY_NS: Final = 10_000  # a publisher whose ring is full is tried again after this time
SELECT_FD_MAX: Final = 1024
_IN: Final = select.EPOLLIN
_IN_OUT: Final = select.EPOLLIN | select.EPOLLOUT


class ClientLoop:
    """Clients by descriptor, and what each waits for."""

    def __init__(self) -> None:
        self.lost: list[str] = []  # connections that ended early, with the reason
        self._epoll = select.epoll()  # created before all sockets: `select` needs a small descriptor
        self._clients: dict[int, LoadClient] = {}
        self._interest: dict[int, int] = {}
        self._timers: list[tuple[int, int, LoadPublisher]] = []  # when the next message is due, tie-breaker
        self._pings: list[tuple[int, int, LoadClient]] = []

    def add(self, client: LoadClient) -> None:
        fd = client.sock.fileno()
        self._clients[fd] = client
        self._interest[fd] = _IN
        self._epoll.register(fd, _IN)
        if client.ping_interval_s:
            due_ns = time.monotonic_ns() + int(client.ping_interval_s * SECOND)
            heapq.heappush(self._pings, (due_ns, fd, client))

    def add_timer(self, publisher: LoadPublisher) -> None:
        """Schedule a publisher with a fixed rate from its start on."""
        heapq.heappush(self._timers, (publisher.next_due_ns(), len(self._timers), publisher))

    def stop_timers(self) -> None:
        self._timers.clear()

    def has_clients(self) -> bool:
        return bool(self._clients)

    def turn(self, now_ns: int, stop_ns: int) -> None:
        """Wait for events, at most until `stop_ns`, and handle them."""
        wake_ns = stop_ns
        if self._timers:
            wake_ns = min(wake_ns, self._fire_timers(now_ns))
        if self._pings and self._pings[0][0] <= now_ns:
            self._send_pings(now_ns)
        timeout_s = min(max(0, wake_ns - time.monotonic_ns()) / SECOND, SLEEP_S_MAX)
        for fd, events in self._wait(timeout_s):
            client = self._clients.get(fd)
            if client is not None:
                self._handle(client, events)

    def _wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """Wait for events; by select if paced, because epoll waits in whole milliseconds."""
        if self._timers and self._epoll.fileno() < SELECT_FD_MAX:
            select.select([self._epoll], [], [], timeout_s)
            timeout_s = 0
        return self._epoll.poll(timeout_s)

    def _fire_timers(self, now_ns: int) -> int:
        """Serve every publisher that is due; return when the next one is."""
        timers = self._timers
        while timers[0][0] <= now_ns:
            _, number, publisher = timers[0]
            publisher.advance(now_ns)
            self.serve(publisher, now_ns)
            next_ns = max(publisher.next_due_ns(), now_ns + RETRY_NS)
            heapq.heapreplace(timers, (next_ns, number, publisher))
        return timers[0][0]

    def _send_pings(self, now_ns: int) -> None:
        while self._pings[0][0] <= now_ns:
            _, fd, client = self._pings[0]
            if client.is_open:
                client.ping()
                self.serve(client, now_ns)
            next_ns = now_ns + int(client.ping_interval_s * SECOND)
            heapq.heapreplace(self._pings, (next_ns, fd, client))

    def _handle(self, client: LoadClient, events: int) -> None:
        now_ns = time.monotonic_ns()
        if events & ~select.EPOLLOUT:
            try:
                is_open = client.receive()
                while is_open and client.has_buffered():
                    is_open = client.receive()
            except MalformedPacket as error:
                self._lose(client, str(error))
                return
            if not is_open:
                self._lose(client, "closed by the server")
                return
        self.serve(client, now_ns)

    def serve(self, client: LoadClient, now_ns: int) -> None:
        """Send what is due, and wait for writability if the send buffer is full."""
        if not client.is_open:
            return
        if not client.send(now_ns):
            self._lose(client, "closed by the server")
            return
        fd = client.sock.fileno()
        interest = _IN_OUT if client.is_blocked else _IN
        if self._interest[fd] != interest:
            self._interest[fd] = interest
            self._epoll.modify(fd, interest)

    def _lose(self, client: LoadClient, reason: str) -> None:
        if client.scanner.disconnect_reason >= 0:
            reason += f" with reason 0x{client.scanner.disconnect_reason:02x}"
        self.lost.append(f"{client.name}: {reason}")
        client.is_open = False
        fd = client.sock.fileno()
        self._epoll.unregister(fd)
        del self._clients[fd]
        client.sock.close()

    def close(self, goodbye: bytes) -> None:
        """Send these bytes on every open connection, and close it."""
        for client in self._clients.values():
            with contextlib.suppress(OSError):  # the broker may have gone first
                client.sock.send(goodbye)
            client.sock.close()
        self._clients.clear()
        self._epoll.close()
