"""The configuration file: values, mistakes with their places, the example and the reference."""

from __future__ import annotations

import ssl
import sys
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.access import AccessList, AccessRule, parse_access_rules
from timebound.errors import ConfigError
from timebound.node.config import (
    NEVER_S,
    check_config,
    default_config,
    is_loopback,
    load_access_list,
    load_config,
    parse_config,
)
from timebound.node.config_reader import key_text
from timebound.node.config_values import KIBIBYTE, TABLES, UNLIMITED, Setting, format_size, settings_of
from timebound.node.passwords import PasswordFile
from timebound.node.scheduling_config import scheduling_of
from timebound.units import SECOND, format_duration

ROOT = Path(__file__).parents[2]
PATH = Path("/etc/timebound/timebound.toml")


def mistakes_of(text: str, folder: Path) -> list[str]:
    """Every mistake, with the name of the file alone in front."""
    path = folder / "t.toml"
    path.write_text(text, "utf-8")
    return [str(mistake).replace(f"{folder}/", "") for mistake in check_config(path)]


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = = 1", "t.toml:1: not valid TOML: invalid value"),
        ("a = 1\na = 2", "t.toml:2: not valid TOML: cannot overwrite a value"),
        ("a = '", 't.toml:1: not valid TOML: expected "\'"'),
        ("\nnod_name = 'a'", "t.toml:2: nod_name: unknown key; did you mean 'node_name'?"),
        ("port = 1883", "t.toml:1: port: unknown key; it belongs to [[listeners]]"),
        (
            "[limits]\nconnect_timeout_s = '1s'",
            "t.toml:2: limits.connect_timeout_s: unknown key; did you mean 'connect_timeout'?",
        ),
        ("[limit]\n", "t.toml:1: limit: unknown key; did you mean 'limits'?"),
        ("[log]\nzzz = 1", "t.toml:2: log.zzz: unknown key; [log] knows level, format"),
        (
            "[limits]\ninflight_max = 70_000",
            "t.toml:2: limits.inflight_max: must be from 1 to 65535, not 70000",
        ),
        (
            "[limits]\ninflight_max = true",
            "t.toml:2: limits.inflight_max: must be a whole number from 1 to 65535, not true",
        ),
        (
            "[limits]\nconnections_max = -1",
            "t.toml:2: limits.connections_max: must be at least 1, not -1",
        ),
        (
            "[limits]\npacket_size_max = '64KB'",
            "t.toml:2: limits.packet_size_max: '64KB' is not a size; "
            'write bytes like 65536, or "64KiB", "1MiB"',
        ),
        (
            "[limits]\npacket_size_max = '64B'",
            "t.toml:2: limits.packet_size_max: must be from 128 to 268435460, not '64B'",
        ),
        (
            "[limits]\nconnect_timeout = 30",
            't.toml:2: limits.connect_timeout: must be a duration with a unit like "30s", not 30',
        ),
        (
            "[limits]\nconnect_timeout = '3 weeks'",
            "t.toml:2: limits.connect_timeout: '3 weeks' is not a duration; write it like 250ms, 1.5s or 2m",
        ),
        (
            "[limits]\nconnect_timeout = '1e999990s'",
            "t.toml:2: limits.connect_timeout: '1e999990s' is not a duration; "
            'write it like "250ms", "1.5s" or "2m"',
        ),
        (
            "[limits]\nkeep_alive_max = '20h'",
            "t.toml:2: limits.keep_alive_max: must be from 0s to 65535s, not '20h'",
        ),
        (
            "[limits]\nkeep_alive_max = '1500ms'",
            "t.toml:2: limits.keep_alive_max: must be whole seconds, as MQTT sends them, not '1500ms'",
        ),
        (
            "[limits]\nqueue_bytes_per_client_max = '1KiB'",
            "t.toml:2: limits.queue_bytes_per_client_max: is smaller than packet_size_max (1MiB), "
            "which has to fit in",
        ),
        (
            "[limits]\nqueue_bytes_total_max = '1MiB'",
            "t.toml:2: limits.queue_bytes_total_max: is smaller than queue_bytes_per_client_max (16MiB), "
            "which has to fit in",
        ),
        (
            "[log]\nlevel = 'warn'",
            't.toml:2: log.level: must be one of "debug", "info", "warning", "error", not \'warn\'; '
            'did you mean "warning"?',
        ),
        ("data = 3", "t.toml:1: data: is a table, not 3; write its keys under [data]"),
        ("[data]\nfsync = 1", "t.toml:2: data.fsync: must be true or false, not 1"),
        ("[data]\npath = 1", 't.toml:2: data.path: must be a string in quotes like "a", not 1'),
        ("[data]\npath = ''", "t.toml:2: data.path: is empty; give a path or leave the key out"),
        (
            '[data]\npath = "a\\u0000"',
            "t.toml:2: data.path: has a null character, which no name or path may have",
        ),
        (
            "[data]\npath = '~nobody-of-this-name/x'",
            "t.toml:2: data.path: no home directory is known for '~nobody-of-this-name/x'; "
            "write the path in full",
        ),
        ("node_name = 'a b'", "t.toml:1: node_name: must be 1 to 64 of A-Z a-z 0-9 . _ -, not 'a b'"),
        (
            "listeners = []",
            "t.toml:1: listeners: there is no listener, so nobody could connect; leave the key out",
        ),
        (
            "[listeners]\nport = 1",
            "t.toml:1: listeners: is a list of tables; write [[listeners]] above the keys of each",
        ),
        (
            "[[listeners]]\nport = 1\n[[listeners]]\nport = 99999",
            "t.toml:4: listeners[1].port: must be from 0 to 65535, not 99999",
        ),
        (
            "[[listeners]]\n[[listeners]]\nhost = 'localhost'",
            "t.toml:2: listeners[1].port: localhost:1883 is taken by listener 0",
        ),
        (
            "[[listeners]]\nhost = '0.0.0.0'\nallow_anonymous = true\n[[listeners]]",
            "t.toml:4: listeners[1].port: 127.0.0.1:1883 is taken by listener 0",
        ),
        (
            "[[listeners]]\nname = 'a'\n[[listeners]]\nport = 0\nname = 'a'",
            "t.toml:5: listeners[1].name: listener 0 has the name 'a' too",
        ),
        (
            "[[listeners]]\npath = '/x'",
            't.toml:2: listeners[0].path: is for kind = "websocket" alone',
        ),
        (
            "[[listeners]]\nkind = 'websocket'\npath = 'x'",
            "t.toml:3: listeners[0].path: must begin with '/', not 'x'",
        ),
        (
            "[[listeners]]\nkind = 'websocket'\norigins = ['a.example']",
            "t.toml:3: listeners[0].origins: 'a.example' is no origin; write it like \"https://a.example\"",
        ),
        (
            "[[listeners]]\nshares = ['alarm/#']",
            "t.toml:2: listeners[0].shares: share 'alarm/#' is no topic filter and percent from 1 to 90, "
            "like 'alarm/#=20'",
        ),
        (
            "[[listeners]]\nuntimed_share_percent = 60\nshares = ['alarm/#=50']",
            "t.toml:3: listeners[0].shares: shares (0.6, 0.5) add up to more than 1",
        ),
        (
            "[[listeners]]\nkind = 'websocket'\norigins = '*'",
            't.toml:3: listeners[0].origins: must be a list of strings like ["a", "b"], not \'*\'',
        ),
        (
            "[[listeners]]\nhost = ''\nallow_anonymous = true",
            't.toml:2: listeners[0].host: is empty; "0.0.0.0" or "::" listens on every address',
        ),
        (
            "\n[[listeners]]\nhost = '::'",
            "t.toml:2: listeners[0]: nobody could log in at [::]:1883: set security.password_file, "
            'tls.identity = "common_name", or allow_anonymous = true',
        ),
        (
            "[security]\nanonymous_user = '*'",
            "t.toml:2: security.anonymous_user: '*' stands for every user in rules; choose another name",
        ),
        (
            "[security]\nanonymous_user = 'g'\n[[acl]]\nuser = ''\nfilter = '#'",
            't.toml:2: security.anonymous_user: names the clients that rules for user "" are about',
        ),
        ("[[acl]]\nuser = 'a'", "t.toml:1: acl[0].filter: is required"),
        (
            "[[acl]]\nuser = 'a'\nfilter = 'a#'",
            "t.toml:3: acl[0].filter: topic filter 'a#' has '#' before its end",
        ),
    ],
)
def test_one_mistake_is_named_by_line_key_and_remedy(tmp_path: Path, text: str, expected: str) -> None:
    assert mistakes_of(text, tmp_path) == [expected]


