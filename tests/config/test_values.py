"""The values of a configuration: their defaults, and what follows from them."""

from __future__ import annotations

from dataclasses import MISSING, replace
from pathlib import Path

import pytest

from timebound.config.listeners import ListenerConfig
from timebound.config.security import SecurityConfig
from timebound.config.storage import FlightConfig, JournalConfig
from timebound.config.tls import TlsConfig
from timebound.config.values import TABLES, Config
from timebound.node.config import default_config
from timebound.toml.setting import settings_of


def test_defaults_listen_on_this_machine_alone() -> None:
    config = default_config()

    (listener,) = config.listeners
    assert (listener.host, listener.port, listener.kind) == ("127.0.0.1", 1883, "tcp")
    assert listener.anonymous_allowed
    assert config.data.path == Path("data")
    assert config.security.rules == ()


def test_somebody_can_log_in_by_password_certificate_or_without_a_name() -> None:
    closed = ListenerConfig(host="0.0.0.0")
    tls = TlsConfig(Path("c"), Path("k"), Path("ca"), identity="common_name")

    assert not Config().lets_somebody_in(closed)
    assert Config(security=SecurityConfig(password_file=Path("users"))).lets_somebody_in(closed)
    assert Config().lets_somebody_in(replace(closed, tls=tls))
    assert not Config().lets_somebody_in(replace(closed, tls=replace(tls, identity="none")))
    assert Config().lets_somebody_in(replace(closed, allow_anonymous=True))


def test_journals_are_served_if_there_are_any_or_it_is_asked_for() -> None:
    journal = JournalConfig("plant")

    assert [config.flight_enabled for config in (Config(), Config(journals=(journal,)))] == [False, True]
    assert Config(flight=FlightConfig(enabled=True)).flight_enabled
    assert not Config(journals=(journal,), flight=FlightConfig(enabled=False)).flight_enabled


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_every_default_is_within_its_range(name: str, table: type) -> None:
    for key, (known, spec) in settings_of(table).items():
        if known.default is MISSING or known.default is None:
            continue
        if spec.kind in ("count", "size", "duration", "seconds"):
            assert spec.minimum <= known.default <= spec.maximum, f"[{name}] {key}"
        elif spec.kind == "fraction":
            assert spec.least <= known.default <= spec.most, f"[{name}] {key}"
        elif spec.kind == "choice":
            assert known.default in spec.choices, f"[{name}] {key}"
