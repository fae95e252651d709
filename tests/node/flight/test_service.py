"""The service as its clients see it: a real broker process, a real Flight client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.conftest import BrokerProcess, Certificates, StartBroker
from tests.node.doubles import Build
from tests.peer import Peer, join

from timebound.config.limits import Limits
from timebound.config.storage import FlightConfig, JournalConfig
from timebound.config.tls import TlsConfig
from timebound.config.values import Config
from timebound.core.values.access import AccessList
from timebound.core.values.message import Message
from timebound.errors import ConfigError
from timebound.node.flight.publish import RowPublisher
from timebound.node.flight.service import ACTIONS, REQUEST_BYTES_MAX, FlightService
from timebound.node.journal.journals import Journals
from timebound.node.login.logins import Logins
from timebound.node.login.passwords import PasswordFile
from timebound.wire.packets import Ack

LISTENER = "[[listeners]]\nport = 0\n"
JOURNAL = '[[journals]]\nname = "all"\n'
SERVICE = "[flight]\nport = 0\n"
CONFIG = LISTENER + JOURNAL + SERVICE

Connect = Callable[..., "Client"]


class Client:
    """Requests as a program makes them, with a limit on every wait."""

    def __init__(self, broker: BrokerProcess, user: str = "", password: str = "", **tls: Any) -> None:
        self.broker = broker
        scheme = "grpc+tls" if tls else "grpc"
        self._flight = fl.connect(f"{scheme}://127.0.0.1:{broker.port_of(scheme + ':')}", **tls)
        basic = base64.b64encode(f"{user}:{password}".encode())
        headers = [(b"authorization", b"Basic " + basic)] if user else []
        self._options = fl.FlightCallOptions(timeout=20.0, headers=headers)

    def close(self) -> None:
        self._flight.close()

    def act(self, action_name: str, **request: object) -> Any:
        action = fl.Action(action_name, json.dumps(request).encode())
        [answer] = self._flight.do_action(action, self._options)
        return json.loads(answer.body.to_pybytes())

    def read(self, **request: object) -> list[dict[str, Any]]:
        ticket = fl.Ticket(json.dumps(request).encode())
        rows: list[dict[str, Any]] = self._flight.do_get(ticket, self._options).read_all().to_pylist()
        return rows

    def stage(self, rows: list[dict[str, Any]] | pa.Table, name: str = "") -> str:
        name = name or uuid.uuid4().hex
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
        descriptor = fl.FlightDescriptor.for_command(json.dumps({"stage": name}).encode())
        writer, _ = self._flight.do_put(descriptor, table.schema, self._options)
        with writer:
            writer.write_table(table)
        return name

    def infos(self) -> list[Any]:
        return list(self._flight.list_flights(options=self._options))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One broker for all tests that can share its journal."""
    broker = BrokerProcess(tmp_path_factory.mktemp("flight"), CONFIG)
    client = Client(broker)
    yield client
    client.close()
    broker.check()
    broker.stop()


@pytest.fixture
def connect() -> Iterator[Connect]:
    opened: list[Client] = []

    def open_client(broker: BrokerProcess, *login: str, **tls: Any) -> Client:
        client = Client(broker, *login, **tls)
        opened.append(client)
        return client

    yield open_client
    for client in opened:
        client.close()


def publish(peer: Peer, *topics: str) -> None:
    """Publish with QoS 1: once acknowledged, the journal has it."""
    for topic in topics:
        peer.publish(topic, topic.encode(), qos=1)
        assert peer.expect(Ack).reason_code < 0x80