def test_all_mistakes_are_collected_in_their_order(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "node_name = 5",  # 1
            "[log]",
            'level = """',  # 3
            'loud"""',
            "[limits]",
            "inflight_max = 0",  # 6
            "[[listeners]]",
            "port = 'x'",  # 8
            "hst = '::'",  # 9
            "[[listeners]]",
            "[listeners.tls]",  # 11
            "identity = 'common_name'",  # 12
        ]
    )

    places = [mistake.split(": ")[:2] for mistake in mistakes_of(text, tmp_path)]

    assert places == [
        ["t.toml:1", "node_name"],
        ["t.toml:3", "log.level"],
        ["t.toml:6", "limits.inflight_max"],
        ["t.toml:8", "listeners[0].port"],
        ["t.toml:9", "listeners[0].hst"],
        ["t.toml:11", "listeners[1].tls.certificate"],
        ["t.toml:11", "listeners[1].tls.key"],
        ["t.toml:12", "listeners[1].tls.identity"],
    ]


EVERY_PORT = """
[[listeners]]
port = 1883
[[listeners]]
host = "0.0.0.0"
port = {port}
allow_anonymous = true
[flight]
enabled = true
host = "::1"
port = {flight}
[metrics]
host = "localhost"
port = {metrics}
"""


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ({"port": 1884, "flight": 8815, "metrics": 9100}, []),
        (
            {"port": 1883, "flight": 1883, "metrics": 9100},
            ["t.toml:6: listeners[1].port: 0.0.0.0:1883 is taken by listener 0"],
        ),
        (
            {"port": 1884, "flight": 8815, "metrics": 1883},
            ["t.toml:14: metrics.port: localhost:1883 is taken by listener 0"],
        ),
        (
            {"port": 1884, "flight": 8815, "metrics": 1884},
            ["t.toml:14: metrics.port: localhost:1884 is taken by listener 1"],
        ),
        (
            {"port": 1884, "flight": 9100, "metrics": 9100},
            ["t.toml:14: metrics.port: localhost:9100 is taken by the service for journals"],
        ),
    ],
)
def test_one_port_used_twice_is_a_mistake(tmp_path: Path, ports: dict[str, int], expected: list[str]) -> None:
    assert mistakes_of(EVERY_PORT.format(**ports), tmp_path) == expected


