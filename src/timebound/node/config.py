"""The broker's configuration: read it, check it, or take the defaults.

    config = load_config(Path("timebound.toml"))    # raises the first ConfigError
    mistakes = check_config(Path("timebound.toml")) # all of them, for `timebound check`

The values are described in `config_values.py`.
"""

from __future__ import annotations

from timebound.node.config_values import (
    NEVER_S,
    Config,
    DataConfig,
    Limits,
    ListenerConfig,
    LogConfig,
    SecurityConfig,
    TlsConfig,
    is_loopback,
)

__all__ = [
    "NEVER_S",
    "Config",
    "DataConfig",
    "Limits",
    "ListenerConfig",
    "LogConfig",
    "SecurityConfig",
    "TlsConfig",
    "default_config",
    "is_loopback",
]


def default_config() -> Config:
    """What runs without a file: MQTT on 127.0.0.1:1883, data in `./data`, this machine only."""
    return Config()
