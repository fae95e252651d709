"""What a channel's file may state, and what each mistake in it is told."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from timebound.channel import ChannelError, ChannelFileError
from timebound.channel.base.consumer import BEST_EFFORT
from timebound.channel.config.reader import load
from timebound.channel.config.values import ChannelConfig, GatewayConfig, ModuleConfig, OperationConfig
from timebound.errors import ConfigError
from timebound.units import MILLISECOND


def read(tmp_path: Path, text: str) -> ChannelConfig:
    path = tmp_path / "channel.toml"
    path.write_text(text, encoding="utf-8")
    return load(path).config


def mistakes(tmp_path: Path, text: str) -> list[str]:
    """Everything that is wrong with a file, without its path."""
    with pytest.raises(ChannelFileError) as caught:
        read(tmp_path, text)
    return [str(mistake).removeprefix(f"{tmp_path}/channel.toml") for mistake in caught.value.mistakes]


def test_empty_file_leaves_every_module_out(tmp_path: Path) -> None:
    assert read(tmp_path, "") == ChannelConfig(
        name="channel",
        filtering=ModuleConfig("broadcast"),
        dispatching=ModuleConfig("reactive"),
        timers=None,
    )


def test_empty_sections_choose_the_usual_modules(tmp_path: Path) -> None:
    config = read(tmp_path, "[filtering]\n[dispatching]\n[timers]\n")

    assert config.filtering == ModuleConfig("subscriptions")
    assert config.dispatching == ModuleConfig("lanes")
    assert config.timers == ModuleConfig("thread")


def test_every_key_is_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        name = "plant"
        filtering.module = "subscriptions"
        [dispatching]
        module = "lanes"
        threads = 2
        threads_max = 8
        real_time = false
        cpu = 0
        priority_max = 40
        yields = false
        [[lanes]]
        period = "20ms"
        threads = 3
        [[lanes]]
        threads = 4
        [timers]
        module = "thread"
        timers_max = 5
        real_time = false
        cpu = 1
        priority = 41
        [[gateways]]
        kind = "listen"
        address = "sub/x.sock"
        [[gateways]]
        kind = "dial"
        address = "localhost:7000"
        priority = 42
        [[operations]]
        name = "fuse"
        period = "20ms"
        cost = "3ms"
        criticality = -1
        depends_on = "a"
        supplies = ["b", "c"]
        source = "s"
        queue_max = 6
        evict_after = 7
        evict_slow = true
        """,
    )

    assert config == ChannelConfig(
        name="plant",
        filtering=ModuleConfig("subscriptions"),
        dispatching=ModuleConfig(
            "lanes",
            {
                "threads": 2,
                "threads_max": 8,
                "real_time": False,
                "cpu": 0,
                "priority_max": 40,
                "yields": False,
            },
        ),
        lane_threads={20 * MILLISECOND: 3, BEST_EFFORT: 4},
        timers=ModuleConfig("thread", {"real_time": False, "cpu": 1, "priority": 41}),
        timers_max=5,
        gateways=(
            GatewayConfig("listen", f"{tmp_path}/sub/x.sock"),
            GatewayConfig("dial", ("localhost", 7000), 42),
        ),
        operations=(
            OperationConfig(
                name="fuse",
                period_ns=20 * MILLISECOND,
                cost_ns=3 * MILLISECOND,
                criticality=-1,
                depends_on="a",
                supplies=("b", "c"),
                source="s",
                queue_max=6,
                evict_after=7,
                evict_slow=True,
            ),
        ),
    )


def test_all_mistakes_are_told_at_once_from_top_to_bottom(tmp_path: Path) -> None:
    text = """name = 7
[dispatching]
module = "lanes"
treads = 2
threads = 0

[[operations]]
name = "a"
period = "20"
cost = 3
"""

    assert mistakes(tmp_path, text) == [
        ":1: name: must be text in quotes, not 7",
        ":4: dispatching.treads: unknown key; did you mean 'threads'?",
        ":5: dispatching.threads: must be a whole number from 1 to 1024, not 0",
        ":9: operations[0].period: '20' is not a duration; write it like 250ms, 1.5s or 2m",
        ':10: operations[0].cost: must be a duration in quotes like "20ms", not 3',
    ]