def test_default_port_counts_as_used(tmp_path: Path) -> None:
    assert mistakes_of('[flight]\nenabled = true\nhost = "0.0.0.0"\nport = 1883\n', tmp_path) == [
        "t.toml:1: flight: nobody could log in: set security.password_file, or allow_anonymous = true",
        "t.toml:4: flight.port: 0.0.0.0:1883 is taken by listener 0",
    ]


NEEDS_PACKAGES = """
[trace]
enabled = true
[[journals]]
name = "all"
"""


def test_missing_packages_are_mistakes_of_what_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    journals = mistakes_of(NEEDS_PACKAGES, tmp_path)
    flight = mistakes_of("[flight]\nenabled = true\n", tmp_path)

    remedy = "install it with: pip install 'timebound[trace]'"
    assert journals == [
        f"t.toml:3: trace.enabled: tracing needs the package pyarrow; {remedy}",
        f"t.toml:4: journals: a journal needs the package pyarrow; {remedy}",
    ]
    assert flight == [
        f"t.toml:2: flight.enabled: the service for journals needs the package pyarrow; {remedy}"
    ]
    assert mistakes_of("", tmp_path) == []


HELD_BACK = """\
node_name = "a b"
[[listeners]]
port = "x"
name = "field"
path = 3
shares = ["a=x", 5, "b=y"]
[[listeners]]
name = "field"
kind = "websocket"
path = "mqtt"
origins = ["nowhere", 7]
host = "192.0.2.1"
[listeners.tls]
key = "no-such.key"
[security]
anonymous_user = "*"
acl_file = "acl.txt"
[[acl]]
filter = "a/#/b"
[[weights]]
topic = "b/#/c"
[[journals]]
filter = "c/#/d"
[flight]
host = ""
port = "y"
[[neighbour]]
port = 5
user = "u"
shares = ["c=z"]
[neighbour.tls]
certificate = "none.pem"
[metrics]
port = 1883
[input]
turn = "0s"
"""


