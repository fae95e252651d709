"""The live queries against a real broker: its trace journal in, models and alarms back, and used."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import BrokerProcess
from tests.peer import Peer, join, props
from tests.pipeline.brokers import free_port
from tests.pipeline.traces import SPARK_TIMEOUT_S

from timebound.pipeline.datasource.flight import FlightClient
from timebound.pipeline.datasource.options import parse_options
from timebound.pipeline.stream import publisher, read_live, start_alarms, start_links
from timebound.wire.packets import Publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]

WAIT_S = 200
CONFIG = """
node_name = "b1"
[[journals]]
name = "trace"
trace = true
[trace]
enabled = true
path = "trace"
[flight]
port = {port}
"""


@pytest.fixture(scope="module")
def server() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def broker(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = CONFIG.format(port=server.partition(":")[2])
    process = BrokerProcess(tmp_path_factory.mktemp("live"), config)
    yield process
    process.check()
    process.kill()


def wait_journalled(server: str, rows: int) -> None:
    """Wait until so many trace records can be read: they are written a little after the deliveries."""
    options = parse_options({"servers": server, "kind": "trace"})
    end = time.monotonic() + 20
    with FlightClient(server, options) as client:
        while client.find().next < rows:
            assert time.monotonic() < end, f"{rows} records were not journalled in 20 s"
            time.sleep(0.02)


def test_alarms_reach_whoever_listens(
    spark: SparkSession, broker: BrokerProcess, server: str, tmp_path: Path
) -> None:
    with (
        join(broker.port, "watch") as watch,
        join(broker.port, "sender") as sender,
        Peer(broker.port) as small,
    ):
        watch.subscribe("$timebound/alarm/#")
        small.connect("small", properties=props(maximum_packet_size=500))
        small.subscribe("t")
        for _ in range(30):
            sender.publish("t", b"x" * 1_000)  # too large for `small`: dropped
        wait_journalled(server, 30)
        options = {"servers": server}
        rows = read_live(spark, options)
        queries = [
            start_alarms(rows, tmp_path / "alarms", publisher(options), availableNow=True),
            start_links(rows, tmp_path / "links", publisher(options), availableNow=True),
        ]
        assert all(query.awaitTermination(WAIT_S) for query in queries)

        alarm = watch.expect(Publish)

    assert alarm.topic == "$timebound/alarm/b1/small"
    # The name that batch tables take from the trace files of the same broker.
    assert {folder.name for folder in broker.folder.glob("trace/date=*/*")} == {"node=b1"}
    told = json.loads(alarm.payload)
    assert (told["reason"], told["matched"], told["in_time"]) == ("in_time_share", 30, 0)


def test_a_link_starts_from_the_model_that_was_published(
    spark: SparkSession, broker: BrokerProcess, server: str
) -> None:
    model = json.dumps({"mean_s_per_kb": 100.0, "variance": 1.0}).encode()
    rows = [("$timebound/link/slow", bytearray(model), True)]
    told = spark.createDataFrame(rows, "topic string, payload binary, retain boolean")
    publisher({"servers": server})(told)
    terms = [("deadline", "5s")]

    with join(broker.port, "slow") as slow, join(broker.port, "plain") as plain:
        slow.subscribe("u", user_properties=terms)
        plain.subscribe("u", user_properties=terms)
        plain.publish("u", b"x" * 1_000)

        plain.expect(Publish)
        # At 100 s for a KB it could not arrive in time: it was never sent.
        slow.expect_silence()
