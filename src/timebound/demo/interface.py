"""A real slow interface between two network namespaces of this machine, shaped by the kernel.

Two namespaces are joined by a pair of virtual Ethernet devices; the near one sends through a token
bucket (`tc tbf`) with a buffer of its own, as routers and radios have. Unlike a relay this shows what the
kernel keeps in a socket and on the way. It needs root; `why_not` says what is missing.
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
# As much as passes at once after a pause: two full frames, and what a small timer tick brings.
BURST_BYTES: Final = 4_096
# On the wire a full segment takes so much: Ethernet, IP and TCP with timestamps beside 1,448 bytes.
FRAME_BYTES: Final = 1_514
SEGMENT_BYTES: Final = 1_448
_COMMAND_S_MAX: Final = 10.0

_numbers = itertools.count(1)


def why_not() -> str:
    """Why no such interface can be made here; empty if it can."""
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
    """Two namespaces, and a link from the near to the far one that carries so much and no more.

    The way back is as fast as the machine. Rates count what is on the wire, with all headers.
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
        """Carry so much from now on."""
        _run(
            *("tc", "-n", self.near, "qdisc", "replace", "dev", "shaped", "root", "tbf"),
            *("rate", f"{round(wire_bytes_per_s * 8)}bit", "burst", str(BURST_BYTES)),
            *("latency", f"{round(self._buffer_s * 1_000)}ms"),
        )

    def near_command(self, *command: str) -> list[str]:
        """A command as it is run at the near end."""
        return ["ip", "netns", "exec", self.near, *command]

    def far_command(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.far, *command]

    def _remove(self) -> None:
        while self._made:
            # What is left of one that cannot be removed does no harm, and hides no other error.
            subprocess.run(
                ["ip", "netns", "delete", self._made.pop()],
                timeout=_COMMAND_S_MAX,
                check=False,
                capture_output=True,
            )


def payload_rate(wire_bytes_per_s: float) -> float:
    """What is left for TCP's payload, at best: in full segments."""
    return wire_bytes_per_s * SEGMENT_BYTES / FRAME_BYTES


def _run(*command: str) -> None:
    try:
        subprocess.run(command, timeout=_COMMAND_S_MAX, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip() or f"it ended with {error.returncode}"
        raise TimeboundError(f"{' '.join(command)}: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TimeboundError(f"{' '.join(command)}: {error}") from error