def test_no_mistake_is_held_back_until_others_are_mended(tmp_path: Path) -> None:
    (tmp_path / "acl.txt").write_text("nonsense\n")

    found = mistakes_of(HELD_BACK, tmp_path)

    places = [mistake.split(": ")[:2] for mistake in found]
    expected = [
        "1: node_name",
        "3: listeners[0].port",
        *["5: listeners[0].path"] * 2,
        *["6: listeners[0].shares"] * 3,
        "8: listeners[1].name",
        "10: listeners[1].path",
        *["11: listeners[1].origins"] * 2,
        "13: listeners[1].tls.certificate",
        "14: listeners[1].tls.key",
        "16: security.anonymous_user",
        "17: security.acl_file",
        "18: acl[0].user",
        "19: acl[0].filter",
        "20: weights[0].weight",
        "21: weights[0].topic",
        "22: journals[0].name",
        "23: journals[0].filter",
        "25: flight.host",
        "26: flight.port",
        "27: neighbour[0].name",
        "28: neighbour[0].port",
        "29: neighbour[0].user",
        "30: neighbour[0].shares",
        *["31: neighbour[0].tls"] * 2,
        "31: neighbour[0].tls.ca",
        "32: neighbour[0].tls.certificate",
        "36: input.turn",
    ]
    assert sorted(": ".join(place) for place in places[:-1]) == sorted(f"t.toml:{line}" for line in expected)
    lines = [int(place[0].split(":")[1]) for place in places[:-1]]
    assert lines == sorted(lines)
    assert places[-1][0] == "acl.txt:1"


def test_zero_turn_is_answered_with_the_default(tmp_path: Path) -> None:
    assert mistakes_of('[input]\nturn = "0s"\n', tmp_path) == [
        't.toml:2: input.turn: is zero; "1ms" is the default'
    ]


def test_every_wrong_line_of_a_password_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("anna\n# fine\nbert:hash\n")

    found = mistakes_of('[security]\npassword_file = "users"\n', tmp_path)

    assert [mistake.split(": ")[0] for mistake in found] == ["users:1", "users:3"]


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    found = mistakes_of('[data]\npath = "file/data"\n[trace]\nenabled = true\npath = "file"\n', tmp_path)

    assert found == [
        "t.toml:2: data.path: 'file/data' cannot be made: 'file' is no folder that can be written",
        "t.toml:5: trace.path: 'file' is no folder that can be written",
    ]


def test_load_raises_the_first_mistake_with_its_attributes(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("[log]\nlevel = 1\nformat = 2\n")

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    assert (caught.value.path, caught.value.line, caught.value.key) == (str(path), 2, "log.level")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a = 1\nb = '\xff'", "t.toml:2: is not UTF-8 text: byte 0xff"),
        (b"#" * 5_000_000, "t.toml: is larger than 4194304 bytes; is it the right file?"),
        (b"x = " + b"[" * 5_000, "t.toml:1: values are nested too deeply"),
    ],
    ids=["not UTF-8", "too large", "too deep"],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(content)

    assert [str(mistake).replace(f"{tmp_path}/", "") for mistake in check_config(path)] == [expected]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (mistake,) = check_config(tmp_path / "none.toml")

    assert str(mistake) == f"{tmp_path}/none.toml: cannot be read: no such file or directory"


def test_a_byte_order_mark_and_dos_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(b"\xef\xbb\xbfnode_name = 'a'\r\n\r\nsys_interval = 3\r\n")

    assert [mistake.line for mistake in check_config(path)] == [3]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    server = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    server.cert_chain_pems[0].write_to_path(folder / "server.pem")
    server.private_key_pem.write_to_path(folder / "server.key")
    authority.issue_cert("other.example").private_key_pem.write_to_path(folder / "other.key")
    return folder


def tls_text(certificates: Path, **files: str) -> str:
    lines = [f"tls.{key} = '{certificates / name}'" for key, name in files.items()]
    return "\n".join(["[[listeners]]", *lines])


def test_tls_files_that_fit_are_accepted(certificates: Path, tmp_path: Path) -> None:
    text = tls_text(certificates, certificate="server.pem", key="server.key", ca="ca.pem")

    assert mistakes_of(text, tmp_path) == []


def test_tls_files_that_are_missing_are_named(certificates: Path, tmp_path: Path) -> None:
    text = tls_text(certificates, certificate="none.pem", key="server.key", ca="none.ca")

    assert mistakes_of(text, tmp_path) == [
        f"t.toml:2: listeners[0].tls.certificate: '{certificates}/none.pem' is no file; "
        "give the path of a PEM file",
        f"t.toml:4: listeners[0].tls.ca: '{certificates}/none.ca' is no file; give the path of a PEM file",
    ]


