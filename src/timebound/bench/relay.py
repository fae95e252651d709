"""The least that a broker must do, as a process: it shows the load generator's own ceiling.

It answers CONNECT and SUBSCRIBE, and then copies each publisher's packets, as bytes and in pieces
as large as they arrive, to the subscribers of that publisher's first topic. It matches, stores and
drops nothing, so no broker on this machine can be much faster. It is not a broker: one topic per
publisher, no checks.

Run as `python -m timebound.bench.relay`; prints its port, and ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Final

from timebound.bench.counting import Samples, Scanner
from timebound.wire import packet_types as types
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connack, Connect, Packet, Suback, Subscribe

_BUFFER_BYTES: Final = 512 << 10
_STDIN: Final = 0
_SEND_TIMEOUT_S: Final = 10.0


class Peer:
    """One connection: decoded packet by packet until it publishes, then only copied."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.decoder = Decoder(is_server=True)
        self.filters: list[str] = []
        self.targets: list[socket.socket] | None = None  # a list once it publishes
        self.is_ignored = False
        self.scanner = Scanner(0, Samples())
        self.rest = b""

    def accepts(self, topic: str) -> bool:
        return any(
            topic.startswith(each[:-1]) if each.endswith("#") else topic == each for each in self.filters
        )


class Relay:
    """All connections, served from one loop."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._peers: dict[int, Peer] = {}
        self._epoll = select.epoll()
        self._buffer = bytearray(_BUFFER_BYTES)
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Serve until standard input is closed."""
        self._epoll.register(self._listener, select.EPOLLIN)
        self._epoll.register(_STDIN, select.EPOLLIN)
        while True:
            for fd, _ in self._epoll.poll():
                if fd == _STDIN:
                    return
                if fd == self._listener.fileno():
                    self._accept()
                else:
                    self._read(fd)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A blocking send is backpressure: short, because the generator always reads.
        sock.settimeout(_SEND_TIMEOUT_S)
        self._peers[sock.fileno()] = Peer(sock)
        self._epoll.register(sock, select.EPOLLIN)

    def _read(self, fd: int) -> None:
        peer = self._peers[fd]
        kept = len(peer.rest)
        if kept == len(self._buffer):
            self._buffer += bytes(kept)  # a packet longer than the buffer
        self._buffer[:kept] = peer.rest
        with memoryview(self._buffer) as view:
            try:
                end = kept + peer.sock.recv_into(view[kept:])
            except OSError:
                end = kept
            if end == kept:
                self._close(fd)
                return
            kind = self._buffer[0] >> 4
            if peer.targets is None and kind == types.PUBLISH:
                peer.targets = self._targets(first_topic(self._buffer))
            if kind in (types.PUBACK, types.PUBREC):
                # From here on a subscriber only sends acknowledgements, which are ignored.
                peer.is_ignored = True
            if peer.is_ignored:
                return
            if peer.targets is None:
                self._answer_all(peer, bytes(view[:end]))
                return
            taken = peer.scanner.scan(self._buffer, end, 0)
            self._copy(peer, view[:taken])
            peer.rest = bytes(view[taken:end])

    def _targets(self, topic: str) -> list[socket.socket]:
        return [peer.sock for peer in self._peers.values() if peer.accepts(topic)]

    def _answer_all(self, peer: Peer, data: bytes) -> None:
        for packet in peer.decoder.feed(data):
            answer = self._answer(peer, packet)
            if answer is not None:
                peer.sock.sendall(encode(answer, peer.decoder.version))

    def _answer(self, peer: Peer, packet: Packet) -> Packet | None:
        if isinstance(packet, Connect):
            return Connack()
        if isinstance(packet, Subscribe):
            peer.filters += [entry.topic_filter for entry in packet.entries]
            return Suback(packet.packet_id, [entry.qos for entry in packet.entries])
        return None

    def _copy(self, peer: Peer, packets: memoryview) -> None:
        """Forward whole packets, then acknowledge them to their publisher."""
        for target in peer.targets or ():
            with contextlib.suppress(OSError):  # a subscriber that left; closed in its own turn
                target.sendall(packets)
        if peer.scanner.replies:
            with contextlib.suppress(OSError):
                peer.sock.sendall(peer.scanner.replies)
            peer.scanner.replies.clear()

    def _close(self, fd: int) -> None:
        self._epoll.unregister(fd)
        self._peers.pop(fd).sock.close()


def first_topic(data: bytearray) -> str:
    """Return the topic of the PUBLISH that `data` starts with; its first kilobyte is complete."""
    start = 1
    while data[start] >= 0x80:
        start += 1
    length = int.from_bytes(data[start + 1 : start + 3], "big")
    return data[start + 3 : start + 3 + length].decode()


def main() -> None:
    relay = Relay()
    print(relay.port, flush=True)
    relay.serve()


if __name__ == "__main__":
    main()
