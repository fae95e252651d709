"""Scenario files: what they say, and every mistake by file, line and key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from timebound.config.listeners import ListenerConfig
from timebound.config.values import Config
from timebound.errors import ConfigError
from timebound.node.config import parse_config
from timebound.sim.mesh.experiment import run
from timebound.sim.mesh.setting import LoginSetting, MeshSetting
from timebound.sim.scenario.scenario import Scenario, load_scenario
from timebound.terms import Terms
from timebound.units import HOUR, MINUTE, SECOND

SCENARIOS = Path(__file__).parents[3] / "scenarios"
PLAIN = """\
duration = "1m"
[topology]
kind = "ring"
brokers = 4
[links]
ms_per_kb = 10
[[publishers]]
brokers = ["b1"]
rate_per_minute = 60
size_bytes = 2048
[[subscriptions]]
brokers = ["b3"]
terms = [{ deadline = "2s", price = 2, penalty = 1 }]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "scenario.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_scenario_that_is_shipped_is_right(path: Path) -> None:
    assert load_scenario(path).seeds


def earning(scenario: Scenario, setting: MeshSetting) -> float:
    return sum(run(setting, seed).earning for seed in scenario.seeds)


@pytest.mark.parametrize("name", ["line", "star", "tree"])
def test_the_default_earns_no_less_than_without_thrift(name: str) -> None:
    scenario = load_scenario(SCENARIOS / f"{name}.toml")

    default, lavish, thrifty = (
        earning(scenario, setting)
        for setting in (
            scenario.setting,
            replace(scenario.setting, thrift=0.0),
            replace(scenario.setting, thrift=1.0),
        )
    )

    assert default >= lavish
    assert thrifty < lavish  # which is why it is off


@pytest.mark.parametrize(("name", "least"), [("line", 0.99), ("star", 0.95), ("tree", 0.98)])
def test_order_costs_little_although_each_publisher_has_one_topic(name: str, least: float) -> None:
    scenario = load_scenario(SCENARIOS / f"{name}.toml")

    ordered = earning(scenario, scenario.setting)
    unordered = earning(scenario, replace(scenario.setting, keeps_order=False))

    assert least * unordered < ordered


