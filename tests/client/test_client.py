"""The calls of the client against the real broker; the other files here have the odd servers."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from tests.client.scripted_server import wait_until
from tests.conftest import BrokerProcess, Certificates, StartBroker
from timebound.client.client import Client
from timebound.client.message import Message
from timebound.client.refusals import PublishRefused, SubscribeRefused
from timebound.client.subscription import Subscription
from timebound.client.will import Will
from timebound.errors import ConnectError, NotConnected, PublishError
from timebound.node.login.passwords import PasswordFile

LIMIT_S = 20.0
MIB = 1_048_576
END = -1


async def take(subscription: Subscription, count: int) -> list[Message]:
    """Return the next messages, within a limit."""
    async with asyncio.timeout(LIMIT_S):
        return [await anext(subscription) for _ in range(count)]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_arrive_in_order_with_every_qos(broker: BrokerProcess, qos: int, version: int) -> None:
    topic = f"client/order/{version}/{qos}"
    async with (
        Client(port=broker.port, version=version) as client,
        client.subscribe(topic, qos=qos) as messages,
    ):
        for number in range(50):
            await client.publish(topic, number, qos=qos)

        received = await take(messages, 50)

    assert [message.json() for message in received] == list(range(50))
    assert {message.qos for message in received} == {qos}


async def test_the_words_of_the_readme_work(broker: BrokerProcess) -> None:
    async with Client(f"mqtt://127.0.0.1:{broker.port}") as client:
        messages = client.subscribe(
            "client/readme/+/temp", where="value > 90", deadline="250ms", price=3, penalty=0.3
        )
        await messages
        await client.publish("client/readme/7/temp", {"value": 80}, timeout="400ms", priority=5)
        await client.publish("client/readme/7/temp", {"value": 95}, timeout="400ms", priority=5)

        (message,) = await take(messages, 1)

    assert message.json() == {"value": 95}
    assert message.topic == "client/readme/7/temp"
    assert ("timeout", "400ms") in message.user_properties
    assert ("priority", "5") in message.user_properties
    assert message.age is not None


async def test_properties_arrive_as_they_were_sent(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client, client.subscribe("client/properties") as messages:
        await client.publish(
            "client/properties",
            "grün",
            content_type="text/plain",
            response_topic="client/answers",
            correlation_data=b"\x00\x01",
            expiry="1m",
            user_properties=[("b", "1"), ("a", 2), ("b", True)],
        )

        (message,) = await take(messages, 1)

    assert message.text() == "grün"
    assert message.content_type == "text/plain"
    assert message.response_topic == "client/answers"
    assert message.correlation_data == b"\x00\x01"
    assert message.properties.message_expiry_interval in (59, 60)
    assert message.user_properties == (("b", "1"), ("a", "2"), ("b", "true"))


async def test_where_that_cannot_be_read_points_at_the_character(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client:
        with pytest.raises(SubscribeRefused) as caught:
            await client.subscribe("client/where", where="value >> 90")

    assert caught.value.reason_code == 0x83
    assert caught.value.position == "value >> 90".index("> 90")


async def test_timeout_that_the_broker_cannot_read_is_refused(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client:
        with pytest.raises(PublishRefused, match="timeout") as caught:
            await client.publish("client/bad", qos=1, user_properties={"timeout": "soon"})

    assert caught.value.reason_code == 0x83


async def test_retained_message_comes_to_new_subscribers_unless_told_otherwise(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client:
        await client.publish("client/retained", "kept", qos=1, retain=True)
        async with client.subscribe("client/retained") as messages:
            (message,) = await take(messages, 1)
        async with client.subscribe("client/retained", retain_handling=2) as messages:
            await client.publish("client/retained", "new", qos=1)
            (following,) = await take(messages, 1)
        await client.publish("client/retained", None, qos=1, retain=True)

    assert (message.text(), message.retain) == ("kept", True)
    assert (following.text(), following.retain) == ("new", False)


async def test_no_local_leaves_own_messages_out(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client, Client(port=broker.port) as other:
        messages = await client.subscribe("client/local", no_local=True)
        await client.publish("client/local", "own", qos=1)
        await other.publish("client/local", "other", qos=1)

        (message,) = await take(messages, 1)

    assert message.text() == "other"


async def test_ticks_and_alarms_of_a_subscription_reach_its_reader(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client, asyncio.timeout(LIMIT_S):
        seen: set[str] = set()
        terms = [("watchdog", "20ms"), ("every", "30ms")]
        async with client.subscribe("never/+", properties=terms) as subscription:
            async for message in subscription:
                seen.add(message.topic)
                if len(seen) == 2:
                    break

    assert seen == {"$timebound/watchdog", "$timebound/every"}


async def test_overlapping_subscriptions_get_each_message_once(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client:
        wide, narrow = (
            client.subscribe("client/overlap/#", qos=1),
            client.subscribe("client/overlap/a", qos=1),
        )
        await wide
        await narrow
        for number in range(10):
            await client.publish("client/overlap/a", number, qos=1)
        await client.publish("client/overlap/b", "end", qos=1)

        of_wide = await take(wide, 11)
        of_narrow = await take(narrow, 10)

    assert [message.text() for message in of_wide] == [*map(str, range(10)), "end"]
    assert [message.text() for message in of_narrow] == [*map(str, range(10))]
    assert (wide.waiting, narrow.waiting) == (0, 0)


async def test_names_give_one_filter_several_terms(broker: BrokerProcess) -> None:
    topic = "client/named"
    async with Client(port=broker.port) as client:
        hot = await client.subscribe(topic, qos=1, name="hot", where="value > 90", deadline="10s", price=5)
        everything = await client.subscribe(topic, qos=1, name="all", ordered=True)
        for value in (1, 95, 2, 96):
            await client.publish(topic, {"value": value}, qos=1)

        of_hot, of_all = await take(hot, 2), await take(everything, 4)
        await everything.unsubscribe()
        await client.publish(topic, {"value": 97}, qos=1)
        last = await take(hot, 1)

    assert [message.json()["value"] for message in of_hot + last] == [95, 96, 97]
    assert sorted(message.json()["value"] for message in of_all) == [1, 2, 95, 96]


async def test_request_is_answered(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as asking, Client(port=broker.port) as answering:
        questions = answering.subscribe("client/double")
        await questions

        async def answer() -> None:
            for message in await take(questions, 5):
                await answering.reply(message, message.json() * 2)

        answers = asyncio.create_task(answer())
        replies = await asyncio.gather(*(asking.request("client/double", number) for number in range(5)))
        await answers

    assert [reply.json() for reply in replies] == [0, 2, 4, 6, 8]


async def test_request_that_nobody_can_answer_fails_at_once(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client:
        with pytest.raises(PublishError, match="nobody can answer"):
            await client.request("client/nobody", "?", timeout="20s")


async def test_request_without_an_answer_times_out(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client, client.subscribe("client/silent"):
        with pytest.raises(TimeoutError, match="no answer from 'client/silent' within 50ms"):
            await client.request("client/silent", timeout="50ms")


async def test_reply_to_a_message_without_response_topic_is_refused(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client, client.subscribe("client/plain") as messages:
        await client.publish("client/plain")
        (message,) = await take(messages, 1)

        with pytest.raises(ValueError, match="no response topic"):
            await client.reply(message, "?")


async def test_payload_just_below_the_packet_limit_arrives_and_a_larger_one_does_not_leave(
    broker: BrokerProcess,
) -> None:
    payload = bytes(range(256)) * (MIB // 256 - 1)
    async with Client(port=broker.port) as client, client.subscribe("client/big", qos=1) as messages:
        await client.publish("client/big", payload, qos=1)
        with pytest.raises(PublishError, match="too large for the server"):
            await client.publish("client/big", payload + bytes(256), qos=1)

        (message,) = await take(messages, 1)

    assert message.payload == payload


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_thousand_concurrent_publishes_are_all_acknowledged(broker: BrokerProcess, qos: int) -> None:
    topic = f"client/many/{qos}"
    async with Client(port=broker.port) as client, client.subscribe(topic, qos=qos) as messages:
        codes = await asyncio.gather(*(client.publish(topic, number, qos=qos) for number in range(1000)))
        received = await take(messages, 1000)

    assert set(codes) == {0}
    assert [message.json() for message in received] == list(range(1000))


async def test_slow_reader_holds_the_broker_back_and_loses_nothing_with_qos_1(broker: BrokerProcess) -> None:
    async with Client(port=broker.port, receive_maximum=5) as client, Client(port=broker.port) as other:
        messages = await client.subscribe("client/slow", qos=1, queue_size=1)
        for number in range(200):
            await other.publish("client/slow", number, qos=1)

        assert messages.waiting <= 5
        received = await take(messages, 200)

    assert [message.json() for message in received] == list(range(200))
    assert messages.dropped == 0


async def test_will_is_published_when_the_client_is_lost(broker: BrokerProcess) -> None:
    script = (
        "import asyncio, os\n"
        "from timebound import Client, Will\n"
        "async def main():\n"
        f"    will = Will('client/will', {{'left': True}}, qos=1, user_properties={{'k': 'v'}})\n"
        f"    await Client(port={broker.port}, will=will).connect()\n"
        "    os._exit(1)\n"
        "asyncio.run(main())\n"
    )
    async with Client(port=broker.port) as client, client.subscribe("client/will", qos=1) as messages:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
        async with asyncio.timeout(LIMIT_S):
            await process.wait()

        (message,) = await take(messages, 1)

    assert message.json() == {"left": True}
    assert message.user_properties == (("k", "v"),)


async def test_will_is_published_at_goodbye_only_where_that_is_asked_for(broker: BrokerProcess) -> None:
    async with Client(port=broker.port) as client, client.subscribe("client/goodbye", qos=1) as messages:
        for payload, with_will in (("no", False), ("yes", True)):
            leaving = Client(port=broker.port, will=Will("client/goodbye", payload, qos=1))
            await leaving.connect()
            await leaving.disconnect(with_will=with_will)

        (message,) = await take(messages, 1)

    assert message.text() == "yes"


async def test_taken_over_session_is_reported_and_not_fought_for(broker: BrokerProcess) -> None:
    first = Client(port=broker.port, client_id="client-taken-over")
    await first.connect()
    async with Client(port=broker.port, client_id="client-taken-over") as second:
        messages = first.subscribe("client/taken")
        with pytest.raises(NotConnected, match="session taken over"):
            await take(messages, 1)

        assert second.is_connected
    await first.disconnect()


async def test_messages_wait_in_a_durable_session_for_the_next_process(broker: BrokerProcess) -> None:
    def durable() -> Client:
        return Client(port=broker.port, client_id="client-durable", clean_start=False, session_expiry="1m")

    async with durable() as client:
        await client.subscribe("client/durable", qos=1)
    async with Client(port=broker.port) as other:
        for number in range(10):
            await other.publish("client/durable", number, qos=1)

    async with durable() as client:
        received = await take(client.subscribe("client/durable", qos=1), 10)
        await client.disconnect(session_expiry=0)

    assert [message.json() for message in received] == list(range(10))


TLS_CONFIG = """
[[listeners]]
port = 0
[listeners.tls]
certificate = "{certificate}"
key = "{key}"
"""


async def test_tls_with_a_trusted_certificate(start_broker: StartBroker, certificates: Certificates) -> None:
    config = TLS_CONFIG.format(certificate=certificates.certificate, key=certificates.key)
    broker = start_broker(config)
    context = ssl.create_default_context(cafile=certificates.ca)
    url = f"mqtts://127.0.0.1:{broker.port}"

    async with Client(url, tls=context) as client, client.subscribe("tls", qos=2) as messages:
        await client.publish("tls", b"x" * 500_000, qos=2)
        (message,) = await take(messages, 1)
    with pytest.raises(ConnectError, match="certificate verify failed"):
        await Client(url).connect()

    assert len(message.payload) == 500_000


async def test_user_name_and_password_of_the_url_count(start_broker: StartBroker, tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "users.txt")
    users.set("ann", "s3cret")
    users.save()
    broker = start_broker(
        f'[[listeners]]\nport = 0\nallow_anonymous = false\n[security]\npassword_file = "{users.path}"\n'
    )

    async with Client(f"mqtt://ann:s3cret@127.0.0.1:{broker.port}") as client:
        assert await client.publish("a", qos=1) in (0, 0x10)
    with pytest.raises(ConnectError) as caught:
        await Client(f"mqtt://ann:wrong@127.0.0.1:{broker.port}").connect()

    assert caught.value.reason_code in (0x86, 0x87)


def restart(start_broker: StartBroker, broker: BrokerProcess) -> BrokerProcess:
    """Kill a broker without warning and start it again on the same port and data."""
    port = broker.port
    broker.kill()
    return start_broker(f"[[listeners]]\nport = {port}\n", data=broker.data)


class KillRun:
    """A reader and a writer with durable sessions, at work while their broker dies."""

    def __init__(self, port: int, qos: int) -> None:
        self.numbers: list[int] = []
        self.written = 0
        self._reader = self._client(port, "reader")
        self._writer = self._client(port, "writer")
        self._qos = qos
        self._is_over = False

    def _client(self, port: int, client_id: str) -> Client:
        return Client(port=port, client_id=client_id, session_expiry="1h", reconnect_delay_max="100ms")

    async def wait_under_load(self, life: int) -> None:
        """Wait until both are connected for the nth time, and messages flow again."""
        reader, writer = self._reader, self._writer
        await wait_until(lambda: min(reader.reconnects, writer.reconnects) >= life)
        mark = len(self.numbers)
        await wait_until(lambda: len(self.numbers) > mark + 30)

    async def run(self, killing: Callable[[KillRun], Awaitable[None]]) -> None:
        async with self._reader, self._writer:
            messages = self._reader.subscribe("kill", qos=self._qos)
            await messages
            async with asyncio.timeout(2 * LIMIT_S), asyncio.TaskGroup() as group:
                group.create_task(self._read(messages))
                async with asyncio.TaskGroup() as writers:
                    for _ in range(20):
                        writers.create_task(self._write())
                    await killing(self)
                    self._is_over = True
                await self._writer.publish("kill", END, qos=self._qos)

    async def _write(self) -> None:
        while not self._is_over:
            number, self.written = self.written, self.written + 1
            await self._writer.publish("kill", number, qos=self._qos)

    async def _read(self, messages: Subscription) -> None:
        while END not in self.numbers:
            self.numbers.append((await take(messages, 1))[0].json())


@pytest.mark.parametrize("qos", [1, 2])
async def test_nothing_is_lost_or_doubled_when_the_broker_is_killed_under_load(
    start_broker: StartBroker, qos: int
) -> None:
    """QoS 1 may double by definition; QoS 2 may not."""
    broker = start_broker()

    async def kill_three_times(run: KillRun) -> None:
        nonlocal broker
        for life in range(3):
            await run.wait_under_load(life)
            broker = await asyncio.to_thread(restart, start_broker, broker)
        await run.wait_under_load(3)

    run = KillRun(broker.port, qos)
    await run.run(kill_three_times)

    assert run.numbers.pop() == END
    assert sorted(set(run.numbers)) == list(range(run.written))
    if qos == 2:
        assert run.numbers == list(range(run.written))


async def test_clean_session_is_made_again_after_a_broker_restart(start_broker: StartBroker) -> None:
    broker = start_broker()
    async with Client(port=broker.port, reconnect_delay_max="100ms") as client:
        messages = client.subscribe("restart", qos=1)
        await messages
        await client.publish("restart", "before", qos=1)
        await asyncio.to_thread(restart, start_broker, broker)
        await client.publish("restart", "after", qos=1)

        received = await take(messages, 2)

    assert [message.text() for message in received] == ["before", "after"]
    assert client.reconnects == 1


def test_client_runs_on_uvloop_as_well(broker: BrokerProcess) -> None:
    async def publish_and_read() -> list[str]:
        async with Client(port=broker.port) as client, client.subscribe("client/uvloop", qos=2) as messages:
            await client.publish("client/uvloop", "x", qos=2)
            return [message.text() for message in await take(messages, 1)]

    assert uvloop.run(publish_and_read()) == ["x"]


def test_importing_the_package_loads_neither_client_nor_asyncio() -> None:
    script = (
        "import sys, timebound\n"
        "assert 'timebound.client' not in sys.modules and 'asyncio' not in sys.modules\n"
        "from timebound import Client\n"
        "assert Client.__module__ == 'timebound.client.client'\n"
        "assert 'Client' in dir(timebound)\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True, timeout=20)
