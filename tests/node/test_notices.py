"""What the log says of refusals and of connections that end, and that a flood of them is none there."""

from __future__ import annotations

import logging
import re
import socket
import struct

import pytest
from tests.conftest import BrokerProcess, Certificates, ShareOver, StartBroker
from tests.peer import Peer, join

from timebound.node.notices import INTERVAL_NS, REASONS_MAX, SUBJECTS_MAX, Notices
from timebound.wire.packets import Ack, Disconnect, Publish

RULES = '[[acl]]\nuser = "*"\nfilter = "open/#"\n'


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    return BrokerProcess(tmp_path_factory.mktemp("notices"), RULES)


@pytest.fixture(scope="module", autouse=True)
def stopped(guarded: BrokerProcess) -> object:
    yield
    guarded.check()
    guarded.stop()


def lines(broker: BrokerProcess, *texts: str) -> list[str]:
    return [line for line in broker.log().splitlines() if all(text in line for text in texts)]


# --- rate -------------------------------------------------------------------------------


def test_first_notice_is_logged_at_once_and_the_rest_as_a_count(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices()
    for number in range(100):
        notices.note("a", f"a ({number})", "too many", 1)
    notices.note("a", "a (1)", "too long", 1)
    notices.note("b", "b (1)", "too many", 1)
    notices.patrol(INTERVAL_NS)
    assert caplog.messages == ["a (0): too many", "a (1): too long", "b (1): too many"]

    notices.patrol(1 + INTERVAL_NS)
    notices.patrol(1 + 2 * INTERVAL_NS)
    notices.note("a", "a (5)", "too many", 1 + 2 * INTERVAL_NS)

    assert caplog.messages[3:] == ["a (99): too many (99 times in 10 s)", "a (5): too many"]


def test_beyond_the_limit_clients_share_their_lines(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices()
    for number in range(5 * SUBJECTS_MAX):
        notices.note(f"c{number}", f"c{number}", "too many", 1)

    notices.patrol(1 + INTERVAL_NS)

    assert len(caplog.messages) == SUBJECTS_MAX + 2
    assert caplog.messages[-1] == f"c499: too many ({4 * SUBJECTS_MAX - 1} times in 10 s)"


def test_beyond_the_limit_reasons_of_a_client_share_their_lines(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices()
    for number in range(5 * REASONS_MAX):
        notices.note("c", "c", f"topic {number}", 1)

    notices.patrol(1 + INTERVAL_NS)

    assert len(caplog.messages) == REASONS_MAX + 2
    assert caplog.messages[-1] == f"c: topic 99 ({4 * REASONS_MAX - 1} times in 10 s)"


def test_a_count_has_the_level_of_its_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    notices = Notices()
    notices.note("a", "a", "left", 1, logging.INFO)
    notices.note("a", "a", "left", 1, logging.INFO)
    notices.patrol(1 + INTERVAL_NS)

    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]


# --- what is logged -----------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_denied_publishes_are_logged_once_with_client_address_and_topic(
    guarded: BrokerProcess, qos: int
) -> None:
    name = f"denied-{qos}"
    with join(guarded.port, name) as peer:
        for _ in range(200):
            peer.publish("secret/a", b"1", qos)
            if qos:
                assert peer.expect(Ack).reason_code == 0x87
        peer.expect_silence()

        address = f"127.0.0.1:{peer.socket.getsockname()[1]}"
        text = f"'{name}' ({address}) was refused: not_authorized: publishing to 'secret/a' is not allowed"
        guarded.wait_logged(text)
    assert len(lines(guarded, f"'{name}'", "was refused")) == 1


def test_denied_subscriptions_are_logged(guarded: BrokerProcess) -> None:
    with join(guarded.port, "reader") as peer:
        for _ in range(20):
            assert peer.subscribe("secret/#").reason_codes == [0x87]

    guarded.wait_logged("was refused: subscription: not_authorized: subscribing to 'secret/#' is not allowed")
    assert len(lines(guarded, "'reader'", "was refused")) == 1


def test_refused_requests_are_logged(guarded: BrokerProcess) -> None:
    with join(guarded.port, "asker") as peer:
        peer.publish("$timebound/control/strategy", b"edf", 1)
        assert peer.expect(Ack).reason_code == 0x87

    guarded.wait_logged("was refused: not_authorized: publishing to '$timebound/control/strategy'")


def test_refused_connects_are_logged_once_for_an_address(start_broker: StartBroker) -> None:
    broker = start_broker("[limits]\nsessions_max = 1\n")
    with join(broker.port, "only"):
        for number in range(20):
            with Peer(broker.port) as peer:
                assert peer.connect(f"more-{number}").reason_code == 0x97

    broker.wait_logged("sessions_max (1) is reached")
    assert len(lines(broker, "refused 127.0.0.1:")) == 1


def flood(port: int, sent: bytes, count: int = 20) -> None:
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(sent)
            while connection.recv(4_096):
                pass


def test_a_flood_of_failed_handshakes_is_one_line_and_a_count(
    start_broker: StartBroker, certificates: Certificates
) -> None:
    tls = f'certificate = "{certificates.certificate}"\nkey = "{certificates.key}"\n'
    broker = start_broker(f"[[listeners]]\nport = 0\n[listeners.tls]\n{tls}")

    flood(broker.port_of("mqtts:"), b"GET / HTTP/1.1\r\n\r\n")

    broker.wait_logged("failed: http request")
    assert len(lines(broker, "TLS handshake with 127.0.0.1:")) == 1
    broker.wait_logged("failed: http request (19 times in 10 s)", 20.0)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"GET /other HTTP/1.1\r\n", "path '/other' is not that of the listener"),
        (
            b"GET /mqtt HTTP/1.1\r\nOrigin: https://bad.example\r\n",
            "origin https://bad.example is not in the listener's origins",
        ),
    ],
)
def test_a_flood_of_web_pages_that_are_refused_is_one_line(
    start_broker: StartBroker, head: bytes, reason: str
) -> None:
    broker = start_broker('[[listeners]]\nname = "web"\nport = 0\nkind = "websocket"\n')
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    rest = b"Host: x\r\n" + upgrade + b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"

    flood(broker.port_of("ws:"), head + rest)

    broker.wait_logged(f"on web: {reason}")
    assert len(lines(broker, "refused 127.0.0.1:")) == 1