def test_a_scenario_says_what_it_says(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, PLAIN))

    setting = scenario.setting
    assert (scenario.name, scenario.seeds) == ("scenario", (1,))
    assert setting.duration_ns == MINUTE
    assert setting.topology.kind == "ring"
    assert setting.subscriptions[0].terms[0].deadline_ns == 2 * SECOND
    assert setting.reading.routing == "late"


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "message"),
    [
        ("ms_per_kb = 10", "ms_per_kb = 10\nlatncy = '1ms'", 7, "links.latncy", "did you mean 'latency'"),
        ("rate_per_minute = 60", "rate_per_minute = -1", 9, "publishers[0].rate_per_minute", "out of range"),
        ('brokers = ["b3"]', 'brokers = ["b9"]', 12, "subscriptions[0].brokers", "not in the topology"),
        ('kind = "ring"', 'kind = "star"', 3, "topology.kind", "choose one of layered, tree"),
        ("ms_per_kb = 10", "ms_per_kb = {uniform = [3, 1]}", 6, "links.ms_per_kb", "wrong order"),
        ("ms_per_kb = 10", "ms_per_kb = 0", 6, "links.ms_per_kb", "no time"),
        ('duration = "1m"', 'duration = "soon"', 1, "duration", "not a duration"),
        ("size_bytes = 2048", "size_bytes = {normal = [9, 9]}", 10, "publishers[0].size_bytes", "below 1"),
        ("size_bytes = 2048\n", "", 7, "publishers[0]", "'size_bytes' is missing"),
        ("size_bytes = 2048", "size_bytes = 2048\nlayer = 3", 11, "publishers[0].layer", "too deep"),
        ('brokers = ["b3"]', 'where = "a <"', 12, "subscriptions[0].where", "expected a value"),
        ('brokers = ["b3"]', 'topic_filter = "a/#/b"', 12, "subscriptions[0].topic_filter", "#"),
        ('brokers = ["b3"]', 'topic_filter = "$share/g/a"', 12, "subscriptions[0].topic_filter", "shared"),
        ("price = 2", "price = 'two'", 13, "subscriptions[0].terms[0].price", "not a number"),
        ("price = 2", "price = -2", 13, "subscriptions[0].terms[0].price", "out of range"),
        ("price = 2", "prise = 2", 13, "subscriptions[0].terms[0].prise", "did you mean 'price'"),
        ('duration = "1m"', 'duration = "0"', 1, "duration", "0 is too short"),
        ('duration = "1m"', 'strategy = "best"', 1, "strategy", "'best' is unknown"),
        ('duration = "1m"', "reading.names = ['odd']", 1, "reading.names", "reading 'odd' is unknown"),
        ('duration = "1m"', "seeds = []", 1, "seeds", "not a list of whole numbers"),
        ("brokers = 4", "brokers = 1", 4, "topology.brokers", "too small"),
        ("rate_per_minute = 60", "rate_per_minute = 0", 9, "publishers[0].rate_per_minute", "out of range"),
        ("[links]\nms_per_kb = 10", "", 1, "links", "'ms_per_kb' is missing"),
        ("[[subscriptions]]", "[subscriptions]", 11, "subscriptions", r"write \[\[subscriptions\]\]"),
        ("ms_per_kb = 10", "ms_per_kb =", 6, "", "not valid TOML"),
        ("size_bytes = 2048", "size_bytes = 2048\nqos = 1", 11, "publishers[0].qos", "needs clients"),
        ("size_bytes = 2048", "size_bytes = 2048\nuser = 'a'", 11, "publishers[0].user", "--config"),
        ('brokers = ["b3"]', 'brokers = ["b3"]\nlistener = "x"', 13, "subscriptions[0].listener", "--config"),
        ("price = 2", "keep = 'last'", 13, "subscriptions[0].terms[0].keep", "known are deadline, price"),
    ],
)
def test_a_mistake_is_named_by_file_line_and_key(
    tmp_path: Path, old: str, new: str, line: int, key: str, message: str
) -> None:
    assert old in PLAIN
    path = write(tmp_path, PLAIN.replace(old, new))

    with pytest.raises(ConfigError, match=message) as caught:
        load_scenario(path)

    assert (caught.value.path, caught.value.line, caught.value.key) == (str(path), line, key)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("kind = 'crash'\nat = '1s'\nbroker = 'b7'", "not in the topology"),
        ("kind = 'cut'\nat = '1s'\nlink = ['b1', 'b3']", "no link leads from"),
        ("kind = 'cut'\nat = '1s'\nlink = ['b1']", "does not name two"),
        ("kind = 'slow'\nat = '9s'\nuntil = '3s'\nlink = ['b1', 'b2']\nfactor = 2", "before it begins"),
        ("kind = 'flood'\nat = '1s'", "choose one of crash"),
    ],
)
def test_impossible_faults_are_refused(tmp_path: Path, fault: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_scenario(write(tmp_path, f"{PLAIN}[[faults]]\n{fault}\n"))


WHOLE = PLAIN.replace('duration = "1m"', 'duration = "1m"\nfidelity = "broker"')


def test_clients_of_whole_brokers_have_qos_flows_and_all_terms(tmp_path: Path) -> None:
    flow = 'qos = 1\nretain = true\nadvertise = { period = "100ms", burst = 2, delay = "50ms" }'
    text = WHOLE.replace("size_bytes = 2048", f"size_bytes = 2048\n{flow}")
    more = "qos = 2\nsession_expiry = '1h'\nterms = [{ keep = 'last', watchdog = '1s',"
    text = text.replace("terms = [{", more)

    setting = load_scenario(write(tmp_path, text)).setting

    publisher, wanted = setting.publishers[0], setting.subscriptions[0]
    assert (publisher.qos, publisher.retain, wanted.qos) == (1, True, 2)
    assert wanted.login == LoginSetting(session_expiry_ns=HOUR)
    assert publisher.advertise == (("period", "100ms"), ("burst", "2"), ("delay", "50ms"))
    assert wanted.terms == (
        Terms(keep_last=True, watchdog_ns=SECOND, deadline_ns=2 * SECOND, price=2, penalty=1),
    )


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("size_bytes = 2048", "size_bytes = 2048\nqos = 3", "publishers[0].qos", "at most 2"),
        (
            "size_bytes = 2048",
            "size_bytes = 2048\nadvertise = { burst = 2 }",
            "publishers[0].advertise",
            "period",
        ),
        ("price = 2", "keep = 'first'", "subscriptions[0].terms[0]", "write 'last' or 'all'"),
        ("price = 2", "correlate = 'all(a'", "subscriptions[0].terms", "closing"),
    ],
)
def test_a_mistake_of_a_client_is_named(tmp_path: Path, old: str, new: str, key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_scenario(write(tmp_path, WHOLE.replace(old, new)))

    assert caught.value.key == key


LIVE = """\
[links]
ms_per_kb = 10
[[publishers]]
brokers = ["near"]
rate_per_minute = 60
size_bytes = 2048
listener = "desk"
[[subscriptions]]
brokers = ["near"]
"""
NEAR = Config(node_name="near", listeners=(ListenerConfig(host="0.0.0.0"), ListenerConfig(name="desk")))


def test_listeners_and_logins_are_those_of_live_configurations(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, LIVE), (NEAR,))

    assert scenario.setting.publishers[0].login == LoginSetting(listener="desk")
    assert scenario.notices == (
        "listener 'tcp 0.0.0.0:1883' of 'near' requires a user name; set `user`, these count as anonymous",
    )
    with pytest.raises(ConfigError, match="has no listener 'desc'") as caught:
        load_scenario(write(tmp_path, LIVE.replace('"desk"', '"desc"')), (NEAR,))
    assert (caught.value.line, caught.value.key) == (7, "publishers[0].listener")


