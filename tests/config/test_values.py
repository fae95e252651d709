"""The values of a configuration: their defaults, and what follows from them."""

from __future__ import annotations

from dataclasses import MISSING, replace
from pathlib import Path

import pytest
from tests.config.doubles import PATH

from timebound.config.values import (
    TABLES,
    Config,
    FlightConfig,
    JournalConfig,
    ListenerConfig,
    SecurityConfig,
    TlsConfig,
    is_loopback,
)
from timebound.node.config import default_config, load_config, parse_config
from timebound.node.login.passwords import PasswordFile
from timebound.toml.setting import settings_of


def test_defaults_listen_on_this_machine_alone() -> None:
    config = default_config()

    (listener,) = config.listeners
    assert (listener.host, listener.port, listener.kind) == ("127.0.0.1", 1883, "tcp")
    assert listener.anonymous_allowed
    assert config.data.path == Path("data")
    assert config.security.rules == ()


def test_a_network_listener_with_passwords_keeps_anonymous_clients_out(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "users")
    users.set("ann", "pw")
    users.save()
    path = tmp_path / "t.toml"
    path.write_text("[security]\npassword_file = 'users'\n[[listeners]]\nhost = '0.0.0.0'\n")

    (listener,) = load_config(path).listeners

    assert not listener.anonymous_allowed


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.168.1.1", False),
        ("localhost.evil.example", False),
    ],
)
def test_loopback_is_told_by_the_address(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_browsers_are_served_only_from_listed_origins() -> None:
    closed = parse_config("[[listeners]]\nkind = 'websocket'", PATH).listeners[0]
    listed = parse_config(
        "[[listeners]]\nkind = 'websocket'\norigins = ['https://a.example']", PATH
    ).listeners[0]
    anything = parse_config("[[listeners]]\nkind = 'websocket'\norigins = ['*']", PATH).listeners[0]

    assert closed.allows_origin(None)
    assert not closed.allows_origin("https://a.example")
    assert listed.allows_origin("https://a.example")
    assert not listed.allows_origin("https://a.example.evil.example")
    assert anything.allows_origin("null")


def test_open_network_is_closed_to_anonymous_clients_unless_the_configuration_says_otherwise() -> None:
    assert ListenerConfig(host="127.0.0.1").anonymous_allowed
    assert not ListenerConfig(host="0.0.0.0").anonymous_allowed
    assert ListenerConfig(host="0.0.0.0", allow_anonymous=True).anonymous_allowed
    assert not ListenerConfig(host="127.0.0.1", allow_anonymous=False).anonymous_allowed
    assert not FlightConfig(host="0.0.0.0").anonymous_allowed
    assert FlightConfig(host="0.0.0.0", allow_anonymous=True).anonymous_allowed


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


def test_listener_is_called_by_its_name_or_its_address() -> None:
    assert ListenerConfig(name="field").label == "field"
    assert ListenerConfig(port=1884).label == "tcp 127.0.0.1:1884"


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
