"""What the broker keeps on disk: `[data]`, `[trace]`, `[[journals]]`; `[flight]` serves the journals."""

# ruff: noqa: RUF009 - `setting` makes a dataclass field, not a call for a default value.

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from timebound.config.addresses import is_loopback
from timebound.config.tls import TlsConfig
from timebound.core.values.limits import DAY_S
from timebound.toml.setting import GIBIBYTE, KIBIBYTE, MEBIBYTE, setting


@dataclass(frozen=True, slots=True)
class DataConfig:
    """`[data]`: where the broker keeps what must survive a restart."""

    path: Path = setting(
        "path",
        Path("data"),
        "folder of the broker's data; relative to the configuration file",
    )
    fsync: bool = setting(
        "switch",
        True,
        "acknowledged messages survive a power cut; without it, only the end of the process",
    )


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """`[trace]`: one record for every matched (message, subscription), as Parquet files."""

    enabled: bool = setting("switch", False, "off, because it needs disk space; needs the package `pyarrow`")
    path: Path = setting(
        "path", Path("trace"), "folder of the trace, with one folder per day and node; relative to this file"
    )
    file_bytes_max: int = setting(
        "size",
        64 * MEBIBYTE,
        "a file is closed at this size; smaller files slow Spark down",
        minimum=KIBIBYTE,
    )
    file_age_max_s: float = setting(
        "duration",
        60.0,
        "a file is closed at this age; until then readers do not see it, and a power cut loses it",
        minimum=1,
    )
    disk_bytes_max: int = setting(
        "size", 4 * GIBIBYTE, "limit for all files; beyond it the oldest are removed", minimum=MEBIBYTE
    )


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """`[[journals]]`: messages kept on disk with offsets, for programs that read them in ranges."""

    name: str = setting(
        "text", MISSING, "name for readers, and of its folder; letters, digits, `.`, `_`, `-`"
    )
    filter: str = setting("text", "#", "topic filter of the messages it keeps")
    trace: bool = setting(
        "switch",
        False,
        "keep the records of the trace instead: the outcome of each matched (message, subscription)",
    )
    bytes_max: int = setting(
        "size", GIBIBYTE, "on disk; beyond it the oldest segment is removed", minimum=MEBIBYTE
    )
    age_max_s: float = setting(
        "duration", 7.0 * DAY_S, "what is older is removed, segment by segment", minimum=1
    )


@dataclass(frozen=True, slots=True)
class FlightConfig:
    """`[flight]`: where journals are read and rows published, over Arrow Flight."""

    enabled: bool | None = setting(
        "switch", None, "default: on if there is a journal; needs the package `pyarrow`"
    )
    host: str = setting("text", "127.0.0.1", "the default is reachable from this machine only")
    port: int = setting("count", 8815, "the port most Flight programs use; 0 = a free port", maximum=65_535)
    allow_anonymous: bool | None = setting(
        "switch", None, "serve programs without a user name; default: only if `host` is a loopback address"
    )
    staged_bytes_max: int = setting(
        "size",
        GIBIBYTE,
        "limit for rows that wait on disk to be published, of all programs",
        minimum=MEBIBYTE,
    )
    tls: TlsConfig | None = None

    @property
    def anonymous_allowed(self) -> bool:
        """Whether programs without a user name are served, with the default resolved."""
        return is_loopback(self.host) if self.allow_anonymous is None else self.allow_anonymous