def test_a_subscriber_that_cannot_be_reached_is_refused(tmp_path: Path) -> None:
    (tmp_path / "way.links").write_text("up  down\n")
    text = PLAIN.replace('kind = "ring"\nbrokers = 4', 'kind = "file"\nfile = "way.links"\nboth_ways = false')
    text = text.replace('["b1"]', '["down"]').replace('["b3"]', '["up"]')

    with pytest.raises(ConfigError, match="cannot be reached") as caught:
        load_scenario(write(tmp_path, text))

    assert caught.value.key == "subscriptions[0].brokers"


def test_a_broken_link_file_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "way.links").write_text("a b\na\n")
    text = PLAIN.replace('kind = "ring"\nbrokers = 4', 'kind = "file"\nfile = "way.links"')

    with pytest.raises(ConfigError, match=r"line 2 of way\.links"):
        load_scenario(write(tmp_path, text))


def test_a_scenario_may_name_readings_of_the_papers(tmp_path: Path) -> None:
    text = f"{PLAIN}[reading]\nnames = ['expired', 'alive', 'publisher-delay']\n"

    setting = load_scenario(write(tmp_path, text)).setting

    assert (setting.reading.drops, setting.reading.lifetime) == ("expired", "alive")
    assert (setting.reading.routing, setting.epsilon) == ("tree", 0.0005)
    assert (setting.publishers[0].link_costs, setting.publishers[0].link_queues) == (True, False)


def test_the_old_name_of_the_mix_is_read_with_a_notice(tmp_path: Path) -> None:
    path = write(tmp_path, 'strategy = "ebpc"\nweight = 0.25\n' + PLAIN)

    scenario = load_scenario(path)

    assert scenario.setting.mix == 0.25
    assert scenario.notices == (f"{path}:2: weight: is now called 'mix'; the old name is still read",)


def test_old_names_in_live_configurations_are_noticed(tmp_path: Path) -> None:
    old = parse_config('node_name = "near"\n[input]\nstop_allowance = "5ms"\n', tmp_path / "near.toml")

    scenario = load_scenario(write(tmp_path, LIVE.replace('listener = "desk"', "")), (old,))

    assert scenario.notices == (
        f"{tmp_path}/near.toml:3: input.stop_allowance: is now called 'stall_allowance'; "
        "the old name is still read",
    )


def test_both_names_of_the_mix_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="weight: is the old name of 'mix', which is given too"):
        load_scenario(write(tmp_path, "weight = 0.25\nmix = 0.5\n" + PLAIN))
