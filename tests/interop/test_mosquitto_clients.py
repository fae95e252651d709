"""Debian's mosquitto_pub and mosquitto_sub as clients, in MQTT 5, 3.1.1 and 3.1."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from tests.conftest import BrokerProcess, Certificates
from tests.peer import join

pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto_pub") is None, reason="needs mosquitto_pub (Debian: mosquitto-clients)"
)
TIMEOUT_S = 15.0


def pub(port: int, *arguments: str, payload: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run mosquitto_pub to its end."""
    command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), *arguments]
    return subprocess.run(
        command, input=payload, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


class Subscriber:
    """A running mosquitto_sub, once it is subscribed."""

    def __init__(self, broker: BrokerProcess, client_id: str, *arguments: str) -> None:
        # It tells in its debug output that it is subscribed, and stdbuf that it tells at once.
        command = ["stdbuf", "-oL", "mosquitto_sub", "-d", "-h", "127.0.0.1", "-p", str(broker.port)]
        command += ["-i", client_id, "-W", "15", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:  # `-W` ends it, and so this loop, at last
            if line.startswith("Subscribed"):
                return
        pytest.fail("mosquitto_sub ended without being subscribed")

    def lines(self) -> list[str]:
        """What it printed besides its debug output."""
        out, _ = self._process.communicate(timeout=TIMEOUT_S)
        return [line for line in out.splitlines() if not line.startswith(("Client ", "Subscribed"))]

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def subscribers() -> Iterator[list[Subscriber]]:
    started: list[Subscriber] = []
    yield started
    for subscriber in started:
        subscriber.stop()


@pytest.mark.parametrize("version", ["mqttv5", "mqttv311", "mqttv31"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_messages_pass(opened: BrokerProcess, subscribers: list[Subscriber], version: str, qos: str) -> None:
    topic = f"mosquitto/{version}/{qos}"
    subscriber = Subscriber(
        opened, f"sub-{version}-{qos}", "-V", version, "-q", qos, "-C", "3", "-t", topic, "-v"
    )
    subscribers.append(subscriber)
    sent = pub(opened.port, "-V", version, "-q", qos, "-t", topic, "-l", payload="one\ntwo\nthree\n")

    assert sent.returncode == 0, sent.stderr
    assert subscriber.lines() == [f"{topic} one", f"{topic} two", f"{topic} three"]


def test_retained_message(opened: BrokerProcess) -> None:
    assert pub(opened.port, "-t", "mosquitto/kept", "-m", "kept", "-r", "-q", "1").returncode == 0
    command = ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(opened.port), "-t", "mosquitto/kept", "-C", "1"]
    got = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)

    assert got.stdout == "kept\n"
    assert pub(opened.port, "-t", "mosquitto/kept", "-n", "-r").returncode == 0


def test_properties_and_filter(opened: BrokerProcess, subscribers: list[Subscriber]) -> None:
    where = ["-D", "subscribe", "user-property", "where", "value > 90"]
    form = ["-F", "%p %P %C %R"]
    subscriber = Subscriber(
        opened, "sub-filter", "-V", "5", "-q", "1", "-C", "1", "-t", "mosquitto/where", *where, *form
    )
    subscribers.append(subscriber)
    for value in ("80", "95"):
        properties = ["user-property", "b", "2", "-D", "publish", "user-property", "a", "1"]
        more = ["-D", "publish", "content-type", "json", "-D", "publish", "response-topic", "back"]
        payload = f'{{"value": {value}}}'
        sent = pub(
            opened.port,
            "-V",
            "5",
            "-q",
            "1",
            "-t",
            "mosquitto/where",
            "-m",
            payload,
            "-D",
            "publish",
            *properties,
            *more,
        )
        assert sent.returncode == 0, sent.stderr

    assert subscriber.lines() == ['{"value": 95} b:2 a:1 json back']


def test_refusals_are_shown(opened: BrokerProcess) -> None:
    command = ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(opened.port), "-t", "a/b", "-V", "5", "-W", "5"]
    command += ["-D", "subscribe", "user-property", "where", "value >"]
    got = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    sent = pub(opened.port, "-V", "5", "-q", "1", "-t", "$SYS/x", "-m", "x", "-d")

    assert "All subscription requests were denied" in got.stderr
    assert "not_authorized" in sent.stdout + sent.stderr or "Not authorized" in sent.stdout + sent.stderr


def test_tls(opened: BrokerProcess, certificates: Certificates) -> None:
    secure = opened.port_of("mqtts:")
    with join(opened.port) as peer:
        peer.subscribe("mosquitto/tls", qos=1)
        sent = pub(secure, "--cafile", str(certificates.ca), "-q", "1", "-t", "mosquitto/tls", "-m", "safe")
        assert sent.returncode == 0, sent.stderr
        peer.expect_publish("mosquitto/tls", b"safe")
    assert pub(secure, "-q", "1", "-t", "mosquitto/tls", "-m", "plain").returncode != 0


def test_large_payload(opened: BrokerProcess) -> None:
    with join(opened.port) as peer:
        peer.subscribe("mosquitto/large")
        sent = pub(opened.port, "-q", "2", "-t", "mosquitto/large", "-s", payload="y" * 1_000_000)
        assert sent.returncode == 0, sent.stderr
        peer.expect_publish("mosquitto/large", b"y" * 1_000_000)


def test_shared_subscription(opened: BrokerProcess, subscribers: list[Subscriber]) -> None:
    for name in ("one", "two"):
        arguments = ("-V", "5", "-q", "1", "-C", "2", "-t", "$share/team/mosquitto/shared")
        subscribers.append(Subscriber(opened, f"sub-shared-{name}", *arguments))
    sent = pub(opened.port, "-q", "1", "-t", "mosquitto/shared", "-l", payload="1\n2\n3\n4\n")

    assert sent.returncode == 0
    assert sorted(line for subscriber in subscribers for line in subscriber.lines()) == ["1", "2", "3", "4"]
