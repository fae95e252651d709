"""Readings of `TCP_INFO`, Linux's state of a TCP connection.

Decisions are made elsewhere from readings, so they can be tested with numbers, without sockets.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from typing import Any, Final

# struct tcp_info of linux/tcp.h, since Linux 4.6: snd_mss, rtt, bytes_acked, notsent_bytes, min_rtt, and what
# lies between them.
_INFO: Final = struct.Struct("=16xI48xI48xQ16xII")
_INFO_BYTES: Final[int] = _INFO.size
_UNPACK: Final = _INFO.unpack
_NO_COUNT: Final = bytes(4)
_COUNT: Final = struct.Struct("=i").unpack
# Constants, since compiled code looks up an attribute of a module by name.
_HAS_INFO: Final = hasattr(socket, "TCP_INFO")
_LEVEL: Final[int] = socket.IPPROTO_TCP
_OPTION: Final[int] = socket.TCP_INFO if _HAS_INFO else 0
_IOCTL: Final[Callable[[int, int, bytes], bytes]] = fcntl.ioctl
_WAITING: Final[int] = termios.TIOCOUTQ
_MICROSECOND: Final = 1_000


class TcpReading:
    """The sending side of a connection at one moment, in bytes and nanoseconds."""

    __slots__ = ("bytes_acked", "in_flight", "rtt_min_ns", "rtt_ns", "segment_bytes", "unsent")

    def __init__(
        self,
        *,
        bytes_acked: int,
        in_flight: int,
        unsent: int = 0,
        segment_bytes: int = 1_448,
        rtt_ns: int = 0,
        rtt_min_ns: int = 0,
    ) -> None:
        self.bytes_acked = bytes_acked  # since the connection began
        self.in_flight = in_flight  # sent and not acknowledged
        self.unsent = unsent  # in the kernel's buffer: SIOCOUTQNSD
        self.segment_bytes = segment_bytes  # a full segment's payload
        self.rtt_ns = rtt_ns  # running mean of round trips
        self.rtt_min_ns = rtt_min_ns  # shortest round trip of the last minutes


def read(sock: Any) -> TcpReading | None:
    """Read the state of a socket; None if it is closed, not TCP, or not on Linux."""
    if sock is None or not _HAS_INFO:
        return None
    try:
        number = sock.fileno()
        if number < 0:
            return None
        info: bytes = sock.getsockopt(_LEVEL, _OPTION, _INFO_BYTES)
        # SIOCOUTQ: all that is not acknowledged. `TCP_INFO` only counts what was sent, and these counts
        # become wrong when this machine itself drops a packet.
        waiting: int = _COUNT(_IOCTL(number, _WAITING, _NO_COUNT))[0]
    except OSError:
        return None
    if len(info) < _INFO_BYTES:
        return None
    segment, rtt_us, acked, unsent, rtt_min_us = _UNPACK(info)
    return TcpReading(
        bytes_acked=acked,
        in_flight=max(waiting - unsent, 0),
        unsent=unsent,
        segment_bytes=segment,
        rtt_ns=rtt_us * _MICROSECOND,
        rtt_min_ns=rtt_min_us * _MICROSECOND,
    )
