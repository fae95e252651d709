"""Brokers as processes: they start, tell their figures, and say why when they do not."""

from __future__ import annotations

import socket

import pytest

from timebound.client.client import Client
from timebound.demo import brokers
from timebound.demo.brokers import Contender, ReportedDeliveries, ours, read_account, running
from timebound.demo.slow_link import SlowLink
from timebound.errors import TimeboundError


def test_a_broker_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "_TIMEBOUND_CONFIG", "nonsense = 1\n")

    with pytest.raises(TimeboundError, match=r"(?s)ended at once.*nonsense"), brokers.running(ours("fifo")):
        pass


def test_strategy_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"strategy 'best' is unknown; choose one of .*worth"):
        ours("best")


def test_a_contender_is_ours_if_it_has_a_strategy() -> None:
    assert ours("fifo") == Contender("timebound fifo", "fifo")
    assert ours("fifo").is_ours
    assert not Contender("mosquitto", "").is_ours


async def test_account_of_a_running_broker_counts_what_was_acknowledged() -> None:
    with running(ours("worth")) as port:
        before = read_account(port, SlowLink(0.0, 0.0))
        async with Client(port=port) as client, client.subscribe("a", qos=1, deadline="1h") as messages:
            for number in range(3):
                await client.publish("a", number, qos=1)
            for _ in range(3):
                await anext(messages)
            await client.ping()  # read after the acknowledgements
            after = read_account(port, SlowLink(0.0, 0.0))

    assert before == ReportedDeliveries(0, 0, 0)
    assert after == ReportedDeliveries(in_time=3, late=0, under_way=0)


@pytest.mark.parametrize(
    "contender",
    [
        ours("fifo"),
        pytest.param(
            Contender("mosquitto", ""),
            marks=pytest.mark.skipif(
                brokers.mosquitto_program() is None, reason="mosquitto is not installed"
            ),
        ),
    ],
)
def test_a_broker_listens_while_it_runs_and_not_afterwards(contender: Contender) -> None:
    with running(contender) as port:
        socket.create_connection(("127.0.0.1", port), 5.0).close()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5.0)


def test_missing_mosquitto_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers.shutil, "which", lambda *_args, **_named: None)

    with (
        pytest.raises(TimeboundError, match="mosquitto is not installed"),
        running(Contender("mosquitto", "")),
    ):
        pass
