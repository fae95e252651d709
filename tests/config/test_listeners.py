"""`[[listeners]]`: who gets in, how a listener is called, and where WebSocket requests may come from."""

from __future__ import annotations

from pathlib import Path

from tests.config.doubles import PATH

from timebound.config.listeners import ListenerConfig
from timebound.node.config import load_config, parse_config
from timebound.node.login.passwords import PasswordFile


def test_open_network_is_closed_to_anonymous_clients_unless_the_configuration_says_otherwise() -> None:
    assert ListenerConfig(host="127.0.0.1").anonymous_allowed
    assert not ListenerConfig(host="0.0.0.0").anonymous_allowed
    assert ListenerConfig(host="0.0.0.0", allow_anonymous=True).anonymous_allowed
    assert not ListenerConfig(host="127.0.0.1", allow_anonymous=False).anonymous_allowed


def test_a_network_listener_with_passwords_keeps_anonymous_clients_out(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "users")
    users.set("ann", "pw")
    users.save()
    path = tmp_path / "t.toml"
    path.write_text("[security]\npassword_file = 'users'\n[[listeners]]\nhost = '0.0.0.0'\n")

    (listener,) = load_config(path).listeners

    assert not listener.anonymous_allowed


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


def test_listener_is_called_by_its_name_or_its_address() -> None:
    assert ListenerConfig(name="field").label == "field"
    assert ListenerConfig(port=1884).label == "tcp 127.0.0.1:1884"
