"""What a broker's process takes while clients do not read or are away, and that it gives it back."""

from __future__ import annotations

import gc
import json
import socket
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import BrokerProcess, StartBroker
from tests.node.doubles import Build
from tests.node.victim_life import DirectLoop
from tests.peer import Peer, join, props

from timebound.core.sessions.session import PUBACK
from timebound.node import memory
from timebound.node.memory import (
    COLLECT_AFTER,
    COLLECT_EVERY,
    COLLECT_EVERY_LARGE,
    COLLECT_QUEUED_BYTES_MAX,
    NEVER,
    RELEASE_AFTER,
    RELEASE_BYTES_MIN,
    RELEASE_TIMES,
    SET_ASIDE_BYTES_MIN,
    MemoryKeeper,
    set_collecting,
)
from timebound.wire.codec import encode
from timebound.wire.packets import Ack, Connect, Publish, Suback, Subscribe, SubscribeEntry, make_publish

MEBIBYTE = 1024 * 1024
WRITE_BUFFER_BYTES = 64 * 1024
# Fills what the kernel takes for a reader that does not read: some MB.
FILLER = b"f" * 16_000
TIMEOUT_S = 120.0
# How long a broker may take to return memory after its clients have gone: a promise, whatever the machine.
RETURN_TIMEOUT_S = 60.0
WINDOW = 500  # messages that are not acknowledged yet
Terms = tuple[tuple[str, str], ...]
AWAY = props(session_expiry_interval=600)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def rss_bytes(broker: BrokerProcess) -> int:
    rollup = Path(f"/proc/{broker.process.pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Rss:"))


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def figure(broker: BrokerProcess, name: str) -> int:
    """A figure of `$SYS`, as it was published last."""
    with join(broker.port, "figures") as peer:
        peer.send(Subscribe(1, [SubscribeEntry(f"$SYS/broker/{name}", 0)]))
        peer.expect(Suback, TIMEOUT_S)
        return int(peer.expect(Publish, TIMEOUT_S).payload)


def stored_after(broker: BrokerProcess, published: int) -> int:
    """The messages that wait, of a time when this many had been published."""
    wait_until(lambda: figure(broker, "messages/received") >= published, "messages got lost")
    return figure(broker, "messages/stored")


def publish_all(publisher: Peer, payload: bytes, count: int, readers: int) -> None:
    """Publish with QoS 1 to one reader after the other, some hundred at a time, and wait for the answers."""
    for first in range(0, count, WINDOW):
        window = range(first, min(first + WINDOW, count))
        frames = [
            encode(make_publish(f"flood/{n % readers}", payload, 1, False, n % WINDOW + 1, props()), 5)
            for n in window
        ]
        publisher.send_bytes(b"".join(frames))
        for _ in window:
            publisher.expect(Ack, TIMEOUT_S)


def readers_of(port: int, count: int, terms: Terms) -> Iterator[Peer]:
    for number in range(count):
        peer = Peer(port)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        peer.connect(f"reader-{number}")
        peer.subscribe(f"flood/{number}", user_properties=list(terms))
        yield peer


