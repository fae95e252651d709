"""A run as data: brokers with their configuration, links, clients, and what happens when.

Actions of a client: connect, disconnect, vanish, mute, speak, subscribe, unsubscribe, publish, request. Of a
node: crash, restart, clock, rules, disk-fails, disk-works. Of a link between nodes: cut, slow, dead, mend.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from timebound.config.values import Config
from timebound.units import MILLISECOND, format_duration


@dataclass(frozen=True, slots=True)
class ClientSetting:
    """A client: where it connects, and how."""

    name: str
    node: str
    user: str = ""
    version: int = 5
    clean_start: bool = False
    expiry_s: int = 3_600
    receive_maximum: int = 100
    packet_size_max: int = 0  # 0 = no limit
    keep_alive_s: int = 0
    ack_delay_ns: int = 0
    rate_bytes_per_s: int = 1_000_000
    latency_ns: int = MILLISECOND
    will: dict[str, Any] | None = None
    listener: int = 0
    renews: bool = False  # subscribes and advertises again, as client libraries do, if that was lost


@dataclass(frozen=True, slots=True)
class LinkPlace:
    """The way between two nodes."""

    one: str
    other: str
    rate_bytes_per_s: int = 1_000_000
    latency_ns: int = MILLISECOND


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happens at a time, to a client, a node, or a link (`one-other`)."""

    time_ns: int
    kind: str
    who: str
    what: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        details = " ".join(f"{key}={value!r}" for key, value in self.what.items())
        return f"{format_duration(self.time_ns)} {self.kind} {self.who} {details}".rstrip()


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run, which goes on for `quiet_ns` after the last action.

    With `is_settled` everything is mended before that, clients become quick, and brokers are asked for what
    they retain, so that all promises can be checked.
    """

    seed: int
    configs: tuple[Config, ...]
    links: tuple[LinkPlace, ...]
    clients: tuple[ClientSetting, ...]
    actions: tuple[Action, ...]
    commit_delay_ns: int = 20 * MILLISECOND
    quiet_ns: int = 45_000 * MILLISECOND
    is_settled: bool = True