def test_an_acknowledged_message_is_in_the_journal_and_survives_kill_and_restart(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(CONFIG)
    with join(broker.port) as peer:
        publish(peer, "a", "b")
    identity = connect(broker).act("find", topic="a")["identity"]
    broker.kill()

    again = start_broker(CONFIG, data=broker.data)
    with join(again.port) as peer:
        publish(peer, "c")
    client = connect(again)

    found = client.act("find", topic="#")
    rows = client.read(journal="all", identity=identity, start=0, end=3)
    assert (found["identity"], found["first"], found["next"]) == (identity, 0, 3)
    assert [(row["offset"], row["topic"], row["payload"]) for row in rows] == [
        (0, "a", b"a"),
        (1, "b", b"b"),
        (2, "c", b"c"),
    ]


def test_a_will_is_kept_and_a_refused_message_is_not(start_broker: StartBroker, connect: Connect) -> None:
    rules = '[[acl]]\nuser = "*"\nfilter = "open/#"\n'
    broker = start_broker(LISTENER + '[[journals]]\nname = "open"\nfilter = "open/#"\n' + SERVICE + rules)
    with join(broker.port) as peer:
        peer.publish("secret", b"", qos=0)
        publish(peer, "open/a")

    rows = connect(broker).read(journal="open", start=0, end=1, topic="open/#")

    assert [row["topic"] for row in rows] == ["open/a"]


def test_rows_are_chosen_at_the_broker(service: Client) -> None:
    start = service.act("find")["next"]
    with join(service.broker.port) as peer:
        for value in range(5):
            peer.publish(f"plant/{value % 2}", b'{"v": %d}' % value, qos=1)
            peer.expect(Ack)

    def found(**request: object) -> list[int]:
        rows = service.read(journal="all", start=start, end=start + 5, **request)
        return [row["offset"] - start for row in rows]

    assert found(topic="plant/1") == [1, 3]
    assert found(where="v >= 3") == [3, 4]
    assert found(topic="plant/0", where="v > 0", comparisons=[["offset", "<", start + 4]]) == [2]
    assert service.read(journal="all", start=start, end=start + 1, columns=["topic"]) == [
        {"offset": start, "topic": "plant/0", "gap": None}
    ]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"journal": "x"}, "unknown journal 'x'; journals: all"),
        ({"end": 99_999}, "offsets 0 to 99999 are not in journal 'all', which ends at [0-9]+"),
        ({"start": 1}, "offsets 1 to 0 are not in journal"),
        ({"start": "zero"}, "'start' must be a whole number, not 'zero'"),
        ({"identity": "other"}, "was recreated"),
        ({"where": "v >"}, "expected a value at character 4"),
        ({"topic": "a/#/b"}, "has '#' before its last level"),
        ({"columns": ["colour"]}, "unknown column 'colour'"),
        ({"comparisons": [["qos", "=", "x"]]}, "cannot be compared with 'x'"),
        ({"comparisons": ["qos"]}, "'qos' is not a comparison"),
    ],
)
def test_a_wrong_request_is_explained(service: Client, request_: dict[str, object], expected: str) -> None:
    with pytest.raises(fl.FlightServerError, match=expected) as caught:
        service.read(**{"journal": "all", "start": 0, "end": 0, **request_})

    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "request_", "expected"),
    [
        ("dance", {}, "unknown action 'dance'"),
        ("find", {"topic": "$SYS/#"}, "no journal has all of '\\$SYS/#'; journals: all \\(#\\)"),
        ("find", {"kind": "trace"}, "no journal has all of the trace; journals: none"),
        ("find", {"journal": "all", "kind": "trace"}, "journal 'all' has messages"),
        ("publish", {"query": "q", "batch": 0, "staged": ["../x"]}, "is not a valid name"),
        (
            "publish",
            {"query": "q", "batch": 0, "staged": ["0" * 32]},
            "is not staged, or was removed after 6 h",
        ),
        ("publish", {"query": "", "batch": 0}, "'query' must be a text"),
        ("publish", {"query": "q" * 300, "batch": 0}, "longer than 256 characters"),
    ],
)
def test_a_wrong_action_is_explained(
    service: Client, kind: str, request_: dict[str, object], expected: str
) -> None:
    with pytest.raises(fl.FlightServerError, match=expected):
        service.act(kind, **request_)


def test_flight_tools_find_the_journals(service: Client) -> None:
    [info] = service.infos()

    assert info.descriptor.path == [b"all"]
    assert info.schema.names[0] == "offset"
    assert json.loads(info.endpoints[0].ticket.ticket)["journal"] == "all"


