"""Options of the data source `timebound`, checked before any call to a broker.

Spark passes them as texts with names in any case. The error of a wrong value names the expected form,
that of an unknown option the closest known one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from timebound.errors import ConfigError, UnitError
from timebound.units import SECOND, parse_count, parse_duration

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
KINDS: Final = ("messages", "trace")
GAP_MODES: Final = ("error", "row")
# A Spark task costs tens of milliseconds, as does reading this many rows.
ROWS_PER_PARTITION: Final = 100_000
ROWS_PER_BATCH: Final = 1_000_000
COUNT_MAX: Final = (1 << 53) - 1

_NAMES: Final = (
    "servers", "topic", "where", "journal", "kind", "startingOffsets", "endingOffsets", "maxRowsPerBatch",
    "rowsPerPartition", "gaps", "pushFilters", "user", "password", "tls", "caFile", "retryTimeout",
)  # fmt: skip
# Old spellings, still read.
_RENAMED: Final = {"tlsca": "cafile"}
# Options that Spark itself hands on.
_OF_SPARK: Final = ("path", "checkpointlocation", "queryname")

# An offset, EARLIEST or LATEST per server; or one text for all servers.
Offsets = str | dict[str, int | str]


@dataclass(frozen=True)
class Options:
    """Parsed options of a reader or writer."""

    servers: tuple[str, ...]
    topic: str = "#"
    where: str = ""
    journal: str = ""
    kind: str = "messages"
    starting: Offsets = EARLIEST
    ending: Offsets = LATEST
    rows_per_batch: int = ROWS_PER_BATCH
    rows_per_partition: int = ROWS_PER_PARTITION
    gaps: str = "error"
    push_filters: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ca_file: str = ""
    retry_timeout_s: float = 30.0


def parse_options(given: Mapping[str, str]) -> Options:
    """Read the options of a query.

    Raises:
        ConfigError: one is wrong, unknown or missing.
    """
    values = _renamed({name.lower(): value for name, value in given.items()})
    known = {name.lower(): name for name in _NAMES}
    for name in values:
        if name not in known and name not in _OF_SPARK:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {known[close[0]]!r}?" if close else f"; known are {', '.join(_NAMES)}"
            raise ConfigError(f"unknown option{hint}", key=f"option {name!r}")
    servers = _servers(values.get("servers", ""))
    options = Options(
        servers,
        topic=values.get("topic", "#"),
        where=values.get("where", ""),
        journal=values.get("journal", ""),
        kind=_choice(values, "kind", KINDS),
        starting=_offsets(values.get("startingoffsets", EARLIEST), servers, "startingOffsets"),
        ending=_offsets(values.get("endingoffsets", LATEST), servers, "endingOffsets"),
        rows_per_batch=_count(values.get("maxrowsperbatch"), "maxRowsPerBatch", ROWS_PER_BATCH),
        rows_per_partition=_count(values.get("rowsperpartition"), "rowsPerPartition", ROWS_PER_PARTITION),
        gaps=_choice(values, "gaps", GAP_MODES),
        push_filters=_switch(values.get("pushfilters"), "pushFilters"),
        user=values.get("user", ""),
        password=values.get("password", ""),
        tls=_switch(values.get("tls"), "tls") or "cafile" in values,
        ca_file=values.get("cafile", ""),
        retry_timeout_s=_duration(values.get("retrytimeout", "30s"), "retryTimeout"),
    )
    if options.password and not options.user:
        raise ConfigError("is given without a user", key="option 'password'")
    return options


def _renamed(values: dict[str, str]) -> dict[str, str]:
    for old, new in _RENAMED.items():
        if old in values and new in values:
            raise ConfigError(
                f"is the old name of {new!r}, which is given too; keep one", key=f"option {old!r}"
            )
        if old in values:
            values[new] = values.pop(old)
    return values


def _servers(text: str) -> tuple[str, ...]:
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    if not servers:
        raise ConfigError('is required; write "host:port", and more after commas', key="option 'servers'")
    for server in servers:
        host, colon, port = server.rpartition(":")
        if not colon or not host or not _is_count(port, 0, 65_535):
            raise ConfigError(f'{server!r} is not a "host:port"', key="option 'servers'")
    if len(set(servers)) != len(servers):
        raise ConfigError("names a server twice", key="option 'servers'")
    return servers


def _offsets(text: str, servers: tuple[str, ...], name: str) -> Offsets:
    if text in (EARLIEST, LATEST):
        return text
    try:
        offsets = json.loads(text)
    except ValueError:
        offsets = None
    if not isinstance(offsets, dict):
        raise ConfigError(
            f'{text[:60]!r} is not "{EARLIEST}", "{LATEST}" or JSON like {{"host:port": 5}}',
            key=f"option {name!r}",
        )
    for server, offset in offsets.items():
        if server not in servers:
            raise ConfigError(f"names {server!r}, which is not one of the servers", key=f"option {name!r}")
        is_offset = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
        if not is_offset and offset not in (EARLIEST, LATEST):
            raise ConfigError(f"{offset!r} is not an offset of {server}", key=f"option {name!r}")
    missing = [server for server in servers if server not in offsets]
    if missing:
        raise ConfigError(f"has no offset for {missing[0]}", key=f"option {name!r}")
    return dict(offsets)


def _choice(values: dict[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = values.get(name, choices[0])
    if value not in choices:
        raise ConfigError(f"must be one of {', '.join(choices)}, not {value!r}", key=f"option {name!r}")
    return value


def _count(text: str | None, name: str, default: int) -> int:
    if text is None:
        return default
    if not _is_count(text, 1, COUNT_MAX):
        raise ConfigError(f"must be a whole number above 0, not {text!r}", key=f"option {name!r}")
    return int(text)


def _is_count(text: str, least: int, most: int) -> bool:
    try:
        parse_count(text, least, most)
    except UnitError:
        return False
    return True


def _switch(text: str | None, name: str) -> bool:
    value = (text or "false").lower()
    if value not in ("true", "false"):
        raise ConfigError(f"must be true or false, not {text!r}", key=f"option {name!r}")
    return value == "true"


def _duration(text: str, name: str) -> float:
    try:
        return parse_duration(text) / SECOND
    except UnitError as error:
        raise ConfigError(str(error), key=f"option {name!r}") from error
