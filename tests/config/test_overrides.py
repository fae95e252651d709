"""Keys set outside the file: typed and checked as in it, and named by the variable or option."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.config.names import ARRAYS
from timebound.config.overrides import Override, from_environment, lay_over, variable_name
from timebound.config.values import TABLES, Config
from timebound.node.config import default_config, read_config
from timebound.toml.lines import KeyPath
from timebound.toml.setting import settings_of


def read(environment: dict[str, str], path: Path | None = None) -> tuple[Config, list[str]]:
    """Read with variables, given without their prefix; return the configuration and the mistakes."""
    named = {f"TIMEBOUND_CONFIG_{name}": value for name, value in environment.items()}
    config, mistakes = read_config(path, named, is_persistent=False)
    return config, [str(mistake) for mistake in mistakes]


def every_key() -> list[KeyPath]:
    found: list[KeyPath] = []
    for table, described in TABLES:
        at: list[str | int] = []
        for part in table.split(".") if table else []:
            at += [part, 0] if part in ARRAYS else [part]
        found += [(*at, key) for key in settings_of(described)]
    return found


@pytest.mark.parametrize("at", every_key(), ids=variable_name)
def test_every_key_has_a_variable_that_means_it_alone(at: KeyPath) -> None:
    found, mistakes = from_environment({variable_name(at): "x"})

    assert [override.at for override in found] == [at]
    assert mistakes == []


def test_no_two_keys_have_the_same_variable() -> None:
    names = [variable_name(at) for at in every_key()]

    assert len(set(names)) == len(names)


def test_without_variables_and_file_the_defaults_count() -> None:
    assert read({}) == (default_config(), [])


def test_values_of_every_kind_are_read_as_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("")
    path = tmp_path / "t.toml"
    path.write_text("")

    config, mistakes = read(
        {
            "NODE_NAME": "plant-7",
            "SYS_INTERVAL": "250ms",
            "DATA_FSYNC": "false",
            "LISTENERS_0_PORT": "1_884",
            "LISTENERS_0_SHARES": '["a/#=20", "b=1"]',
            "LISTENERS_0_EPSILON": "0.25",
            "LISTENERS_1_KIND": "websocket",
            "LISTENERS_1_ORIGINS": "https://a.example",
            "LIMITS_PACKET_SIZE_MAX": "64KiB",
            "SECURITY_PASSWORD_FILE": "users",
            "METRICS_PORT": "9464",
        },
        path,
    )

    assert mistakes == []
    assert (config.node_name, config.sys_interval_s, config.data.fsync) == ("plant-7", 0.25, False)
    first, second = config.listeners
    assert (first.port, first.shares, first.epsilon) == (1884, ("a/#=20", "b=1"), 0.25)
    assert (second.kind, second.origins, second.port) == ("websocket", ("https://a.example",), 1883)


def test_a_variable_wins_over_the_file_and_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text('[[listeners]]\nname = "a"\nport = 1\n[[listeners]]\nname = "b"\nport = 2\n')

    config, mistakes = read({"LISTENERS_1_PORT": "3"}, path)

    assert mistakes == []
    assert [(listener.name, listener.port) for listener in config.listeners] == [("a", 1), ("b", 3)]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("LISTENERS_0_PORT", "99999", "must be from 0 to 65535, not 99999"),
        ("LISTENERS_0_PORT", "mqtt", "must be a whole number from 0 to 65535, not 'mqtt'"),
        ("DATA_FSYNC", "yes", "must be true or false, not 'yes'"),
        ("LISTENERS_0_EPSILON", "nan", "must be from 1e-06 to 0.5, not nan"),
        ("LISTENERS_0_SHARES", "[", 'must be a list of strings like ["a", "b"], not \'[\''),
        (
            "LISTENERS_0_SHARES",
            "plant",
            "share 'plant' is not a topic filter with a percentage from 1 to 90, such as 'alarm/#=20'",
        ),
        (
            "LOG_LEVEL",
            "inf",
            'must be one of "debug", "info", "warning", "error", not \'inf\'; did you mean "info"?',
        ),
        ("LISTENERS_0_PROT", "1", "unknown key; did you mean TIMEBOUND_CONFIG_LISTENERS_0_PORT?"),
        ("LISTENERS_7_PORT", "1", "there is no listeners[6]; count from 0, without gaps"),
        ("LISTENERS_PORT", "1", "unknown key; did you mean TIMEBOUND_CONFIG_LISTENERS_0_PORT?"),
        ("QQQQQQQQQQQQQQQQQQQQ", "1", "unknown key; docs/configuration.md lists the keys"),
    ],
)
def test_a_mistake_names_the_variable(name: str, value: str, expected: str) -> None:
    _, mistakes = read({name: value})

    assert mistakes == [f"TIMEBOUND_CONFIG_{name}: {expected}"]


def test_what_is_wrong_with_a_table_names_the_variables_in_it() -> None:
    _, mistakes = read({"ACL_0_USER": "ann", "LIMITS_PACKET_SIZE_MAX": "64MiB"})

    assert mistakes == [
        "acl[0].filter: is required (with TIMEBOUND_CONFIG_ACL_0_USER)",
        "limits.queue_bytes_per_client_max: is smaller than packet_size_max (64MiB), which must fit within "
        "it (with TIMEBOUND_CONFIG_LIMITS_PACKET_SIZE_MAX)",
    ]


def test_an_address_at_which_nobody_could_log_in_names_the_variable(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("[[listeners]]\nport = 1\n")

    _, (mistake,) = read({"LISTENERS_0_HOST": "0.0.0.0"}, path)

    assert mistake.startswith("TIMEBOUND_CONFIG_LISTENERS_0_HOST: nobody could log in at '0.0.0.0': ")


def test_two_services_at_one_port_are_found_across_file_and_variables(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("[[listeners]]\nport = 9464\n")

    _, mistakes = read({"METRICS_PORT": "9464"}, path)

    assert mistakes == ["TIMEBOUND_CONFIG_METRICS_PORT: 127.0.0.1:9464 is used by listener 0"]


def test_mistakes_of_the_file_and_of_variables_are_all_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("[[listeners]]\nprot = 1\n")

    _, mistakes = read({"LOG_LEVEL": "none", "LOG_LEVLE": "info"}, path)

    assert [mistake.split(": ")[0].replace(f"{tmp_path}/", "") for mistake in mistakes] == [
        "t.toml:2",
        "TIMEBOUND_CONFIG_LOG_LEVEL",
        "TIMEBOUND_CONFIG_LOG_LEVLE",
    ]


def test_a_table_that_the_file_has_wrong_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("listeners = 3\nlog = 4\n")

    _, mistakes = read({"LISTENERS_0_PORT": "1", "LOG_LEVEL": "info"}, path)

    assert [mistake.split(": ")[1] for mistake in mistakes] == ["listeners", "log"]


def test_tables_are_made_in_the_order_of_their_numbers() -> None:
    environment = {f"TIMEBOUND_CONFIG_JOURNALS_{number}_NAME": f"j{number}" for number in range(12)}

    found, _ = from_environment(environment)

    assert [override.at[1] for override in found] == list(range(12))


def test_other_variables_are_left_alone() -> None:
    assert from_environment({"TIMEBOUND_PURE": "1", "PATH": "/bin"}) == ([], [])


def test_a_later_override_wins() -> None:
    document: dict[str, object] = {}
    at = ("log", "level")

    assert lay_over(document, [Override("A", at, "info"), Override("--b", at, "debug")]) == []
    assert document == {"log": {"level": "debug"}}
