"""Old names of configuration keys: read, noticed in check, log and reload; both names are a mistake."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from tests.conftest import StartBroker

from timebound.config.renames import RENAMED
from timebound.config.values import TABLES
from timebound.errors import ConfigError
from timebound.node.config import parse_config
from timebound.toml.setting import settings_of

ROOT = Path(__file__).parents[2]
PATH = Path("t.toml")
OLD = """\
[[listeners]]
strategy = "ebpc"
strategy_weight_percent = 15
[input]
stop_allowance = "5ms"
[[neighbour]]
name = "b"
rate = 1000
strategy_weight_percent = 25
host = "b.example"
[neighbour.tls]
ca = "ca.pem"
"""
NEW = """\
[[listeners]]
strategy = "ebpc"
strategy_mix_percent = 15
[input]
stall_allowance = "5ms"
[[neighbours]]
name = "b"
link_bytes_per_second = 1000
strategy_mix_percent = 25
host = "b.example"
[neighbours.tls]
ca = "ca.pem"
"""


def test_a_file_of_old_names_says_what_one_of_new_names_says() -> None:
    assert parse_config(OLD, PATH) == parse_config(NEW, PATH)
    assert parse_config(NEW, PATH).notices == ()


def test_every_old_name_is_noticed_with_its_line_and_its_new_name() -> None:
    notices = [str(notice) for notice in parse_config(OLD, PATH).notices]

    assert notices == [
        f"t.toml:{line}: {key}: is now called {new!r}; the old name is still read"
        for line, key, new in (
            (6, "neighbour", "neighbours"),
            (8, "neighbours[0].rate", "link_bytes_per_second"),
            (9, "neighbours[0].strategy_weight_percent", "strategy_mix_percent"),
            (3, "listeners[0].strategy_weight_percent", "strategy_mix_percent"),
            (5, "input.stop_allowance", "stall_allowance"),
        )
    ]
    assert len(notices) == len(RENAMED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[[neighbour]]\nname = 'a'\n[[neighbours]]\nname = 'b'",
            "t.toml:1: neighbour: is the old name of 'neighbours', which is given too",
        ),
        (
            "[input]\nstall_allowance = '1ms'\nstop_allowance = '1ms'",
            "t.toml:3: input.stop_allowance: is the old name of 'stall_allowance', which is given too",
        ),
        (
            "[[neighbours]]\nname = 'b'\nrate = 1\nlink_bytes_per_second = 1",
            "t.toml:3: neighbours[0].rate: is the old name of 'link_bytes_per_second', which is given too",
        ),
    ],
)
def test_both_names_of_a_key_are_a_mistake_that_names_both(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, PATH)

    assert str(caught.value).startswith(message)


def test_a_mistake_under_an_old_name_has_its_line() -> None:
    with pytest.raises(
        ConfigError, match=r"t.toml:3: neighbours\[0\].link_bytes_per_second: 'fast' is not a"
    ):
        parse_config("[[neighbour]]\nname = 'b'\nrate = 'fast'", PATH)


def test_old_names_are_not_names_of_keys_and_new_ones_are() -> None:
    for one in RENAMED:
        tables = dict(TABLES)
        known = [*settings_of(tables[one.table]), *tables]

        assert one.old not in known
        assert one.new in known


def test_the_reference_lists_every_renamed_key() -> None:
    reference = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    block = reference.split("    old name ")[1].split("\n\n")[0]

    rows = set(re.findall(r"^ {4}(\S+(?:, in \S+)?) +(\S+)$", block, re.MULTILINE))

    assert rows == {
        (f"[[{one.old}]]", f"[[{one.new}]]")
        if not one.table
        else (f"{one.old}, in {'[input]' if one.table == 'input' else f'[[{one.table}]]'}", one.new)
        for one in RENAMED
    }


def test_a_broker_logs_old_names_at_start_and_at_reload(start_broker: StartBroker) -> None:
    broker = start_broker('[[listeners]]\nport = 0\n[input]\nstop_allowance = "5ms"\n')
    words = "input.stop_allowance: is now called 'stall_allowance'"
    broker.wait_logged(words)

    broker.process.send_signal(signal.SIGHUP)
    broker.wait_logged("reloaded access rules")

    assert broker.log().count(words) == 2
