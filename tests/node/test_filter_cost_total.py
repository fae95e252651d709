"""The limit on what all filters cost together, as clients and operators see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import BrokerProcess, ShareOver, StartOver
from tests.peer import Peer, join, props

from timebound.config.limits import Limits
from timebound.errors import ConfigError
from timebound.node.config import load_config
from timebound.wire.packets import Publish

CONFIG = 'sys_interval = "100ms"\n[limits]\nfilter_cost_total_max = 5\n'
WHERE = [("where", "x = 1 AND y = 2")]


def wait_cost(broker: BrokerProcess, cost: int) -> None:
    """Wait until `$SYS` says that all filters cost so much."""
    with join(broker.port) as peer:
        peer.subscribe("$SYS/broker/subscriptions/filter_cost")
        while peer.expect(Publish).payload != b"%d" % cost:
            pass


def test_clients_together_are_refused_and_told_which_limit(share_over: ShareOver) -> None:
    broker = share_over(CONFIG)
    with join(broker.port, "first") as first:
        assert first.subscribe("a", "b", user_properties=WHERE).reason_codes == [0, 0]
        wait_cost(broker, 4)
        with join(broker.port, "second") as second:
            suback = second.subscribe("c", user_properties=WHERE)
            assert suback.reason_codes == [0x97]
            assert "quota: filter_cost_total_max is reached at 'c'" in (suback.properties.reason_string or "")
            first.unsubscribe("a")
            assert second.subscribe("c", user_properties=WHERE).reason_codes == [0]
        wait_cost(broker, 2)


def test_stored_sessions_are_restored_with_what_they_cost(start_over: StartOver, tmp_path: Path) -> None:
    data = tmp_path / "kept"
    lasting = props(session_expiry_interval=3_600)
    broker = start_over(CONFIG, data=data)
    with Peer(broker.port) as peer:
        peer.connect("lasting", properties=lasting)
        assert peer.subscribe("a", "b", user_properties=WHERE).reason_codes == [0, 0]
    assert broker.stop() == 0

    broker = start_over(CONFIG.replace("= 5", "= 3"), data=data)
    with join(broker.port, "other") as other, Peer(broker.port) as peer:
        wait_cost(broker, 4)
        assert other.subscribe("c", user_properties=WHERE).reason_codes == [0x97]
        assert peer.connect("lasting", clean=False, properties=lasting).session_present
        assert peer.subscribe("a", user_properties=WHERE).reason_codes == [0]
        other.send(Publish("b", b'{"x": 1, "y": 2}', 0))
        peer.expect_publish("b", b'{"x": 1, "y": 2}')


def test_the_limit_is_a_number_of_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "timebound.toml"
    path.write_text("[limits]\nfilter_cost_total_max = 7\n")
    assert load_config(path).limits.filter_cost_total_max == 7
    assert Limits().filter_cost_total_max == 1_000_000

    path.write_text("[limits]\nfilter_cost_total_max = 0\n")
    with pytest.raises(ConfigError, match="filter_cost_total_max"):
        load_config(path)
