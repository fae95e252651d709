"""Mistakes in a configuration: each named by its place and remedy, none held back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.config.doubles import PATH, mistakes_of

from timebound.config.limits import Limits
from timebound.config.reader import ConfigReader
from timebound.config.values import TABLES, Config
from timebound.core.values.access import AccessRule
from timebound.errors import ConfigError
from timebound.node.config import (
    default_config,
    parse_config,
    read_config,
)
from timebound.toml.setting import NEVER_S, settings_of


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
        ("[log]\nzzz = 1", "t.toml:2: log.zzz: unknown key; [log] has level, format"),
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
            "which must fit within it",
        ),
        (
            "[limits]\nqueue_bytes_total_max = '1MiB'",
            "t.toml:2: limits.queue_bytes_total_max: is smaller than queue_bytes_per_client_max (16MiB), "
            "which must fit within it",
        ),
        (
            "[log]\nlevel = 'warn'",
            't.toml:2: log.level: must be one of "debug", "info", "warning", "error", not \'warn\'; '
            'did you mean "warning"?',
        ),
        ("data = 3", "t.toml:1: data: must be a table, not 3; write its keys under [data]"),
        ("[data]\nfsync = 1", "t.toml:2: data.fsync: must be true or false, not 1"),
        ("[data]\npath = 1", 't.toml:2: data.path: must be a string in quotes like "a", not 1'),
        ("[data]\npath = ''", "t.toml:2: data.path: is empty; give a path or leave the key out"),
        (
            '[data]\npath = "a\\u0000"',
            "t.toml:2: data.path: contains a null character, which no name or path may have",
        ),
        (
            "[data]\npath = '~nobody-of-this-name/x'",
            "t.toml:2: data.path: no home directory is known for '~nobody-of-this-name/x'; "
            "write the full path",
        ),
        ("node_name = 'a b'", "t.toml:1: node_name: must be 1 to 64 of A-Z a-z 0-9 . _ -, not 'a b'"),
        (
            "listeners = []",
            "t.toml:1: listeners: is empty, so nobody could connect; leave the key out",
        ),
        (
            "[listeners]\nport = 1",
            "t.toml:1: listeners: must be a list of tables; write [[listeners]] above the keys of each",
        ),
        (
            "[[listeners]]\nport = 1\n[[listeners]]\nport = 99999",
            "t.toml:4: listeners[1].port: must be from 0 to 65535, not 99999",
        ),
        (
            "[[listeners]]\n[[listeners]]\nhost = 'localhost'",
            "t.toml:2: listeners[1].port: localhost:1883 is used by listener 0",
        ),
        (
            "[[listeners]]\nhost = '0.0.0.0'\nallow_anonymous = true\n[[listeners]]",
            "t.toml:4: listeners[1].port: 127.0.0.1:1883 is used by listener 0",
        ),
        (
            "[[listeners]]\nname = 'a'\n[[listeners]]\nport = 0\nname = 'a'",
            "t.toml:5: listeners[1].name: listener 0 is also named 'a'",
        ),
        (
            "[[listeners]]\npath = '/x'",
            't.toml:2: listeners[0].path: is only for kind = "websocket"',
        ),
        (
            "[[listeners]]\nkind = 'websocket'\npath = 'x'",
            "t.toml:3: listeners[0].path: must begin with '/', not 'x'",
        ),
        (
            "[[listeners]]\nkind = 'websocket'\norigins = ['a.example']",
            "t.toml:3: listeners[0].origins: 'a.example' is not an origin; write it like \"https://a.example\"",
        ),
        (
            "[[listeners]]\nshares = ['alarm/#']",
            "t.toml:2: listeners[0].shares: share 'alarm/#' is not a topic filter with a percentage "
            "from 1 to 90, such as 'alarm/#=20'",
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
            "t.toml:2: listeners[0]: nobody could log in at '::': set security.password_file, "
            'tls.identity = "common_name", or allow_anonymous = true',
        ),
        (
            "[limits]\nfilter_length_max = 0",
            "t.toml:2: limits.filter_length_max: must be at least 1, not 0",
        ),
        (
            "[security]\nanonymous_user = '*'",
            "t.toml:2: security.anonymous_user: '*' stands for every user in rules; choose another name",
        ),
        (
            "[security]\nanonymous_user = 'g'\n[[acl]]\nuser = ''\nfilter = '#'",
            't.toml:2: security.anonymous_user: conflicts with rules for user "", '
            "which are for the same clients",
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
            ["t.toml:6: listeners[1].port: 0.0.0.0:1883 is used by listener 0"],
        ),
        (
            {"port": 1884, "flight": 8815, "metrics": 1883},
            ["t.toml:14: metrics.port: localhost:1883 is used by listener 0"],
        ),
        (
            {"port": 1884, "flight": 8815, "metrics": 1884},
            ["t.toml:14: metrics.port: localhost:1884 is used by listener 1"],
        ),
        (
            {"port": 1884, "flight": 9100, "metrics": 9100},
            ["t.toml:14: metrics.port: localhost:9100 is used by the service for journals"],
        ),
    ],
)
def test_one_port_used_twice_is_a_mistake(tmp_path: Path, ports: dict[str, int], expected: list[str]) -> None:
    assert mistakes_of(EVERY_PORT.format(**ports), tmp_path) == expected


def test_default_port_counts_as_used(tmp_path: Path) -> None:
    assert mistakes_of('[flight]\nenabled = true\nhost = "0.0.0.0"\nport = 1883\n', tmp_path) == [
        "t.toml:1: flight: nobody could log in: set security.password_file, or allow_anonymous = true",
        "t.toml:4: flight.port: 0.0.0.0:1883 is used by listener 0",
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

    remedy = "install it in a clone of the project with: pip install '.[trace]'"
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
[[neighbours]]
port = 5
user = "u"
shares = ["c=z"]
[neighbours.tls]
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
        "27: neighbours[0].name",
        "28: neighbours[0].port",
        "29: neighbours[0].user",
        "30: neighbours[0].shares",
        *["31: neighbours[0].tls"] * 2,
        "31: neighbours[0].tls.ca",
        "32: neighbours[0].tls.certificate",
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

    assert all(isinstance(mistake, ConfigError) for mistake in read_config(path)[1])


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


def test_the_length_of_filters_may_still_be_written_as_a_size() -> None:
    assert parse_config("[limits]\nfilter_length_max = '4KiB'", PATH).limits.filter_length_max == 4096


def test_reader_has_the_defaults_in_place_of_what_is_wrong() -> None:
    reader = ConfigReader("node_name = 5\n[limits]\ninflight_max = 0\ntopic_levels_max = 9\n", PATH)

    assert [mistake.key for mistake in reader.mistakes] == ["node_name", "limits.inflight_max"]
    assert reader.config.node_name == Config().node_name
    assert reader.config.limits.inflight_max == Limits().inflight_max
    assert reader.config.limits.topic_levels_max == 9
    assert reader.is_noted("limits")
    assert not reader.is_noted("limits", "topic_levels_max")


def test_reader_lists_every_path_also_in_tables_that_are_wrong_otherwise() -> None:
    reader = ConfigReader(
        "[[listeners]]\nport = -1\n[listeners.tls]\nkey = 'k.pem'\n[data]\npath = '/d'\n", PATH
    )

    assert reader.paths == {
        ("listeners", 0, "tls", "key"): PATH.parent / "k.pem",
        ("data", "path"): Path("/d"),
    }
    assert {mistake.key for mistake in reader.mistakes} == {
        "listeners[0].port",
        "listeners[0].tls.certificate",
    }


def test_mistake_at_a_key_that_is_not_written_has_the_line_of_its_table() -> None:
    reader = ConfigReader("\n\n[trace]\nenabled = true\n", PATH)

    reader.note(("trace", "path"), "is missing")

    (mistake,) = reader.mistakes
    assert (mistake.line, mistake.key, mistake.path) == (3, "trace.path", str(PATH))


def test_values_that_are_nested_too_deeply_are_a_mistake() -> None:
    (mistake,) = ConfigReader("a = " + "[" * 100_000, PATH).mistakes

    assert "nested too deeply" in str(mistake)
