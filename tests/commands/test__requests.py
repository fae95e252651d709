"""Requests to a running broker: its answers, and servers that do not give any."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.scripted_server import ScriptedServer
from tests.conftest import BrokerProcess

from timebound.commands._connection import Connecting
from timebound.commands._requests import ask_bounds, ask_strategies, run_request
from timebound.errors import ClientError
from timebound.wire.packets import Ack, Publish


def test_a_request_is_done_or_refused_with_the_words_of_the_broker(
    controlled: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    there = Connecting(port=controlled.port)

    assert run_request(there, "control/strategy/field", "fifo") == 0
    assert ask_strategies(there)["field"] == "fifo"
    assert run_request(there, "control/strategy/nowhere", "fifo") == 1
    assert "'nowhere'" in capsys.readouterr().err


def test_bounds_are_those_of_now(controlled: BrokerProcess) -> None:
    there = Connecting(port=controlled.port)
    before = {row["topic"] for row in ask_bounds(there)["topics"]}

    assert run_request(there, "control/weight", "requests/# 3") == 0
    after = {row["topic"]: row["weight"] for row in ask_bounds(there)["topics"]}
    assert run_request(there, "control/weight", "requests/# -") == 0

    assert "requests/#" not in before
    assert after["requests/#"] == 3


def test_options_that_contradict_each_other_are_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_request(Connecting(url="mqtt://a", host="b"), "control/strategy", "fifo") == 2
    assert "both --url and --host" in capsys.readouterr().err


def test_nobody_there_is_an_error_of_the_client() -> None:
    with pytest.raises(ClientError, match="cannot be reached"):
        ask_strategies(Connecting(port=1))
    with pytest.raises(ClientError, match="cannot be reached"):
        ask_bounds(Connecting(port=1))


async def test_a_server_that_answers_otherwise_is_no_timebound_broker() -> None:
    async with ScriptedServer() as server:
        asking = asyncio.create_task(asyncio.to_thread(ask_strategies, Connecting(port=server.port)))
        peer = await server.accept()
        request = await peer.expect(Publish)
        peer.send(Ack(4, request.packet_id, 0, "welcome"))

        with pytest.raises(ClientError, match="not a Timebound broker: it answered 'welcome'"):
            await asking
