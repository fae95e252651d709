"""`[metrics]` and `[log]`: metrics and log of the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from timebound.toml.setting import setting


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """`[metrics]`: figures for Prometheus over HTTP, at `/metrics`."""

    host: str = setting(
        "text",
        "127.0.0.1",
        "metrics reveal clients and topics; the default is reachable from this machine only",
    )
    port: int = setting("count", 0, "0 = off; nothing listens unless configured", maximum=65_535)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """`[log]`: what the broker writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "choice",
        "info",
        "`info` shows connections, refusals and limits, but no messages",
        choices=("debug", "info", "warning", "error"),
    )
    format: Literal["text", "json"] = setting(
        "choice",
        "text",
        "lines for people, or one JSON object per line for programs",
        choices=("text", "json"),
    )
