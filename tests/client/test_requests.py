"""Questions and answers: each answer finds the question with its correlation data."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.scripted_server import LIMIT_S, ScriptedServer, published
from timebound.client.client import Client
from timebound.client.message import Message
from timebound.client.receipts import Receipt
from timebound.client.requests import Requests
from timebound.client.subscription import State, Subscription
from timebound.errors import NotConnected
from timebound.wire import packet_types as types
from timebound.wire.packets import Ack, SubscribeEntry, make_publish
from timebound.wire.properties import Properties


class GrantingOwner:
    """Grants every subscription at once, and counts them."""

    def __init__(self) -> None:
        self.started: list[Subscription] = []

    async def start(self, subscription: Subscription) -> None:
        if subscription.state is State.NEW:
            self.started.append(subscription)
            subscription.state = State.ACTIVE

    async def stop(self, subscription: Subscription) -> None:
        subscription.end(None)

    def forget(self, subscription: Subscription) -> None:
        subscription.end(None)

    def take(self, receipt: Receipt) -> None:
        raise AssertionError("no answer here has a receipt")


def requests_of(owner: GrantingOwner) -> Requests:
    def subscribe(topic_filter: str, consumer: Requests) -> Subscription:
        return Subscription(owner, [SubscribeEntry(topic_filter, 1)], Properties(), consumer=consumer)

    return Requests(subscribe)


def answer(correlation_data: bytes | None, payload: bytes) -> Message:
    properties = Properties()
    properties.correlation_data = correlation_data
    return Message("reply", make_publish("reply", payload, properties=properties))


async def test_answer_goes_to_the_question_with_its_correlation_data() -> None:
    requests = requests_of(GrantingOwner())
    first, second = await requests.open(), await requests.open()

    requests(answer(second, b"2"))
    requests(answer(first, b"1"))
    requests(answer(first, b"too late"))

    assert (await requests.wait(first, LIMIT_S)).payload == b"1"
    assert (await requests.wait(second, LIMIT_S)).payload == b"2"


async def test_answer_that_nobody_waits_for_is_dropped() -> None:
    requests = requests_of(GrantingOwner())
    asked = await requests.open()
    requests.close(asked)

    requests(answer(asked, b"late"))
    requests(answer(None, b"lost"))

    following = await requests.open()
    with pytest.raises(TimeoutError):
        await requests.wait(following, 0.001)


async def test_all_answers_come_through_one_subscription_which_is_renewed_when_it_ended() -> None:
    owner = GrantingOwner()
    requests = requests_of(owner)

    await requests.open()
    await requests.open()
    assert [one.topic_filters for one in owner.started] == [(requests.topic,)]
    owner.started[0].end(None)
    await requests.open()

    assert [one.topic_filters for one in owner.started] == [(requests.topic,)] * 2


async def test_response_topics_of_two_clients_differ() -> None:
    assert requests_of(GrantingOwner()).topic != requests_of(GrantingOwner()).topic


async def test_open_questions_fail_when_the_client_disconnects() -> None:
    requests = requests_of(GrantingOwner())
    asked = await requests.open()

    requests.fail_all()

    with pytest.raises(NotConnected, match="disconnected before the answer came"):
        await requests.wait(asked, LIMIT_S)


async def test_question_travels_with_its_response_topic_and_the_time_its_asker_waits() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        asking = asyncio.create_task(client.request("double", 21, timeout="10s"))
        subscribed = await peer.grant(1)
        question = await published(peer)
        properties = question.properties()
        peer.send(Ack(types.PUBACK, question.packet_id))
        reply = Properties()
        reply.correlation_data = properties.correlation_data
        assert properties.response_topic is not None
        packet = make_publish(properties.response_topic, b"42", properties=reply)
        peer.send(packet)

        answered = await asking

        assert answered.json() == 42
        assert properties.response_topic == subscribed.entries[0].topic_filter
        assert question.user_properties == (("timeout", "10s"),)
        await client.disconnect()
