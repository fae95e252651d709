"""The client of the service against a real broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipeline.brokers import JournalBroker, free_port

from timebound.errors import JournalError, JournalGap
from timebound.pipeline.datasource.flight import (
    FlightClient,
    JournalState,
    Range,
    check_gaps,
    journal_state,
    plain_text,
)
from timebound.pipeline.datasource.options import Options

COLUMNS = ["offset", "topic", "gap"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[JournalBroker]:
    process = JournalBroker(tmp_path / "broker")
    yield process
    process.kill()


def test_a_broker_is_named_by_its_answer_or_else_by_its_address() -> None:
    answer = {"journal": "all", "identity": "id", "first": 3, "next": 7}

    assert journal_state("a:1", {**answer, "node": "b1"}) == JournalState("a:1", "all", "id", 3, 7, "b1")
    # From a broker of an earlier version.
    assert journal_state("a:1", answer) == JournalState("a:1", "all", "id", 3, 7, "a:1")


def whole(client: FlightClient) -> Range:
    state = client.find()
    return Range(state.server, state.journal, state.identity, state.first, state.next, state.node)


def test_a_range_goes_on_over_a_kill_of_the_broker(broker: JournalBroker) -> None:
    broker.publish(f"t/{number}" for number in range(20_000))
    topics: list[str] = []
    with FlightClient(broker.server, Options((broker.server,))) as client:
        wanted = whole(client)
        batches = client.read(wanted, COLUMNS)
        topics += next(batches).column("topic").to_pylist()
        broker.kill()
        again = broker.again()
        for batch in batches:
            topics += batch.column("topic").to_pylist()

        assert whole(client) == wanted
    again.kill()
    assert topics == [f"t/{number}" for number in range(20_000)]


def test_a_broker_that_cannot_be_reached_is_named_when_the_time_is_over() -> None:
    server = f"127.0.0.1:{free_port()}"

    with (
        FlightClient(server, Options((server,), retry_timeout_s=0.3)) as client,
        pytest.raises(JournalError, match=f"broker {server} for 0.3 s: "),
    ):
        client.find()


def test_a_refusal_is_an_error_at_once(broker: JournalBroker) -> None:
    options = Options((broker.server,), journal="other", retry_timeout_s=3600.0)

    with (
        FlightClient(broker.server, options) as client,
        pytest.raises(
            JournalError, match=f"^broker {broker.server}: unknown journal 'other'; journals: all$"
        ),
    ):
        client.find()


def test_rows_are_staged_published_and_discarded(broker: JournalBroker) -> None:
    batch = pa.record_batch({"topic": ["a", "b"], "payload": [b"1", b"2"]})
    with FlightClient(broker.server, Options((broker.server,))) as client:
        first, second = client.stage([batch], batch.schema), client.stage([batch], batch.schema)
        published = client.publish("query", 0, [first])
        client.discard([second])

        assert published["published"] == 2
        assert whole(client).end == 2
        with pytest.raises(JournalError, match="is not staged"):
            client.publish("query", 1, [second])


def test_a_gap_is_refused_with_its_place() -> None:
    batch = pa.record_batch({"offset": [7, 8], "gap": pa.array([None, 5], pa.int64())})

    with pytest.raises(JournalGap, match="no longer holds 5 rows from offset 8 on") as caught:
        check_gaps(batch, Range("s:1", "all", "id", 0, 20, "b1"))

    assert (caught.value.offset, caught.value.count) == (8, 5)


def test_what_grpc_puts_around_a_text_is_left_out() -> None:
    error = Exception("it is wrong. Detail: Failed. gRPC client debug context: UNKNOWN:it is wrong")

    assert plain_text(error) == "it is wrong"
