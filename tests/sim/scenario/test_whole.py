"""Scenarios with whole brokers: the same decisions as on a mesh, live configurations, and wrong calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from timebound.config.input import InputConfig, WeightEntry
from timebound.config.limits import Limits
from timebound.config.mesh import NeighbourConfig
from timebound.config.security import SecurityConfig
from timebound.config.values import Config
from timebound.core.mesh.options import MeshOptions
from timebound.core.values.access import PUBLISH, SUBSCRIBE, AccessRule
from timebound.errors import ConfigError, TimeboundError
from timebound.linking import codec as mesh_codec
from timebound.linking import join as linking_join
from timebound.sim.deployment.checkers.registry import all_checkers
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.links import Route
from timebound.sim.kernel.streams import Streams
from timebound.sim.mesh import experiment
from timebound.sim.mesh.experiment import RunResult
from timebound.sim.mesh.network import SimLink
from timebound.sim.mesh.setting import LinkSetting, MeshSetting
from timebound.sim.scenario import whole
from timebound.sim.scenario.scenario import load_scenario
from timebound.terms import Terms
from timebound.wire.codec import Decoder
from timebound.wire.packets import Publish

# 20,000 bytes a second: a byte takes whole nanoseconds.
MESH = """\
duration = "40s"
strategy = "{strategy}"
waiting_share = 0.0
[topology]
kind = "tree"
brokers = 5
children = 2
[links]
ms_per_kb = 51.2
latency = "10ms"
[[publishers]]
brokers = ["b4", "b5"]
rate_per_minute = {rate}
size_bytes = {{ uniform = [2048, 9000] }}
topic = "t"
attributes = {{ level = {{ uniform = [0, 100] }} }}
[[subscriptions]]
brokers = ["b1", "b3"]
count = 2
topic_filter = "t"
where = "level > 30"
terms = [{{ deadline = "2s", price = 3, penalty = 1 }}, {{ deadline = "5s", price = 1 }}]
"""


class Even(Random):
    """Every draw is the mean: a link takes exactly as long as its rate says."""

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        return mu


def even_link(source: str, target: str, setting: LinkSetting, streams: Streams, means: Random) -> SimLink:
    mean_ms = setting.mean_ms.draw(means)
    deviation_ms = 0.05 * mean_ms  # what a broker assumes of a rate that is configured
    return SimLink(source, target, mean_ms, deviation_ms, Even(0), latency_ns=setting.latency_ns)


def nominal_size(data: bytes) -> int:
    """What copies count on a link of the mesh; other packets are free there."""
    total = 0
    for packet in Decoder(5, is_server=True).feed(data):
        properties = packet.user_properties if isinstance(packet, Publish) else ()
        if isinstance(packet, Publish) and properties and properties[-1][0] == mesh_codec.COPY_PROPERTY:
            total += mesh_codec.decode_copy(packet, 0).what.size_bytes
    return total


def without_freshness(*values: Any, keeps_fresh: bool, **named: Any) -> MeshOptions:
    assert keeps_fresh, "a broker keeps what it sends fresh"
    return MeshOptions(*values, keeps_fresh=False, **named)


def setting_of(folder: Path, **values: Any) -> MeshSetting:
    path = folder / "scenario.toml"
    path.write_text(MESH.format(**values))
    return replace(load_scenario(path).setting, is_tracing=True)


Outcomes = dict[tuple[int, str], tuple[str, str, int, int]]


def outcomes(result: RunResult, first_ns: int) -> Outcomes:
    """What became of each message at each subscriber: outcome, link, brokers passed, and when.

    A message is told apart by when it was published, in microseconds. A home does not bother its clients with
    what is too late; in the simulation of a mesh it arrives.
    """
    found: Outcomes = {}
    for row in result.rows:
        is_late = row[12] == "timed_out"
        outcome = "late" if is_late else row[11] + row[12]
        key = ((row[8] - first_ns) // 1_000, row[4].partition("@")[0])
        found[key] = (outcome, row[16], row[15], row[0] - first_ns)
    return found


@pytest.mark.parametrize(("strategy", "seed"), [("worth", 1), ("fifo", 1), ("mtep", 1), ("eb", 2)])
def test_both_fidelities_take_the_same_decisions_under_overload(
    strategy: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What answers reveal of the time behind a socket is known to brokers alone, so both do without.
    setting = replace(setting_of(tmp_path, strategy=strategy, rate=400), keeps_fresh=False)
    monkeypatch.setattr(linking_join, "MeshOptions", without_freshness)
    monkeypatch.setattr(experiment, "_link", even_link)
    # Without a value of its own, each route counts copies as the mesh does.
    monkeypatch.setattr(Route, "size_of", property(lambda _: nominal_size, lambda *_: None), raising=False)

    mesh = experiment.run(setting, seed)
    brokers = whole.simulate(setting, seed)

    first_ns = min(row[8] for row in brokers.rows) - min(row[8] for row in mesh.rows)
    expected, found = outcomes(mesh, 0), outcomes(brokers, first_ns)
    assert {key: one[:3] for key, one in found.items()} == {key: one[:3] for key, one in expected.items()}
    assert all(abs(found[key][3] - one[3]) < 10_000 for key, one in expected.items())
    assert (brokers.published, brokers.matched) == (mesh.published, mesh.matched)
    assert brokers.traffic == mesh.traffic
    assert sum(mesh.dropped.values()) > 100  # too late, or given up for a newer one of the flow
    assert mesh.in_time > 100


def test_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    setting = setting_of(tmp_path, strategy="worth", rate=100)

    first, second, other = (whole.simulate(setting, seed) for seed in (1, 1, 2))

    assert first.rows == second.rows
    assert first.rows != other.rows


def test_faults_and_progress(tmp_path: Path) -> None:
    crash = '[[faults]]\nkind = "crash"\nbroker = "b2"\nat = "5s"\nuntil = "12s"\n'
    slow = '[[faults]]\nkind = "slow"\nlink = ["b1", "b3"]\nfactor = 4\nat = "15s"\n'
    path = tmp_path / "scenario.toml"
    path.write_text(MESH.format(strategy="worth", rate=100) + crash + slow)
    shares: list[float] = []

    result = whole.simulate(load_scenario(path).setting, 1, (), shares.append)

    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert result.dropped["disconnected"] > 5
    assert result.in_time > 20
    assert result.rows == []


CONFIGS = (
    Config(node_name="near", neighbours=(NeighbourConfig(name="far", host="10.0.0.2"),)),
    Config(node_name="far", neighbours=(NeighbourConfig(name="near"),)),
)
LIVE = """\
duration = "10s"
[links]
ms_per_kb = 10
[[publishers]]
brokers = ["near"]
rate_per_minute = 120
size_bytes = 1000
[[subscriptions]]
brokers = ["far"]
"""


def test_brokers_of_live_configurations_are_simulated(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(LIVE)
    scenario = load_scenario(path, CONFIGS)

    result = whole.simulate(scenario.setting, 1, CONFIGS)

    assert scenario.fidelity == "broker"
    assert result.published > 5
    assert result.in_time == result.matched == result.published


def test_limits_of_a_live_configuration_count(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(LIVE.replace('"far"', '"near"'))
    alone = (replace(CONFIGS[0], neighbours=(), limits=Limits(topic_length_max=2)),)
    scenario = load_scenario(path, alone)

    result = whole.simulate(scenario.setting, 1, alone)

    assert result.matched == 0  # topic "sim" is too long


FLOODED = """\
duration = "10s"
[links]
ms_per_kb = 10
[[publishers]]
brokers = ["near"]
rate_per_minute = 60
topic = "alarm"
size_bytes = 100
[[publishers]]
brokers = ["near"]
rate_per_minute = 3000
topic = "log"
size_bytes = 100
[[subscriptions]]
brokers = ["near"]
topic_filter = "alarm"
terms = [{ deadline = "400ms" }]
"""


@pytest.mark.parametrize(
    ("values", "is_flooded"),
    [
        (InputConfig(), False),
        (InputConfig(quantum_time_s=0.04), False),
        (InputConfig(quantum_time_s=0.04, weights=(WeightEntry("log", 30),)), True),
    ],
)
def test_weights_and_quantum_time_of_a_live_configuration_count(
    values: InputConfig, is_flooded: bool, tmp_path: Path
) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(FLOODED)
    alone = (replace(CONFIGS[0], neighbours=(), input=values),)
    scenario = load_scenario(path, alone)

    result = whole.simulate(scenario.setting, 1, alone)

    # Thirty messages of the log, 1.2 s, go before each alarm.
    assert result.matched > 3
    assert (result.in_time < result.matched) is is_flooded


GUARDED = """\
duration = "10s"
[links]
ms_per_kb = 10
[[publishers]]
brokers = ["near"]
user = "press"
qos = 1
topic = "press/state"
arrivals = "periodic"
rate_per_minute = 600
size_bytes = 200
advertise = { period = "100ms", size = 200, delay = "80ms" }
[[publishers]]
brokers = ["near"]
user = "other"
qos = 1
rate_per_minute = 60
size_bytes = 200
[[subscriptions]]
brokers = ["near"]
user = "room"
qos = 1
terms = [{ deadline = "1s", notify = "missed" }]
[[subscriptions]]
brokers = ["near"]
topic_filter = "press/#"
"""
RULES = (AccessRule("press", PUBLISH, "press/#", True), AccessRule("room", SUBSCRIBE, "#", True))


def guarded(folder: Path, text: str = GUARDED) -> tuple[MeshSetting, tuple[Config, ...]]:
    path = folder / "scenario.toml"
    path.write_text(text)
    security = SecurityConfig(password_file=Path("users"), rules=RULES)
    alone = (replace(CONFIGS[0], neighbours=(), security=security),)
    return load_scenario(path, alone).setting, alone


def test_users_rules_flows_and_qos_of_a_live_configuration_count(tmp_path: Path) -> None:
    setting, alone = guarded(tmp_path)

    result = whole.simulate(replace(setting, is_tracing=True), 1, alone)

    assert {row[3] for row in result.rows} == {"p1"}  # p2 may not publish, s2 not subscribe
    assert {row[6] for row in result.rows} == {1}
    assert {row[18] > 0 for row in result.rows} == {True}  # a delay bound, all within the contract
    assert result.in_time == result.matched == len(result.rows) > 90
    assert result.refused.keys() == {"subscribe", "publish"}
    assert result.refused["subscribe"] == 1
    assert result.refused["publish"] > 3


def test_a_flow_that_is_not_admitted_is_told_and_has_no_bound(tmp_path: Path) -> None:
    setting, alone = guarded(tmp_path, GUARDED.replace("80ms", "1us"))

    result = whole.simulate(replace(setting, is_tracing=True), 1, alone)

    assert result.refused["advertise"] == 1
    assert {row[18] for row in result.rows} == {0}


class NothingArrives(Checker):
    """Fails when any client gets a message."""

    name = "nothing arrives"

    def finished(self, deployment: Deployment) -> None:
        if deployment.history.arrivals:
            deployment.fail(self.name, "a message arrived")


def test_all_checkers_watch_and_a_broken_promise_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, alone = guarded(tmp_path)
    monkeypatch.setattr(whole, "all_checkers", lambda: [*all_checkers(), NothingArrives()])

    with pytest.raises(TimeboundError, match=r"\(seed 1\), please report it: nothing arrives at .* arrived"):
        whole.simulate(setting, 1, alone)


@pytest.mark.parametrize("session_expiry", ["0s", "1h"])
def test_clients_of_a_broker_that_crashed_get_messages_again(tmp_path: Path, session_expiry: str) -> None:
    path = tmp_path / "scenario.toml"
    text = LIVE.replace("rate_per_minute", "qos = 1\nrate_per_minute")
    text += f'qos = 1\nsession_expiry = "{session_expiry}"\n'
    text += '[[faults]]\nkind = "crash"\nbroker = "far"\nat = "3s"\nuntil = "5s"\n'
    path.write_text(text)

    result = whole.simulate(load_scenario(path, CONFIGS).setting, 1, CONFIGS)

    # What is published meanwhile waits at the other broker.
    assert result.in_time == result.published > 10


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("strategy", ["fifo", "worth"])
def test_promises_are_kept_over_crashes_and_cuts(tmp_path: Path, strategy: str, qos: int) -> None:
    path = tmp_path / "scenario.toml"
    text = MESH.format(strategy=strategy, rate=100).replace("duration", 'fidelity = "broker"\nduration', 1)
    text = text.replace("rate_per_minute", f"qos = {qos}\nretain = true\nrate_per_minute")
    text = text.replace("count = 2", f"count = 2\nqos = {qos}").replace(
        "terms = [", 'terms = [{ keep = "all" }, '
    )
    crash = '[[faults]]\nkind = "crash"\nbroker = "b4"\nat = "8s"\nuntil = "12s"\n'
    cut = '[[faults]]\nkind = "cut"\nlink = ["b1", "b3"]\nat = "20s"\nuntil = "22s"\n'
    path.write_text(text + crash + cut)

    for seed in (1, 2):
        assert whole.simulate(load_scenario(path).setting, seed).in_time > 20


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ('duration = "10s"', 'duration = "10s"\nprocessing = "1ms"', "processing"),
        ("ms_per_kb = 10", "ms_per_kb = 10\nloss = 0.1", "loss"),
        ("size_bytes = 1000", "size_bytes = 1000\nlink_costs = true", "link_costs"),
        ('duration = "10s"', 'duration = "10s"\nstrategy = "fifo"', "strategy"),
        ('duration = "10s"', 'duration = "10s"\nfidelity = "mesh"', "fidelity"),
        ("[links]", '[topology]\nkind = "ring"\n[links]', "topology"),
    ],
)
def test_keys_without_effect_are_refused(before: str, after: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(LIVE.replace(before, after))

    with pytest.raises(ConfigError) as caught:
        load_scenario(path, CONFIGS)

    assert caught.value.key is not None
    assert caught.value.key.endswith(key)


def test_terms_are_written_as_user_properties() -> None:
    terms = Terms(name="hot", deadline_ns=250_000_000, price=2.5, keep_last=True, every_ns=10**9)

    assert whole.term_texts(terms) == {
        "name": "hot",
        "deadline": "250ms",
        "price": "2.5",
        "keep": "last",
        "every": "1s",
    }