def test_error_has_a_line_for_each_mistake_and_the_place_of_the_first(tmp_path: Path) -> None:
    with pytest.raises(ChannelFileError) as caught:
        read(tmp_path, "\nname = 7\nnane = 8\n")

    error = caught.value
    assert isinstance(error, ConfigError)
    assert isinstance(error, ChannelError)
    assert (error.path, error.line, error.key) == (str(tmp_path / "channel.toml"), 2, "name")
    assert str(error) == "\n".join(str(mistake) for mistake in error.mistakes)
    assert len(error.mistakes) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name = '$x'", ":1: name: must not begin with '$', which marks shared media"),
        ("name = ''", ":1: name: must be text in quotes, not ''"),
        ("filtering = 3", ":1: filtering: must be a table, not 3; write its keys under [filtering]"),
        (
            "filtering.module = 'subscription'",
            ":1: filtering.module: must be 'subscriptions', 'broadcast' or 'package.module:name', "
            "not 'subscription'; did you mean 'subscriptions'?",
        ),
        (
            "filtering.options.a = 1",
            ":1: filtering.options: unknown key; known are module",
        ),
        (
            "[dispatching]\nmodule = 'reactive'\nthreads = 2",
            ":3: dispatching.threads: unknown key for module = 'reactive'",
        ),
        (
            "[dispatching]\nthreads = 9\nthreads_max = 4",
            ":2: dispatching.threads: is 9, more than threads_max = 4",
        ),
        (
            "[dispatching]\nreal_time = 1",
            ":2: dispatching.real_time: must be true or false, not 1",
        ),
        (
            "[dispatching]\npriority_max = 100",
            ":2: dispatching.priority_max: must be a whole number from 1 to 99, not 100",
        ),
        (
            "[dispatching]\nthreads = true",
            ":2: dispatching.threads: must be a whole number from 1 to 1024, not true",
        ),
        ("[[lanes]]\nthreads = 1", ":1: lanes[0]: is for lanes; write module = 'lanes' under [dispatching]"),
        (
            "[dispatching]\n[[lanes]]\nperiod = '1ms'",
            ":2: lanes[0].threads: is required: the number of threads of the lane",
        ),
        (
            "[dispatching]\n[[lanes]]\nthreads = 1\n[[lanes]]\nthreads = 2",
            ":4: lanes[1].period: the lane without a period is already stated above",
        ),
        (
            "[dispatching]\nthreads_max = 2\n[[lanes]]\nthreads = 3",
            ":4: lanes[0].threads: is 3, more than threads_max = 2",
        ),
        ("lanes = 3", ":1: lanes: must be a list of tables; write [[lanes]] above the keys of each"),
        (
            "[timers]\ntimers_max = 0",
            ":2: timers.timers_max: must be a whole number from 1 to 1000000, not 0",
        ),
        (
            "[timers]\nmodule = 'manual'\npriority = 3",
            ":3: timers.priority: unknown key for module = 'manual'",
        ),
        (
            "[[gateways]]\naddress = 'a:1'",
            ":1: gateways[0].kind: is required: 'listen' accepts other channels, 'dial' connects to one",
        ),
        (
            "[[gateways]]\nkind = 'listen'",
            ':1: gateways[0].address: is required: a path like "/run/x.sock", or "host:port"',
        ),
        (
            "[[gateways]]\nkind = 'liste'\naddress = 'a:1'",
            ":2: gateways[0].kind: must be 'listen' or 'dial', not 'liste'; did you mean 'listen'?",
        ),
        (
            "[[gateways]]\nkind = 'dial'\naddress = 'host'",
            ':3: gateways[0].address: must be a path like "/run/x.sock" or "host:port", not \'host\'',
        ),
        (
            "[[gateways]]\nkind = 'dial'\naddress = 'host:0'",
            ":3: gateways[0].address: has port 0; it must be 1 to 65535",
        ),
        (
            "[[gateways]]\nkind = 'listen'\naddress = 'h:70000'",
            ":3: gateways[0].address: has port 70000; it must be 0 to 65535",
        ),
        (
            "[[gateways]]\nkind='dial'\naddress='h:7'\n[[gateways]]\nkind='listen'\naddress='h:7'",
            ":6: gateways[1].address: ('h', 7) is already used by a gateway above",
        ),
        ("[[operations]]", ":1: operations[0].name: is required: it identifies the operation"),
        (
            "[[operations]]\nname = 'a'\n[[operations]]\nname = 'a'",
            ":4: operations[1].name: 'a' is already the name of an operation above",
        ),
        (
            "[[operations]]\nname = 'a'\nperiod = '1ms'",
            ":3: operations[0].period: needs `cost` as well",
        ),
        (
            "[[operations]]\nname = 'a'\ncriticality = 1",
            ":3: operations[0].criticality: needs `period` as well",
        ),
        (
            "[[operations]]\nname = 'a'\nperiod = '1ms'\ncost = '2ms'",
            ":4: operations[0].cost: must not exceed the period of 1ms",
        ),
        (
            "[[operations]]\nname = 'a'\nperiod = '0'\ncost = '0'",
            ':3: operations[0].period: must be positive, such as "20ms"',
        ),
        (
            "[[operations]]\nname = 'a'\ndepends_on = 'x'",
            ":3: operations[0].depends_on: needs filtering; add a [filtering] section",
        ),
        (
            "[filtering]\n[[operations]]\nname = 'a'\ndepends_on = { every = '1s' }",
            ":4: operations[0].depends_on: has a timer; add a [timers] section",
        ),
        (
            "[[operations]]\nname = 'a'\nsupplies = 'x'",
            ':3: operations[0].supplies: must be a list of texts like ["a", "b"], not \'x\'',
        ),
        (
            "[[operations]]\nname = 'a'\nsource = 'x'",
            ":3: operations[0].source: needs `supplies` as well",
        ),
        (
            "[[operations]]\nname = 'a'\nqueue_max = 0",
            ":3: operations[0].queue_max: must be a whole number from 1 to 1000000, not 0",
        ),
        ("[[operation]]\nname = 'a'", ":1: operation: unknown key; did you mean 'operations'?"),
        ("name = ", ":1: not valid TOML: invalid value"),
        ("name = 'a'\n[filtering", ":2: not valid TOML: expected ']' at the end of a table declaration"),
        (
            f"name = ['{'x' * 100}']",
            f":1: name: must be text in quotes, not ['{'x' * 58}…",
        ),
    ],
)
def test_mistake_is_told_with_its_line_and_what_would_be_right(
    text: str, expected: str, tmp_path: Path
) -> None:
    assert expected in mistakes(tmp_path, text)


def test_file_in_the_docs_is_right_and_its_keys_are_those_of_the_reader(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "channel.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)

    config = read(tmp_path, text)

    assert [operation.name for operation in config.operations] == ["fuse"]
    for key in [*_keys(ChannelConfig), *_keys(OperationConfig)]:
        assert f"`{key}`" in page


def _keys(values: type) -> list[str]:
    """The keys that fields of a configuration are read from."""
    names = {"period_ns": "period", "cost_ns": "cost", "lane_threads": "[[lanes]]"}
    shown = {"filtering": "[filtering]", "dispatching": "[dispatching]", "timers": "[timers]"}
    shown |= {"gateways": "[[gateways]]", "operations": "[[operations]]", **names}
    return [shown.get(field.name, field.name) for field in fields(values) if field.name != "dependency"]
