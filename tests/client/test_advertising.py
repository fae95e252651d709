"""The messages that advertise flows, what is renewed, and what is logged when a renewal is refused."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.client.scripted_server import ScriptedServer, durable, published
from timebound.client.advertising import Advertised, advertisement, withdrawal
from timebound.client.refusals import PublishRefused
from timebound.wire import packet_types as types
from timebound.wire.packets import Ack, Connack, Publish


def terms_of(**values: Any) -> tuple[tuple[str, str], ...]:
    """Return the user properties of an advertisement as a broker reads them."""
    wishes = dict.fromkeys(("period", "rate", "burst", "size", "weight", "delay"))
    outgoing = advertisement("plant/1", **{**wishes, **values})
    packet = Publish(outgoing.topic, outgoing.payload, passed_on=outgoing.passed_on)
    return tuple(packet.properties().user_properties)


def test_advertisement_carries_its_terms_as_user_properties_of_a_qos_1_message() -> None:
    outgoing = advertisement("plant/1", period="20ms", rate=None, burst=2, size=64, weight=3, delay=0.05)

    assert (outgoing.topic, outgoing.qos, outgoing.retain) == ("$timebound/advertise/plant/1", 1, False)
    assert terms_of(period="20ms", burst=2, size=64, weight=3, delay=0.05) == (
        ("period", "20ms"),
        ("burst", "2"),
        ("size", "64"),
        ("weight", "3"),
        ("delay", "50ms"),
    )


def test_rate_is_written_without_an_exponent() -> None:
    assert terms_of(rate=1e-7) == (("rate", "0.0000001"),)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "either a period"),
        ({"period": 1, "rate": 1.0}, "either a period"),
        ({"rate": 1.0, "burst": 0}, "burst is 0; it must be above zero"),
        ({"rate": 1.0, "size": -1}, "size is -1; it must be above zero"),
        ({"period": 0}, "period is 0; it must be above zero"),
    ],
)
def test_impossible_flow_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        terms_of(**values)


def test_withdrawal_is_an_advertisement_without_terms() -> None:
    outgoing = withdrawal("plant/1")

    assert (outgoing.topic, outgoing.qos, outgoing.passed_on) == ("$timebound/advertise/plant/1", 1, b"")


async def test_only_flows_that_were_not_withdrawn_are_renewed() -> None:
    advertised = Advertised()
    kept, gone = (
        advertisement(topic, period="1s", rate=None, burst=None, size=None, weight=None, delay=None)
        for topic in ("kept", "gone")
    )
    advertised.add(kept)
    advertised.add(gone)
    advertised.remove(withdrawal("gone"))

    renewals = advertised.renewals()

    assert [(one.topic, one.passed_on) for one in renewals] == [(kept.topic, kept.passed_on)]


async def test_refused_renewal_is_logged_and_raises_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    advertised = Advertised()
    advertised.add(advertisement("a", period="1s", rate=None, burst=None, size=None, weight=None, delay=None))
    (renewal,) = advertised.renewals()
    assert renewal.future is not None

    with caplog.at_level(logging.WARNING, "timebound.client"):
        renewal.fail(PublishRefused(renewal.topic, 0x97, "no room"))
        await asyncio.wait([renewal.future])

    assert "0x97 quota exceeded: no room" in caplog.text


async def test_admitted_flow_is_advertised_again_on_the_next_connection() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        advertising = asyncio.create_task(client.advertise("a", rate=5))
        first = await published(peer)
        peer.send(Ack(types.PUBACK, first.packet_id, 0, "waits at most 1ms"))
        assert await advertising == "waits at most 1ms"
        peer.cut()

        peer = await server.accept(Connack(session_present=False))
        again = await published(peer)

        assert (again.topic, again.passed_on) == (first.topic, first.passed_on)
        await client.disconnect()
