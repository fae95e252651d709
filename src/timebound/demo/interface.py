"""A real slow interface between two network namespaces of this machine, shaped by the kernel.

Two namespaces are joined by a pair of virtual Ethernet devices; the near one sends through a token
bucket (`tc tbf`) with a buffer of its own, as routers and radios have. Unlike a relay this shows what the
kernel holds in sockets and queues. It needs root; `why_not` returns what is missing.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from types import TracebackType
from typing import Final

from timebound.errors import TimeboundError

NEAR_ADDRESS: Final = "10.77.0.1"
FAR_ADDRESS: Final = "10.77.0.2"
# Passes at once after a pause: two full frames, and what arrives in a short timer tick.
BURST_BYTES: Final = 4_096
# A full segment on the wire: Ethernet, IP and TCP headers with timestamps, and 1,448 bytes.
FRAME_BYTES: Final = 1_514
SEGMENT_BYTES: Final = 1_448
_COMMAND_S_MAX: Final = 10.0

_numbers = itertools.count(1)


def why_not() -> str:
    """Return why no such interface can be made here; empty if one can."""
    for program in ("ip", "tc", "ss"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with ShapedInterface(125_000, 0.05):
            return ""
    except TimeboundError as error:
        return str(error)


class ShapedInterface:
    """Two namespaces, and a link of limited rate from the near to the far one.

    The reverse direction is not limited. Rates count bytes on the wire, headers included.
    """

    def __init__(self, wire_bytes_per_s: float, buffer_s: float) -> None:
        stem = f"tb{os.getpid()}-{next(_numbers)}"
        self.near = f"{stem}-near"
        self.far = f"{stem}-far"
        self._rate = wire_bytes_per_s
        self._buffer_s = buffer_s
        self._made: list[str] = []

    def __enter__(self) -> ShapedInterface:
        try:
            for name in (self.near, self.far):
                _run("ip", "netns", "add", name)
                self._made.append(name)
                _run("ip", "-n", name, "link", "set", "lo", "up")
            _run(
                *("ip", "-n", self.near, "link", "add", "shaped", "type", "veth"),
                *("peer", "name", "shaped", "netns", self.far),
            )
            for name, address in ((self.near, NEAR_ADDRESS), (self.far, FAR_ADDRESS)):
                _run("ip", "-n", name, "address", "add", f"{address}/30", "dev", "shaped")
                _run("ip", "-n", name, "link", "set", "shaped", "up")
            self.shape(self._rate)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def shape(self, wire_bytes_per_s: float) -> None:
        """Change the rate."""
        _run(
            *("tc", "-n", self.near, "qdisc", "replace", "dev", "shaped", "root", "tbf"),
            *("rate", f"{round(wire_bytes_per_s * 8)}bit", "burst", str(BURST_BYTES)),
            *("latency", f"{round(self._buffer_s * 1_000)}ms"),
        )

    def near_command(self, *command: str) -> list[str]:
        """Return a command that runs at the near end."""
        return ["ip", "netns", "exec", self.near, *command]

    def far_command(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.far, *command]

    def _remove(self) -> None:
        while self._made:
            # A namespace that cannot be removed does no harm, and must not hide another error.
            subprocess.run(
                ["ip", "netns", "delete", self._made.pop()],
                timeout=_COMMAND_S_MAX,
                check=False,
                capture_output=True,
            )


def payload_rate(wire_bytes_per_s: float) -> float:
    """Return the rate of TCP payload at best, in full segments."""
    return wire_bytes_per_s * SEGMENT_BYTES / FRAME_BYTES


def _run(*command: str) -> None:
    try:
        subprocess.run(command, timeout=_COMMAND_S_MAX, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip() or f"ended with {error.returncode}"
        raise TimeboundError(f"{' '.join(command)}: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TimeboundError(f"{' '.join(command)}: {error}") from error