def test_users_need_a_password_and_rights(
    start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    users = PasswordFile(tmp_path / "users.txt")
    users.set("ann", "secret")
    users.save()
    config = (
        CONFIG
        + "allow_anonymous = false\n"
        + f'[security]\npassword_file = "{users.path}"\n'
        + '[[acl]]\nuser = "ann"\nfilter = "plant/#"\n'
        + '[[acl]]\nuser = ""\nfilter = "plant/#"\n'
    )
    broker = start_broker(config)
    with join(broker.port) as peer:
        publish(peer, "plant/1")

    for login in ([], ["ann", "wrong"], ["bob", "secret"]):
        with pytest.raises(fl.FlightUnauthenticatedError):
            connect(broker, *login).act("journals")
    ann = connect(broker, "ann", "secret")
    assert ann.act("journals") == []  # she may not read everything it keeps
    with pytest.raises(fl.FlightUnauthorizedError, match="subscribing to '#'"):
        ann.read(journal="all", start=0, end=1)
    assert len(ann.read(journal="all", start=0, end=1, topic="plant/+")) == 1
    ann.stage([{"topic": "plant/2", "payload": b""}])
    with pytest.raises(fl.FlightUnauthorizedError, match="row 1: publishing to 'other'"):
        ann.stage([{"topic": "plant/2", "payload": b""}, {"topic": "other", "payload": b""}])


def test_rights_that_changed_since_rows_were_staged_count_when_they_are_published(
    start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("allow anyone all #\n")
    broker = start_broker(CONFIG + f'[security]\nacl_file = "{rules}"\n')
    client = connect(broker)
    allowed, forbidden = (client.stage([{"topic": topic, "payload": b""}]) for topic in ("a", "b"))

    rules.write_text("deny anyone publish b\nallow anyone all #\n")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_logged("reloaded access rules")

    assert client.act("publish", query="q", batch=0, staged=[allowed])["published"] == 1
    with pytest.raises(fl.FlightUnauthorizedError, match="row 0: publishing to 'b' is not allowed"):
        client.act("publish", query="q", batch=1, staged=[forbidden])


def test_tls_is_offered_with_the_certificate_of_the_configuration(
    start_broker: StartBroker, connect: Connect, certificates: Certificates
) -> None:
    tls = f'[flight.tls]\ncertificate = "{certificates.certificate}"\nkey = "{certificates.key}"\n'
    broker = start_broker(CONFIG + tls)

    client = connect(broker, tls_root_certs=certificates.ca.read_bytes())

    assert client.act("journals")[0]["journal"] == "all"


def test_staged_rows_are_published_once(service: Client) -> None:
    start = service.act("find")["next"]
    rows = [
        {"topic": "out/1", "payload": b"one", "qos": 1, "retain": True, "timeout": "5s"},
        {"topic": "out/2", "payload": None, "qos": None, "retain": None, "timeout": None},
    ]
    with join(service.broker.port) as peer:
        peer.subscribe("out/#", qos=1)

        answers = [
            service.act("publish", query="once", batch=batch, staged=[service.stage(rows)])
            for batch in (0, 0, 1, 0)
        ]

        received = [
            peer.expect_publish(topic, payload) for topic, payload in [("out/1", b"one"), ("out/2", b"")] * 2
        ]
        peer.expect_silence()
    assert [answer["published"] for answer in answers] == [2, 0, 2, 0]
    assert received[0].user_properties == (("timeout", "5s"),)
    kept = service.read(journal="all", start=start, end=start + 4)
    assert [row["topic"] for row in kept] == ["out/1", "out/2"] * 2
    assert not list((service.broker.data / "flight").glob("*.arrow"))


def test_what_was_published_is_known_after_a_kill(start_broker: StartBroker, connect: Connect) -> None:
    rows = [{"topic": "t", "payload": b""}]
    broker = start_broker(CONFIG)
    client = connect(broker)
    client.act("publish", query="q", batch=7, staged=[client.stage(rows)])
    waiting = client.stage(rows)
    broker.kill()

    client = connect(start_broker(CONFIG, data=broker.data))
    again = client.act("publish", query="q", batch=7, staged=[client.stage(rows)])
    staged_before = client.act("publish", query="q", batch=8, staged=[waiting])

    assert (again["published"], staged_before["published"]) == (0, 1)
    assert client.act("find")["next"] == 2


def test_many_rows_are_published_in_order(service: Client) -> None:
    start = service.act("find")["next"]
    count = 5_000
    table = pa.table({"topic": [f"t/{number}" for number in range(count)], "payload": [b"x"] * count})

    service.act(
        "publish",
        query="many",
        batch=0,
        staged=[service.stage(table.slice(0, 2500)), service.stage(table.slice(2500))],
    )

    kept = service.read(journal="all", start=start, end=start + count, columns=["topic"])
    assert [row["topic"] for row in kept] == [f"t/{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"topic": "t"}], "column 'payload' is missing"),
        ([{"topic": "t", "payload": b"", "colour": 1}], "unknown column 'colour'"),
        ([{"topic": None, "payload": b""}], "row 0: topic is null"),
        ([{"topic": "a/#", "payload": b""}], "row 0: topic 'a/#' has a wildcard"),
        ([{"topic": "", "payload": b""}], "row 0: topic is empty"),
        ([{"topic": "t", "payload": b"", "qos": 3}], "qos 3 is not 0, 1 or 2"),
        ([{"topic": "t", "payload": b"", "timeout": "soon"}], "property 'timeout'"),
        ([{"topic": "t", "payload": b"x" * 2_000_000}], "packet_size_max is 1048576"),
        ([{"topic": "t", "payload": 5}], "column has a wrong type"),
        ([{"topic": "$timebound/control/strategy", "payload": b""}], "is a topic of the broker's own"),
        ([{"topic": "$timebound/drops/a", "payload": b""}], "row 0: '\\$timebound/drops/a' is a topic of"),
        ([{"topic": "$timebound/missed/a", "payload": b""}], "expected one of \\$timebound/link/"),
        ([{"topic": "$timebound/watchdog", "payload": b""}], "is a topic of the broker's own"),
        ([{"topic": "$timebound/every", "payload": b""}], "is a topic of the broker's own"),
        ([{"topic": "$timebound/mesh/news", "payload": b""}], "is a topic of the broker's own"),
        ([{"topic": "$SYS/broker/version", "payload": b""}], "is a topic of the broker's own"),
        ([{"topic": "t" * 2000, "payload": b""}], "topic_length_max is 1024"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_published_is_refused_when_it_is_staged(
    service: Client, rows: list[dict[str, Any]], expected: str
) -> None:
    with pytest.raises(fl.FlightServerError, match=expected):
        service.stage(rows)


def test_what_is_staged_has_a_limit_and_can_be_discarded(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(CONFIG + 'staged_bytes_max = "1MiB"\n')
    client = connect(broker)
    rows = [{"topic": "t", "payload": bytes(700_000)}]
    name = client.stage(rows)

    with pytest.raises(fl.FlightServerError, match="staged_bytes_max is 1048576"):
        client.stage(rows)
    staged = [path.stem for path in (broker.data / "flight").glob("*.arrow")]
    discarded = client.act("discard", staged=staged)

    assert name in staged
    assert discarded == len(staged)
    client.stage(rows)


def test_journals_in_memory_are_refused(tmp_path: Path) -> None:
    import subprocess
    import sys

    config = tmp_path / "timebound.toml"
    config.write_text(CONFIG)

    ended = subprocess.run(
        [sys.executable, "-m", "timebound", "serve", "--config", str(config), "--memory"],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert ended.returncode == 2
    assert "journals: journals require a data directory; omit --memory" in ended.stderr


def test_without_a_journal_the_broker_imports_no_arrow() -> None:
    import subprocess
    import sys

    code = "import sys; import timebound.node.serve; sys.exit('pyarrow' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0


@contextlib.contextmanager
def in_process(
    build: Build, folder: Path, flight: FlightConfig, node_name: str = "timebound"
) -> Iterator[tuple[FlightService, Journals]]:
    """A service of its own over one journal, without a broker process."""
    loop = asyncio.get_running_loop()
    journals = Journals.open([JournalConfig("all")], folder / "journals", fsync=False)
    publishing = RowPublisher(folder / "flight", build().driver, loop, Limits(), 1 << 20)
    logins = Logins(loop, 1)
    try:
        config = Config(node_name=node_name, flight=flight)
        service = FlightService(config, AccessList([]), None, logins, journals, publishing, lambda *_: None)
        try:
            yield service, journals
        finally:
            service.stop()
    finally:
        logins.shutdown()
        publishing.close()
        journals.close()


async def test_a_port_that_is_taken_is_named(build: Build, tmp_path: Path) -> None:
    with in_process(build, tmp_path / "first", FlightConfig(port=0)) as (service, _):
        taken = FlightConfig(port=service.port)
        with (
            pytest.raises(
                OSError, match=rf"cannot listen on .*:{service.port}: .*choose another flight\.port"
            ),
            in_process(build, tmp_path / "second", taken),
        ):
            pass


async def test_a_certificate_that_cannot_be_read_is_a_mistake_of_the_configuration(
    build: Build, tmp_path: Path
) -> None:
    tls = TlsConfig(tmp_path / "none.pem", tmp_path / "none.key")

    with (
        pytest.raises(ConfigError, match="certificate or key cannot be used") as caught,
        in_process(build, tmp_path, FlightConfig(port=0, tls=tls)),
    ):
        pass

    assert caught.value.key == "flight.tls"


async def test_a_service_serves_from_construction_to_stop(build: Build, tmp_path: Path) -> None:
    with in_process(build, tmp_path, FlightConfig(port=0)) as (service, journals):
        journals.write([Message("a/b", b"1", 1, False, 7, "p")])
        written = threading.Event()
        journals.sync(written.set)
        assert written.wait(10.0)
        port = service.port
        with fl.connect(f"grpc://127.0.0.1:{port}") as client:
            ticket = fl.Ticket(json.dumps({"journal": "all", "start": 0, "end": 1}).encode())
            read = await asyncio.to_thread(lambda: client.do_get(ticket).read_all().to_pylist())
            actions = await asyncio.to_thread(lambda: [action.type for action in client.list_actions()])

    assert [(row["offset"], row["topic"], row["payload"]) for row in read] == [(0, "a/b", b"1")]
    assert actions == list(ACTIONS)
    with fl.connect(f"grpc://127.0.0.1:{port}") as client, pytest.raises(fl.FlightUnavailableError):
        client.do_get(ticket, fl.FlightCallOptions(timeout=5.0))


@pytest.mark.parametrize("kind", ["find", "journals"])
async def test_journals_are_described_with_the_name_of_their_broker(
    build: Build, tmp_path: Path, kind: str
) -> None:
    with in_process(build, tmp_path, FlightConfig(port=0), node_name="b1") as (service, journals):
        [journal] = journals.journals
        with fl.connect(f"grpc://127.0.0.1:{service.port}") as client:
            [answer] = await asyncio.to_thread(lambda: list(client.do_action(fl.Action(kind, b"{}"))))

    described = json.loads(answer.body.to_pybytes())
    expected = {
        "journal": "all",
        "kind": "messages",
        "filter": "#",
        "identity": journal.log.identity,
        "first": 0,
        "next": 0,
        "node": "b1",
    }
    assert described == (expected if kind == "find" else [expected])


def test_a_request_may_be_as_long_as_its_limit_and_no_longer(service: Client) -> None:
    room = REQUEST_BYTES_MAX - len(json.dumps({"topic": "all/#", "more": ""}))

    assert service.act("find", topic="all/#", more="x" * room)["journal"] == "all"
    with pytest.raises(fl.FlightServerError, match=f"at most {REQUEST_BYTES_MAX} are allowed"):
        service.act("find", topic="all/#", more="x" * (room + 1))
