"""What a Flight caller hears of a mistake and of a bug: words, no traceback and no path."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.conftest import BrokerProcess, StartBroker

from timebound.node.flight.answers import Answers

CONFIG = '[[listeners]]\nport = 0\n[[journals]]\nname = "all"\n[flight]\nport = 0\n'
ROWS = {"topic": ["a"], "payload": [b""]}
PROPERTIES = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
TICKET = {"journal": "all", "start": 0, "end": 0}

Call = Callable[["fl.FlightClient"], object]


class Noted:
    """Remembers who was refused what."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, subject: str, start: str, reason: str) -> None:
        self.lines.append(f"{start}: {reason}")


def call_options() -> Any:
    return fl.FlightCallOptions(timeout=20.0)


def client_of(broker: BrokerProcess) -> Any:
    return fl.connect(f"grpc://127.0.0.1:{broker.port_of('grpc:')}")


@pytest.fixture(scope="module")
def flight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    broker = BrokerProcess(tmp_path_factory.mktemp("answers"), CONFIG)
    client = client_of(broker)
    yield client
    client.close()
    broker.check()  # mistakes of callers are no bugs: no traceback in the log either
    broker.stop()


def act(kind: str, body: bytes) -> Call:
    return lambda client: list(client.do_action(fl.Action(kind, body), call_options()))


def get(**more: object) -> Call:
    ticket = fl.Ticket(json.dumps({**TICKET, **more}).encode())
    return lambda client: client.do_get(ticket, call_options()).read_all()


def put(table: pa.Table, command: bytes | None = None) -> Call:
    stage = json.dumps({"stage": uuid.uuid4().hex}).encode() if command is None else command

    def call(client: Any) -> None:
        writer, _ = client.do_put(fl.FlightDescriptor.for_command(stage), table.schema, call_options())
        with writer:
            writer.write_table(table)

    return call


def exchange(client: Any) -> None:
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_path("all"), call_options())
    with writer:
        writer.begin(pa.schema([("a", pa.int64())]))
        writer.done_writing()
        reader.read_all()


def with_properties(*properties: object) -> pa.Table:
    return pa.table({**ROWS, "properties": pa.array([list(properties)], PROPERTIES)})


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (act("publish", b'{"query": "q", "batch": 1, "staged": 5}'), "'staged' must be a list, not 5"),
        (act("discard", b'{"staged": null}'), "'staged' must be a list, not None"),
        (act("publish", b'{"query": "q", "batch": %s}' % (b"9" * 30)), "'batch' must be between 0 and"),
        (act("find", b"{"), "request is not a JSON object"),
        (act("find", b"[" * 100_000), "request is not a JSON object"),
        (act("find", b" " * 300_000), "at most 262144 are allowed"),
        (act("find", b'{"topic": "a\\u0000"}'), "has a null character"),
        (get(columns=5), "'columns' must be a list, not 5"),
        (get(columns={"a": 1}), "'columns' must be a list"),
        (get(comparisons=5), "'comparisons' must be a list"),
        (get(comparisons=[["qos", "=", {"a": 1}]]), "cannot be compared with"),
        (get(start=-1), "'start' must be between 0 and"),
        (put(pa.table(ROWS), b"{"), "request is not a JSON object"),
        (put(pa.table(ROWS), b"{}"), "'stage' must be a text, not None"),
        (put(pa.table([["a"], ["b"], [b""]], ["topic", "topic", "payload"])), "'topic' exists twice"),
        (put(with_properties(None)), "row 0: a property has no name or no value"),
        (put(with_properties({"name": None, "value": "1"})), "row 0: a property has no name or no value"),
        (put(with_properties({"name": "x" * 70_000, "value": "1"})), "string of 70000 bytes is too long"),
        (exchange, "do_exchange is not supported"),
        (
            lambda client: client.get_schema(fl.FlightDescriptor.for_path("all"), call_options()),
            "get_schema is not supported; get_flight_info returns the schema",
        ),
        (
            lambda client: client.get_flight_info(fl.FlightDescriptor.for_path("x"), call_options()),
            "unknown journal 'x'; journals: all",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_in_words(flight: Any, call: Call, expected: str) -> None:
    with pytest.raises((fl.FlightServerError, OSError)) as caught:  # OSError: so pyarrow tells of get_schema
        call(flight)

    text = str(caught.value)
    assert expected in text
    assert "Traceback" not in text
    assert ".py" not in text


def test_actions_are_told(flight: Any) -> None:
    actions = [action.type for action in flight.list_actions(call_options())]

    assert actions == ["journals", "find", "publish", "discard"]


def test_a_bug_is_answered_with_a_reference_to_the_log(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", CONFIG)
    client = client_of(broker)
    try:
        (broker.data / "flight").rename(broker.data / "elsewhere")
        with pytest.raises(fl.FlightInternalError) as caught:
            put(pa.table(ROWS))(client)

        text = str(caught.value)
        found = re.search("internal error, reference ([0-9a-f]{8})", text)
        assert found is not None
        assert str(tmp_path) not in text
        assert "Traceback" not in text
        broker.wait_logged(f"internal error {found.group(1)} in do_put")
        assert "FileNotFoundError" in broker.log()
    finally:
        client.close()
        broker.kill()


def test_refused_calls_are_logged(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG + '[[acl]]\nuser = "*"\nfilter = "open/#"\n')
    client = client_of(broker)
    with pytest.raises(fl.FlightUnauthorizedError):
        get()(client)
    with pytest.raises(fl.FlightUnauthorizedError):
        put(pa.table({"topic": ["secret/a"], "payload": [b""]}))(client)
    client.close()

    broker.wait_logged("refused do_get over Flight to ipv4:127.0.0.1:")
    broker.wait_logged("not_authorized: row 0: publishing to 'secret/a' is not allowed")


def test_rows_that_fail_while_they_are_sent_are_answered_too(caplog: pytest.LogCaptureFixture) -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise OSError(5, "cannot read", "/secret/path")

    made = Answers(Noted().note).rows("do_get", rows())

    assert next(made) == 1
    with pytest.raises(fl.FlightInternalError) as caught:
        next(made)
    assert "/secret/path" not in str(caught.value)
    assert "/secret/path" in caplog.text


def test_errors_of_flight_pass_and_refusals_are_noted() -> None:
    noted = Noted()
    answers = Answers(noted.note)

    with pytest.raises(fl.FlightUnauthorizedError), answers.to("do_get", "ann"):
        raise fl.FlightUnauthorizedError("not allowed")
    with pytest.raises(fl.FlightTimedOutError), answers.to("do_get", "ann"):
        raise fl.FlightTimedOutError("too late")

    assert noted.lines == ["refused do_get over Flight to ann: not allowed"]