def check_flood(broker: BrokerProcess, total_max: int, count: int, messages: int, terms: Terms) -> None:
    """Fill the queues of readers that do not read, and see what memory that takes, and for how long.

    The start is that of a broker which has served as many clients before: the event loop keeps some memory
    for each connection of the past.
    """
    with ExitStack() as stack:
        for reader in readers_of(broker.port, count, terms):
            stack.enter_context(reader)
        publish_all(stack.enter_context(join(broker.port, "flooding")), b"x" * 20, count, count)
    start_bytes = rss_bytes(broker)
    with ExitStack() as stack:
        for reader in readers_of(broker.port, count, terms):
            stack.enter_context(reader)
        publisher = stack.enter_context(join(broker.port, "flooding"))
        # First the kernel's buffers, so that afterwards everything waits in the broker.
        published = 0
        while stored_after(broker, published) < 10 * count:
            publish_all(publisher, FILLER, 20 * count, count)
            published += 20 * count

        peak_bytes = 0
        for _ in range(10):
            publish_all(publisher, b"x" * 20, messages // 10, count)
            peak_bytes = max(peak_bytes, rss_bytes(broker))
        wait_until(
            lambda: figure(broker, "dropped/queue_full") > 0, "nothing was dropped: the queues have room"
        )

    limits = total_max + count * WRITE_BUFFER_BYTES
    taken = (peak_bytes - start_bytes) / limits
    assert taken <= 1.5, f"{taken:.2f} of the limits"
    ended_s = time.monotonic()
    wait_until(lambda: figure(broker, "messages/stored") == 0, "the sessions did not end", RETURN_TIMEOUT_S)
    left_s = ended_s + RETURN_TIMEOUT_S - time.monotonic()
    wait_until(lambda: rss_bytes(broker) <= 1.2 * start_bytes, "memory was not given back", left_s)


@pytest.mark.parametrize("terms", [(), (("deadline", "24h"),)], ids=["untimed", "timed"])
def test_readers_that_do_not_read_cost_no_more_than_the_limits(
    start_broker: StartBroker, terms: Terms
) -> None:
    limits = 'queue_bytes_total_max = "8MiB"\nqueue_bytes_per_client_max = "2MiB"\n'
    broker = start_broker(f'sys_interval = "100ms"\n[limits]\npacket_size_max = "64KiB"\n{limits}')

    check_flood(broker, 8 * MEBIBYTE, 8, 30_000, terms)


@pytest.mark.slow
@pytest.mark.parametrize("terms", [(), (("deadline", "24h"),)], ids=["untimed", "timed"])
def test_many_readers_that_do_not_read_cost_no_more_than_the_default_limits(
    start_broker: StartBroker, terms: Terms
) -> None:
    broker = start_broker('sys_interval = "100ms"\n')

    check_flood(broker, 512 * MEBIBYTE, 120, 1_000_000, terms)


def wait_for_tick(peer: Peer, number: int) -> None:
    """Read and acknowledge ticks until this one or a later one has come."""
    count = 0
    while count < number:
        packet = peer.receive()
        if isinstance(packet, Publish):
            peer.send(Ack(PUBACK, packet.packet_id))
            count = json.loads(packet.payload)["count"]


def check_timers(broker: BrokerProcess, count: int, ticks: int) -> None:
    """Let timers of clients that are away tick, and see that one tick each is kept."""
    subscription = Subscribe(1, [SubscribeEntry("a", 1)], props(user_properties=[("every", "10ms")]))
    start_bytes = rss_bytes(broker)
    for number in range(count):
        with join(broker.port, f"away-{number}", properties=AWAY) as peer:
            peer.send(subscription)
            while not isinstance(peer.receive(), Suback):
                pass
    wait_until(lambda: figure(broker, "clients/connected") <= 1, "the clients did not leave")
    stored = figure(broker, "messages/stored")  # ticks of the time before they left
    with join(broker.port, "present") as present:
        present.send(subscription)
        wait_for_tick(present, ticks)

    assert figure(broker, "messages/stored") == stored
    assert rss_bytes(broker) - start_bytes <= 0.2 * start_bytes + count * 20_000  # a session costs some kB
    # SQLite writes its log back at 1,000 pages, 4 MB, and then uses it again.
    assert sum(file.stat().st_size for file in broker.data.glob("timebound.db*")) < 6 * MEBIBYTE
    with Peer(broker.port) as back:
        back.connect("away-0", clean=False, properties=AWAY)
        wait_for_tick(back, ticks // 2)


def test_timers_of_absent_clients_fill_neither_memory_nor_disk(start_broker: StartBroker) -> None:
    check_timers(start_broker('sys_interval = "100ms"\n'), 20, 100)


@pytest.mark.slow
def test_timers_of_many_absent_clients_fill_neither_memory_nor_disk(start_broker: StartBroker) -> None:
    check_timers(start_broker('sys_interval = "100ms"\n'), 200, 2_000)


@pytest.fixture
def few_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a broker; the process of the tests has many."""
    monkeypatch.setattr(memory, "COLLECT_BLOCKS_MAX", 1 << 40)


@pytest.mark.usefixtures("few_objects")
def test_all_is_collected_now_and_then_and_less_often_while_much_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected: list[int] = []
    monkeypatch.setattr(memory.gc, "collect", lambda: collected.append(1))
    small, large = MemoryKeeper(), MemoryKeeper()

    for _ in range(COLLECT_EVERY_LARGE - 1):
        small.patrol(0, 1, 0)
    assert len(collected) == (COLLECT_EVERY_LARGE - 1) // COLLECT_EVERY

    collected.clear()
    for _ in range(COLLECT_EVERY_LARGE):
        large.patrol(2 * COLLECT_QUEUED_BYTES_MAX, 1, 0)
    assert len(collected) == 1


def test_where_there_are_many_objects_all_is_collected_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    monkeypatch.setattr(memory.gc, "collect", lambda: collected.append(1))
    monkeypatch.setattr(memory, "COLLECT_BLOCKS_MAX", sys.getallocatedblocks() // 2)
    keeper = MemoryKeeper()

    for _ in range(COLLECT_EVERY_LARGE):
        keeper.patrol(0, 1, 0)

    assert len(collected) == 1


def test_after_a_flood_all_is_collected_once_however_many_objects_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected: list[int] = []
    monkeypatch.setattr(memory.gc, "collect", lambda: collected.append(1))
    monkeypatch.setattr(memory, "COLLECT_BLOCKS_MAX", 0)
    keeper = MemoryKeeper()
    keeper.patrol(10 * RELEASE_BYTES_MIN, 1, 0)

    for _ in range(RELEASE_AFTER):
        keeper.patrol(0, 1, 0)

    assert len(collected) == 1


@pytest.fixture
def collecting() -> Iterator[None]:
    """Collections as in a broker, of what this test makes."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    set_collecting()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.own = self


@pytest.mark.usefixtures("collecting")
def test_only_young_collections_run_by_themselves() -> None:
    assert gc.get_threshold() == (COLLECT_AFTER, NEVER, NEVER)


@pytest.mark.usefixtures("collecting", "few_objects")
def test_what_is_set_aside_is_found_by_the_next_full_collection() -> None:
    keeper = MemoryKeeper()
    ring = Ring()
    known = weakref.ref(ring)
    keeper.set_aside()
    del ring
    gc.collect()
    assert known() is not None

    for _ in range(COLLECT_EVERY):
        keeper.patrol(0, 1, 0)

    assert known() is None


@pytest.mark.usefixtures("collecting")
async def test_no_collection_visits_what_waits_in_full_queues(build: Build) -> None:
    """Each copy that comes takes the place of an older one, so nothing says that many are new."""
    visited: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            visited.append(len(gc.get_objects(generation=info["generation"])))

    house = build()
    house.driver._loop = DirectLoop()
    subscription = Subscribe(1, [SubscribeEntry("t")], props(user_properties=[("deadline", "24h")]))
    for number in range(4):
        reader, _ = house.open(Connect(f"reader-{number}"), subscription)
        reader.pause_writing()
    writer, _ = house.open(Connect("writer"))
    frames = [encode(make_publish("t", b"x" * 400), 5)] * 100
    gc.callbacks.append(note)
    try:
        while house.broker.account.dropped["queue_full"] < 60_000:
            writer.data_received(b"".join(frames))
            house.driver.turn()
    finally:
        gc.callbacks.remove(note)

    assert house.broker.queued_bytes() > SET_ASIDE_BYTES_MIN
    # Some visit what the first full queues have ranked.
    assert sum(visited) < 6 * COLLECT_AFTER


def test_memory_is_given_back_once_queues_have_emptied_by_much() -> None:
    done: list[str] = []
    keeper = MemoryKeeper(lambda: done.append("forget"))
    keeper._trim = lambda pad: done.append(f"trim {pad}") or 1
    peak_bytes = 10 * RELEASE_BYTES_MIN
    for queued_bytes in (0, peak_bytes, peak_bytes - 1):
        keeper.patrol(queued_bytes, 1, 0)
    for _ in range(RELEASE_AFTER - 1):
        keeper.patrol(peak_bytes - RELEASE_BYTES_MIN, 1, 0)
    keeper.patrol(peak_bytes, 1, 0)  # full again
    for _ in range(RELEASE_AFTER - 1):
        keeper.patrol(0, 1, 0)
    assert done == []

    keeper.patrol(0, 1, 0)
    assert done == ["forget", "trim 0"]

    for _ in range(2 * RELEASE_TIMES * RELEASE_AFTER):
        keeper.patrol(0, 1, 0)
    assert done == ["forget", "trim 0"] * RELEASE_TIMES
