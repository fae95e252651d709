"""The client against another broker, Mosquitto, so that both are not wrong in the same way."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from timebound import Client, Message, Subscription
from timebound.cli import main
from timebound.client import NotTimebound

START_TIMEOUT_S = 10.0
LIMIT_S = 20.0
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")

pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a running Mosquitto."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    config = tmp_path_factory.mktemp("mosquitto") / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    process = start(config)
    wait_listening(port)
    yield port
    process.terminate()
    process.wait(START_TIMEOUT_S)


def start(config: Path) -> subprocess.Popen[bytes]:
    assert MOSQUITTO is not None
    quiet = subprocess.DEVNULL
    return subprocess.Popen([MOSQUITTO, "-c", str(config)], stdout=quiet, stderr=quiet)


def wait_listening(port: int) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < end, f"mosquitto does not listen on {port}"
            time.sleep(0.02)


async def take(subscription: Subscription, count: int) -> list[Message]:
    async with asyncio.timeout(LIMIT_S):
        return [await anext(subscription) for _ in range(count)]


@pytest.mark.parametrize(
    "command",
    [
        "strategy set fifo",
        "strategy set fifo --listener x",
        "weight set a/# 3",
        "weight remove a/#",
        "weight list",
        "weight list --json",
        "bounds",
        "bounds --json",
    ],
)
def test_request_to_another_broker_fails_instead_of_claiming_success(
    mosquitto: int,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["timebound", *command.split(), "--port", str(mosquitto)])

    with pytest.raises(SystemExit) as ended:
        main()

    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert printed.out == ""
    assert "the server is not a Timebound broker" in " ".join(printed.err.split())


async def test_flow_is_not_advertised_to_another_broker(mosquitto: int) -> None:
    async with Client(port=mosquitto) as client:
        with pytest.raises(NotTimebound, match="not a Timebound broker"):
            await client.advertise("plant/1", period="20ms")
        with pytest.raises(NotTimebound, match="not a Timebound broker"):
            await client.unadvertise("plant/1")


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_concurrent_messages_arrive_in_order(mosquitto: int, qos: int, version: int) -> None:
    # Version 2.0.11 never sends an MQTT 3.1.1 subscriber the 21st QoS 2 message, though its log
    # shows that it got the PUBCOMPs of the first 20.
    count = 20 if (version, qos) == (4, 2) else 300
    topic = f"order/{version}/{qos}"
    async with (
        Client(port=mosquitto, version=version) as client,
        client.subscribe(topic, qos=qos) as messages,
    ):
        await asyncio.gather(*(client.publish(topic, number, qos=qos) for number in range(count)))

        received = await take(messages, count)

    assert [message.json() for message in received] == list(range(count))


async def test_terms_pass_through_as_user_properties(mosquitto: int) -> None:
    async with Client(port=mosquitto) as client:
        messages = await client.subscribe("terms", where="value > 90", deadline="250ms", price=3)
        await client.publish("terms", 1, timeout="400ms", priority=2, user_properties={"unit": "C"})

        (message,) = await take(messages, 1)

    assert message.user_properties == (("unit", "C"), ("priority", "2"), ("timeout", "400ms"))


async def test_overlapping_subscriptions_get_each_message_once(mosquitto: int) -> None:
    async with Client(port=mosquitto) as client:
        wide, narrow = await client.subscribe("overlap/#", qos=2), await client.subscribe("overlap/a", qos=1)
        await client.publish("overlap/a", 1, qos=2)
        await client.publish("overlap/b", 2, qos=2)

        of_wide, of_narrow = await take(wide, 2), await take(narrow, 1)

    assert [message.json() for message in of_wide] == [1, 2]
    assert [message.json() for message in of_narrow] == [1]
    assert (wide.waiting, narrow.waiting) == (0, 0)


async def test_request_and_reply(mosquitto: int) -> None:
    async with Client(port=mosquitto) as client:
        questions = await client.subscribe("double")

        async def answer() -> None:
            (message,) = await take(questions, 1)
            await client.reply(message, message.json() * 2)

        answering = asyncio.create_task(answer())
        reply = await client.request("double", 21)
        await answering

    assert reply.json() == 42


async def test_large_messages_arrive_whole(mosquitto: int) -> None:
    payload = bytes(range(256)) * 8_000
    async with Client(port=mosquitto) as client, client.subscribe("large", qos=1) as messages:
        await client.publish("large", payload, qos=1)

        (message,) = await take(messages, 1)

    assert message.payload == payload


async def test_durable_session_gives_what_came_while_away(mosquitto: int) -> None:
    def durable() -> Client:
        return Client(port=mosquitto, client_id="durable", clean_start=False, session_expiry="1m")

    async with durable() as client:
        await client.subscribe("away", qos=2)
    async with Client(port=mosquitto) as other:
        for number in range(10):
            await other.publish("away", number, qos=2)
    async with durable() as client:
        was_present = client.session_present
        received = await take(client.subscribe("away", qos=2), 10)

    assert was_present
    assert [message.json() for message in received] == list(range(10))
