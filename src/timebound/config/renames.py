"""Keys of the configuration that were renamed, and the notice about a file that has an old name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from timebound.toml.renames import Renamed

# Keys that had another name once, tables before the keys in them; docs/configuration.md lists them.
RENAMED: Final = (
    Renamed("", "neighbour", "neighbours"),
    Renamed("neighbours", "rate", "link_bytes_per_second"),
    Renamed("neighbours", "strategy_weight_percent", "strategy_mix_percent"),
    Renamed("listeners", "strategy_weight_percent", "strategy_mix_percent"),
    Renamed("input", "stop_allowance", "stall_allowance"),
)


@dataclass(frozen=True, slots=True)
class ConfigNotice:
    """What a file can be used with, but should be changed in: an old name of a key."""

    message: str
    path: str
    line: int
    key: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.key}: {self.message}"
