"""The configuration file: the values it gives, and those it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.config.doubles import PATH

from timebound.config.reader import key_text
from timebound.config.scheduling import scheduling_of
from timebound.core.values.access import AccessRule
from timebound.node.config import default_config, is_loopback, load_config, parse_config
from timebound.node.login.passwords import PasswordFile
from timebound.toml.setting import NEVER_S


def test_defaults_listen_on_this_machine_alone() -> None:
    config = default_config()

    (listener,) = config.listeners
    assert (listener.host, listener.port, listener.kind) == ("127.0.0.1", 1883, "tcp")
    assert listener.anonymous_allowed
    assert config.data.path == Path("data")
    assert config.security.rules == ()


def test_an_empty_file_is_the_default_but_for_where_data_lies() -> None:
    config = parse_config("", PATH)

    assert config.listeners == default_config().listeners
    assert config.limits == default_config().limits
    assert config.data.path == PATH.parent / "data"


def test_every_kind_of_value_is_read() -> None:
    config = parse_config(
        """
        node_name = "n-1"
        sys_interval = "500ms"
        data = { path = "store", fsync = false }
        [[listeners]]
        name = "net"
        host = "0.0.0.0"
        port = 8884
        kind = "websocket"
        path = "/ws"
        origins = ["https://a.example", "*"]
        allow_anonymous = true
        tls.certificate = "c.pem"
        tls.key = "/keys/k.pem"
        tls.ca = "ca.pem"
        tls.identity = "common_name"
        [security]
        anonymous_user = "guest"
        [[acl]]
        user = "*"
        filter = "a/%u/#"
        action = "publish"
        allow = false
        [limits]
        packet_size_max = "2 MiB"
        topic_length_max = 100
        connect_timeout = "1.5s"
        keep_alive_max = "2m"
        session_expiry_max = "never"
        [log]
        level = "debug"
        """,
        PATH,
    )

    (listener,) = config.listeners
    assert listener.tls is not None
    assert listener.tls.certificate == PATH.parent / "c.pem"
    assert listener.tls.key == Path("/keys/k.pem")
    assert listener.tls.identity == "common_name"
    assert listener.origins == ("https://a.example", "*")
    assert config.data.path == PATH.parent / "store"
    assert config.data.fsync is False
    assert config.sys_interval_s == 0.5
    assert config.limits.packet_size_max == 2 * 1024 * 1024
    assert config.limits.topic_length_max == 100
    assert config.limits.connect_timeout_s == 1.5
    assert config.limits.keep_alive_max_s == 120
    assert config.limits.session_expiry_max_s == NEVER_S
    assert config.security.rules == (AccessRule("*", "publish", "a/%u/#", False),)
    assert config.log.level == "debug"


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


def test_key_text_is_how_people_write_it() -> None:
    assert key_text(("listeners", 0, "tls", "key")) == "listeners[0].tls.key"


def test_a_margin_reaches_the_queues_of_its_listener() -> None:
    config = parse_config("[[listeners]]\nmargin = '150ms'\n[[listeners]]\nport = 1884\n", PATH)

    assert [scheduling_of(one).margin_ns for one in config.listeners] == [150_000_000, 0]


def test_the_length_of_filters_may_still_be_written_as_a_size() -> None:
    assert parse_config("[limits]\nfilter_length_max = '4KiB'", PATH).limits.filter_length_max == 4096
