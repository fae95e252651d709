"""The configuration of one broker as a typed value, joined from its tables.

Each table is a class in the module of its subject: `listeners`, `tls`, `output`, `security`, `limits`,
`input`, `storage`, `mesh`, `telemetry`. A key is described there and nowhere else: kind, default, range and
the reason for it. The reader (`reader.py`) takes the ranges from there, and a test compares
`docs/configuration.md` with it row by row. Nothing here touches a file.
"""

# ruff: noqa: RUF009 - `setting` makes a dataclass field, not a call for a default value.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from timebound.config.input import InputConfig, WeightEntry
from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.mesh import MeshConfig, NeighbourConfig
from timebound.config.renames import ConfigNotice
from timebound.config.security import AclEntry, SecurityConfig
from timebound.config.storage import DataConfig, FlightConfig, JournalConfig, TraceConfig
from timebound.config.telemetry import LogConfig, MetricsConfig
from timebound.config.tls import NeighbourTlsConfig, TlsConfig
from timebound.toml.setting import setting


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration of one broker."""

    node_name: str = setting(
        "text", "timebound", "name of this broker in logs, `$SYS` and records; letters, digits, `.`, `_`, `-`"
    )
    sys_interval_s: float = setting(
        "duration", 10.0, "interval of publishing `$SYS`, as on other brokers; 0s = off"
    )
    data: DataConfig = DataConfig()
    listeners: tuple[ListenerConfig, ...] = (ListenerConfig(),)
    security: SecurityConfig = SecurityConfig()
    limits: Limits = Limits()
    input: InputConfig = InputConfig()
    trace: TraceConfig = TraceConfig()
    journals: tuple[JournalConfig, ...] = ()
    flight: FlightConfig = FlightConfig()
    neighbours: tuple[NeighbourConfig, ...] = ()
    mesh: MeshConfig = MeshConfig()
    metrics: MetricsConfig = MetricsConfig()
    log: LogConfig = LogConfig()
    # What should be changed in the file, though it can be used; no part of what it says.
    notices: tuple[ConfigNotice, ...] = field(default=(), compare=False)

    @property
    def flight_enabled(self) -> bool:
        """Whether journals are served, with the default resolved."""
        return bool(self.journals) if self.flight.enabled is None else self.flight.enabled

    def lets_somebody_in(self, listener: ListenerConfig) -> bool:
        """Whether any client could log in there."""
        if listener.anonymous_allowed or self.security.password_file is not None:
            return True
        return listener.tls is not None and listener.tls.identity != "none"


# Tables of the file by their TOML name.
TABLES: Final[tuple[tuple[str, type], ...]] = (
    ("", Config),
    ("data", DataConfig),
    ("listeners", ListenerConfig),
    ("listeners.tls", TlsConfig),
    ("security", SecurityConfig),
    ("acl", AclEntry),
    ("limits", Limits),
    ("input", InputConfig),
    ("weights", WeightEntry),
    ("trace", TraceConfig),
    ("journals", JournalConfig),
    ("flight", FlightConfig),
    ("flight.tls", TlsConfig),
    ("neighbours", NeighbourConfig),
    ("neighbours.tls", NeighbourTlsConfig),
    ("mesh", MeshConfig),
    ("metrics", MetricsConfig),
    ("log", LogConfig),
)
