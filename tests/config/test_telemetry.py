"""`[metrics]` and `[log]`: nothing is served or written that was not asked for."""

from __future__ import annotations

from pathlib import Path

from tests.config.doubles import PATH, mistakes_of

from timebound.config.telemetry import LogConfig, MetricsConfig
from timebound.node.config import parse_config


def test_metrics_are_off_and_for_this_machine_until_the_file_says_otherwise() -> None:
    config = parse_config("[metrics]\nport = 9100\n[log]\nformat = 'json'\n", PATH)

    assert MetricsConfig() == MetricsConfig("127.0.0.1", 0)
    assert config.metrics == MetricsConfig(port=9100)
    assert config.log == LogConfig(level="info", format="json")


def test_a_level_that_is_not_known_is_answered_with_those_that_are(tmp_path: Path) -> None:
    (mistake,) = mistakes_of("[log]\nformat = 'xml'\n", tmp_path)

    assert mistake == 't.toml:2: log.format: must be one of "text", "json", not \'xml\''