@pytest.mark.parametrize(
    ("name", "goodbye", "expected"),
    [
        ("polite", Disconnect(0), "disconnected: normally"),
        ("willing", Disconnect(4), r"disconnected: disconnect with will message \(0x04\)"),
        ("ended", None, "disconnected without DISCONNECT: the connection ended"),
    ],
)
def test_disconnects_are_logged_with_duration_and_reason(
    guarded: BrokerProcess, name: str, goodbye: Disconnect | None, expected: str
) -> None:
    with join(guarded.port, name) as peer:
        if goodbye is not None:
            peer.send(goodbye)
            assert peer.receive() is None

    guarded.wait_logged(f"'{name}' (127.0.0.1:")
    guarded.wait_logged(expected.partition("\\")[0])
    [line] = lines(guarded, f"'{name}'", "disconnected")
    assert re.search(rf"'{name}' \(127\.0\.0\.1:\d+\) after \d+\.\d s {expected}", line)


def test_a_reset_is_logged_with_what_the_system_says(guarded: BrokerProcess) -> None:
    with join(guarded.port, "reset") as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    guarded.wait_logged("'reset' (127.0.0.1:")
    guarded.wait_logged("reset by peer")


def test_what_the_broker_closes_is_logged_with_its_reason_code(guarded: BrokerProcess) -> None:
    with join(guarded.port, "twice") as first, join(guarded.port, "twice"):
        assert first.expect_disconnect(0x8E)

    [line] = lines(guarded, "closing 'twice'")
    assert re.search(r" after \d+\.\d s: client id 'twice' connected again \(0x8e\)", line)


# --- names of properties that are almost ours ----------------------------------------------


def test_a_near_miss_on_subscribe_is_granted_answered_and_logged(guarded: BrokerProcess) -> None:
    with join(guarded.port, "speller") as peer:
        suback = peer.subscribe("open/a", user_properties=[("deadlin", "1s"), ("note", "mine")])
        assert suback.reason_codes == [0]
        hint = "unknown property 'deadlin'; did you mean 'deadline'?"
        assert suback.properties.reason_string == hint
        guarded.wait_logged(f"subscription: {hint}")
        assert peer.subscribe("open/b", user_properties=[("note", "mine")]).properties.reason_string is None


@pytest.mark.parametrize("qos", [0, 1])
def test_a_near_miss_on_publish_is_delivered_and_logged_once(
    share_over: ShareOver, scheme: str, qos: int
) -> None:
    guarded = share_over(RULES)
    name = f"speller-{scheme}-{qos}"
    with join(guarded.port, name) as peer:
        peer.subscribe("open/near")
        answers: list[str] = []
        for _ in range(3):
            peer.publish("open/near", b"1", qos, user_properties=[("time-out", "1s"), ("colour", "red")])
            received = [peer.receive() for _ in range(1 + qos)]
            [message] = [packet for packet in received if isinstance(packet, Publish)]
            assert message.user_properties == (("time-out", "1s"), ("colour", "red"))
            answers += [packet.reason_string for packet in received if isinstance(packet, Ack)]

        guarded.wait_logged("message to 'open/near': unknown property 'time-out'; did you mean 'timeout'?")
    assert len(lines(guarded, f"'{name}'", "time-out")) == 1
    assert answers == [["unknown property 'time-out'; did you mean 'timeout'?", "", ""], []][qos == 0]
