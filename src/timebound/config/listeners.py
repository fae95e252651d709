"""`[[listeners]]`: where clients connect, and how their links are scheduled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from timebound.config.addresses import is_loopback
from timebound.config.output import (
    epsilon_setting,
    mix_setting,
    shares_setting,
    strategy_setting,
    untimed_share_setting,
)
from timebound.config.tls import TlsConfig
from timebound.core.link.queue import EPSILON
from timebound.toml.setting import setting


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """`[[listeners]]`: one address to accept connections on."""

    name: str = setting("text", "", "name in logs and errors; empty = made from kind, host and port")
    host: str = setting("text", "127.0.0.1", "the default is reachable from this machine only")
    port: int = setting(
        "count", 1883, "the port registered for MQTT; 0 = a free port (for tests)", maximum=65_535
    )
    kind: Literal["tcp", "websocket"] = setting(
        "choice",
        "tcp",
        "MQTT directly over TCP, or in WebSocket frames for browsers",
        choices=("tcp", "websocket"),
    )
    path: str = setting(
        "text", "/mqtt", "path of the WebSocket endpoint; the default is that of most client libraries"
    )
    origins: tuple[str, ...] = setting(
        "texts",
        (),
        "web origins whose pages may connect; if empty, browsers are refused and other clients "
        "served, because any page could otherwise reach a broker on its visitor's machine; `*` = "
        "any",
    )
    tls: TlsConfig | None = None
    allow_anonymous: bool | None = setting(
        "switch",
        None,
        "accept clients without a user name; default: only if `host` is a loopback address, so that"
        " nothing is open to a network by accident",
    )

    strategy: str = strategy_setting("a link of this listener")
    strategy_mix_percent: int | None = mix_setting()
    untimed_share_percent: int = untimed_share_setting()
    shares: tuple[str, ...] = shares_setting()
    link_bytes_per_second: int = setting(
        "size",
        0,
        "speed of the links if known: sessions with time limits are never sent more; 0 = measured",
    )
    epsilon: float = epsilon_setting(
        EPSILON, "what is all but hopeless should not take a link's time from others"
    )
    margin_s: float = setting(
        "duration",
        0.0,
        "assumed delay in hidden buffers behind the link, for messages that had to wait; "
        "acknowledgements of QoS 1 and 2 measure it, and the larger value counts",
        maximum=3_600,
    )

    @property
    def anonymous_allowed(self) -> bool:
        """Whether clients without a user name get in here, with the default resolved."""
        if self.allow_anonymous is None:
            return is_loopback(self.host)
        return self.allow_anonymous

    @property
    def label(self) -> str:
        """The name to show people."""
        return self.name or f"{self.kind} {self.host}:{self.port}"

    def allows_origin(self, origin: str | None) -> bool:
        """Whether a WebSocket request with this Origin header (None: it has none) is served."""
        return origin is None or "*" in self.origins or origin in self.origins