def test_a_key_of_another_certificate_is_refused(certificates: Path, tmp_path: Path) -> None:
    text = tls_text(certificates, certificate="server.pem", key="other.key", ca="other.key")

    first, second = mistakes_of(text, tmp_path)

    assert first.startswith(
        "t.toml:2: listeners[0].tls.certificate: certificate and key cannot be used together"
    )
    assert second.startswith("t.toml:4: listeners[0].tls.ca: holds no certificates in PEM")


def test_the_accepted_files_make_a_server_context(certificates: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(tls_text(certificates, certificate="server.pem", key="server.key"))

    tls = load_config(path).listeners[0].tls

    assert tls is not None
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)


def test_password_and_acl_mistakes_have_their_own_lines(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("# nobody\nann\n")
    (tmp_path / "rules").write_text("allow anyone all #\nallow\n\nallow anyone fly #\n")
    text = "[security]\npassword_file = 'users'\nacl_file = 'rules'\n"

    assert mistakes_of(text, tmp_path) == [
        "rules:2: 'user NAME', 'anyone' or 'anonymous' is expected, not ''",
        "rules:4: an action is 'publish', 'subscribe' or 'all', not 'fly'",
        "users:2: a line is 'name:hash'; make it with `timebound passwd`",
    ]


def test_missing_password_and_acl_files_are_named_where_they_are_configured(tmp_path: Path) -> None:
    text = "[security]\npassword_file = 'users'\nacl_file = 'rules'\n"

    assert mistakes_of(text, tmp_path) == [
        "t.toml:2: security.password_file: users: cannot be read: no such file or directory",
        "t.toml:3: security.acl_file: rules: cannot be read: no such file or directory",
    ]


def test_rules_in_both_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("allow anyone all #\n")
    text = "[security]\nacl_file = 'rules'\n[[acl]]\nuser = '*'\nfilter = '#'\n"

    assert mistakes_of(text, tmp_path) == [
        "t.toml:2: security.acl_file: is given besides [[acl]]; the order of rules would be unclear"
    ]


def test_rules_for_anonymous_are_refused_once_they_have_a_name(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("allow anonymous all #\n")
    text = "[security]\nacl_file = 'rules'\nanonymous_user = 'guest'\n"

    (mistake,) = mistakes_of(text, tmp_path)

    assert "rules: has rules for 'anonymous', but anonymous_user calls these clients 'guest'" in mistake


def test_a_file_in_place_of_the_data_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    assert mistakes_of("[data]\n", tmp_path) == [
        "t.toml:1: data.path: 'data' is no folder that can be written"
    ]


def test_the_access_list_comes_from_the_tables_or_the_file(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("allow user ann publish a\n")
    inline = parse_config("[[acl]]\nuser = 'bob'\nfilter = 'b'\n", tmp_path / "t.toml")
    from_file = parse_config("[security]\nacl_file = 'rules'\n", tmp_path / "t.toml")

    assert load_access_list(inline.security).may_publish("bob", "c", "b")
    assert not load_access_list(inline.security).may_publish("ann", "c", "a")
    assert load_access_list(from_file.security).may_publish("ann", "c", "a")
    assert load_access_list(default_config().security).may_publish("", "c", "x")

    (tmp_path / "rules").write_text("nonsense\n")
    with pytest.raises(ConfigError, match="rules:1: "):
        load_access_list(from_file.security)


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


KNOWN_KEYS = sorted({key for _, table in TABLES for key in settings_of(table)} | {"listeners", "tls", "acl"})
NUMBERS = ["1", "-1", "0", "9" * 5_000, "0.5", "nan", "inf", "true", "1979-05-27", "07:32:00"]
TEXTS = [
    "x",
    "",
    "1s",
    "1e999999s",
    "0.0.0.0",
    "64KiB",
    "never",
    "*",
    "tcp",
    "websocket",
    "x" * 5_000,
    "~",
    "~x",
]
OTHERS = ["[]", "[1]", "['*']", "{}", "{ key = 1 }", "[{}]", '"\\u0000"']
TOML_VALUES = st.sampled_from([*NUMBERS, *(f"'{text}'" for text in TEXTS), *OTHERS])
TOML_PARTS = st.one_of(
    st.tuples(st.sampled_from(KNOWN_KEYS), TOML_VALUES).map(" = ".join),
    st.sampled_from([f"[{name}]" for name, _ in TABLES if name]),
    st.sampled_from(["[[listeners]]", "[[acl]]", "[listeners.tls]", "limits.inflight_max = 3"]),
    st.text(max_size=10),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(TOML_PARTS, max_size=10))
def test_any_text_is_a_configuration_or_a_mistake_with_a_line(parts: list[str]) -> None:
    text = "\n".join(parts)

    mistake: ConfigError | None = None
    try:
        parse_config(text, PATH)
    except ConfigError as exc:
        mistake = exc

    assert mistake is None or 1 <= mistake.line <= text.count("\n") + 1


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_checked_without_another_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)

    assert all(isinstance(mistake, ConfigError) for mistake in check_config(path))


def test_the_example_can_be_used_and_shows_every_key() -> None:
    path = ROOT / "examples" / "timebound.toml"
    text = path.read_text("utf-8")

    config = load_config(path)

    assert config.limits == default_config().limits
    for _, table in TABLES:
        for key in settings_of(table):
            assert f"\n{key} = " in text or f"\n# {key} = " in text, key


def default_text(known: Field[Any], described: Setting) -> str:
    """A default as it would stand in TOML."""
    value = known.default
    if value is MISSING:
        return "required"
    if value is None:
        return "none"
    match described.kind:
        case "switch":
            return f"`{str(value).lower()}`"
        case "seconds" if value and value % 86_400 == 0:
            return f'`"{value // 86_400}d"`'
        case "duration" | "seconds":
            return f'`"{format_duration(round(value * SECOND))}"`'
        case "size" if value >= KIBIBYTE:
            return f'`"{format_size(value)}"`'
        case "texts":
            return f"`{list(value)}`"
        case "text" | "path" | "choice":
            return f'`"{value}"`'
        case _:
            return f"`{value}`"


def unit_text(described: Setting) -> str:
    words = {"switch": "true or false", "text": "text", "texts": "list of texts", "path": "path"}
    if described.kind in words:
        return words[described.kind]
    if described.kind == "fraction":
        return f"number, {described.least:g} to {described.most:g}"
    if described.kind == "choice":
        return ", ".join(f"`{choice}`" for choice in described.choices)
    unit = {"size": "bytes", "duration": "duration", "seconds": "whole seconds", "count": "number"}[
        described.kind
    ]
    if described.maximum < UNLIMITED and described.maximum != NEVER_S:
        return f"{unit}, {described.minimum} to {described.maximum}"
    return f"{unit}, at least {described.minimum}" if described.minimum else unit


def reference_of(table: type) -> str:
    """The rows that docs/configuration.md must have for a table."""
    return "\n".join(
        f"| `{key}` | {default_text(known, described)} | {unit_text(described)} | {described.reason} |"
        for key, (known, described) in settings_of(table).items()
    )


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_the_reference_says_what_the_code_does(name: str, table: type) -> None:
    reference = (ROOT / "docs" / "configuration.md").read_text("utf-8")

    assert reference_of(table) in reference, f"put these rows under [{name}]:\n{reference_of(table)}"


def test_the_reference_has_no_row_that_the_code_does_not_know() -> None:
    reference = (ROOT / "docs" / "configuration.md").read_text("utf-8")

    rows = [line for line in reference.split("\n") if line.startswith("| `")]

    # A kind of table that stands in two places is described once.
    assert len(rows) == sum(len(settings_of(table)) for table in {table for _, table in TABLES})


def test_the_rules_shown_in_the_reference_do_what_it_says() -> None:
    reference = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    shown = reference.split("```\n# who ")[1].split("```")[0]

    lines = ("# who " + shown).splitlines()
    in_order = AccessList(parse_access_rules("\n".join(lines)))
    exchanged = AccessList(parse_access_rules("\n".join([lines[0], lines[2], lines[1], *lines[3:]])))

    assert in_order.may_publish("ann", "c", "plant/secret/x")
    assert not exchanged.may_publish("ann", "c", "plant/secret/x")
    assert in_order.may_subscribe("", "c", "public/+")
    assert in_order.may_publish("bob", "d1", "devices/bob/d1/temp")
    assert not in_order.may_publish("bob", "d1", "devices/ann/d1/temp")


def test_a_margin_reaches_the_queues_of_its_listener() -> None:
    config = parse_config("[[listeners]]\nmargin = '150ms'\n[[listeners]]\nport = 1884\n", PATH)

    assert [scheduling_of(one).margin_ns for one in config.listeners] == [150_000_000, 0]
