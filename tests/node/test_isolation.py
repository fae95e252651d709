"""An error of the broker's own ends the client it struck, and nobody else notices.

The first part throws at every handler in turn: a client, the victim, goes through everything that a client
can do, once for each function that is called on the way, which raises for the victim alone. Beside it
a pair exchanges messages. Functions of compiled classes cannot be replaced: it runs on plain Python.
The second part is what real clients have done, over real sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conftest import BrokerProcess
from tests.node.doubles import Build, House, RecordingTransport
from tests.peer import join, props

from timebound.config.limits import Limits
from timebound.core.account.account import Account
from timebound.core.broker import Broker
from timebound.core.correlation.timers import Timer
from timebound.core.distribution import Distribution
from timebound.core.input.scheduler import InputScheduler
from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.entry import Entry
from timebound.core.matching.index import SubscriptionIndex
from timebound.core.predicate.index.index import ContentIndex
from timebound.core.sessions.correlations import Correlations
from timebound.core.sessions.durability import Durability
from timebound.core.sessions.lifecycle import Lifecycle
from timebound.core.sessions.outbound import Outbound
from timebound.core.sessions.owed import Owed
from timebound.core.sessions.session import Session
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.node.clients.connection import Connection
from timebound.node.clients.outgoing import OutgoingEncoder
from timebound.node.clients.output import ConnectionOutput
from timebound.node.driver import FAULTS_LOGGED_MAX
from timebound.node.input.flows import Flows
from timebound.node.input.input import Input
from timebound.node.input.publisher import InputMessage
from timebound.units import SECOND
from timebound.version import is_compiled
from timebound.wire.packets import (
    Ack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
    Will,
    make_publish,
)

VICTIM = "victim"
# What is called for the victim in the life that `live` gives it. Not the few that end a session which
# could not be ended in order: they are the last resort, and nothing stands behind them.
TARGETS: list[type[Any]] = [
    Account,
    Broker,
    Connection,
    ConnectionOutput,
    ContentIndex,
    Correlations,
    Distribution,
    Durability,
    Flows,
    Input,
    InputScheduler,
    Lifecycle,
    LinkQueue,
    Outbound,
    OutgoingEncoder,
    Owed,
    SubscriptionIndex,
]
# Functions that hold a guard themselves: what they guard is thrown at instead.
GUARDS = {
    "connection_lost",
    "connection_made",
    "data_received",
    "continue_replay",
    "continue_request",
    "offer",
    "pass_through",
    "pause_writing",
    "publish_queued",
    "resume_writing",
    "take_in",
}
# If these never work, a client cannot be removed at all.
ENDING = {
    "_charge",
    "_described",
    "_disconnect",
    "_forget_matches",
    "_leave",
    "_path",
    "_prune",
    "_return_to_queue",
    "_vanish",
    "disconnect",
    "remove",
    "stop",
}
LAST_RESORT = {
    "_check",
    "_clear",
    "_forget",
    "_recount",
    "_settle",
    "abort",
    "cut",
    "failed",
    "fault",
    "forget",
    "mend",
    "name",
}
# Questions that are asked again and again to end a client; they change nothing.
PLAIN = {
    "transport",
    "has",
    "is_empty",
    "has_more",
    "now_ns",
    "pairs_owed",
    "outstanding",
    "reconcile",
    "_pairs_owed",
    "session",
}

needs_plain = pytest.mark.skipif(is_compiled(), reason="functions of compiled classes cannot be replaced")


class DirectLoop(asyncio.AbstractEventLoop):
    """Calls at once what comes from the storage's thread, and leaves turns and time to the test."""

    def call_soon(self, callback: Callable[..., object], *args: object, context: object = None) -> Any:
        return None

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: object = None
    ) -> Any:
        return asyncio.TimerHandle(0, callback, args, self)

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: object = None
    ) -> Any:
        callback(*args)

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: object) -> None:
        """Nothing is kept of it."""


class InjectedError(Exception):
    """Thrown where the test says."""


def concerns(value: object, depth: int = 0) -> bool:
    """Whether a call with this argument is made for the victim."""
    if isinstance(value, str):
        return value == VICTIM or value.startswith(f"{VICTIM}/")
    if isinstance(value, (Session, Subscription)):
        return value.client_id == VICTIM
    if isinstance(value, Message):
        return value.publisher == VICTIM
    if isinstance(value, Delivery):
        return value.subscription is not None and concerns(value.subscription)
    if isinstance(value, Entry):
        return concerns(value.item)
    if isinstance(value, InputMessage):
        return concerns(value.session)
    if isinstance(value, Timer):
        return concerns(value.owner)
    if isinstance(value, ConnectionOutput):
        return value.session is not None and concerns(value.session)
    if isinstance(value, (list, tuple)) and depth < 2:
        return any(concerns(item, depth + 1) for item in value)
    return False


class Thrower:
    """Makes one function raise where it is called for the victim."""

    def __init__(self, owner: type[Any], name: str, *, after: bool, times: int) -> None:
        self.owner = owner
        self.name = name
        self.after = after
        self.left = times
        self.hits = 0
        self._original: Callable[..., Any] = owner.__dict__[name]

    def __enter__(self) -> Thrower:
        original = self._original
        thrower = self

        def replaced(this: object, *args: object, **more: object) -> object:
            is_hit = concerns(this) or any(concerns(value) for value in args)
            if is_hit:
                thrower.hits += 1
            if not is_hit or thrower.left == 0:
                return original(this, *args, **more)
            thrower.left -= 1
            if thrower.after:
                original(this, *args, **more)
            raise InjectedError(f"{thrower.owner.__name__}.{thrower.name}")

        setattr(self.owner, self.name, replaced)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self.owner, self.name, self._original)


async def functions_called(build: Build, owner: type[Any]) -> list[str]:
    """The functions of a class that are called for the victim."""
    throwers = [
        Thrower(owner, name, after=False, times=0)
        for name, value in vars(owner).items()
        if callable(value) and not name.startswith("__") and name not in LAST_RESORT | PLAIN | GUARDS
    ]
    with contextlib.ExitStack() as stack:
        for thrower in throwers:
            stack.enter_context(thrower)
        await run_life(build)
    return [thrower.name for thrower in throwers if thrower.hits]


class Life:
    """The victim, and beside it a pair that has to notice nothing."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.reader, self.reader_side = house.open(Connect("reader"))
        self.send(self.reader, Subscribe(1, [SubscribeEntry("pair/#", 1)], props()))
        self.writer, self.writer_side = house.open(Connect("writer"))
        self.published = 0
        self.connections: list[tuple[Connection, RecordingTransport]] = []
        self.settle()
        for transport in (self.reader_side, self.writer_side):
            transport.written.clear()

    def settle(self) -> None:
        for _ in range(3):
            self.house.storage.finish()
            self.house.driver.turn()

    def send(self, connection: Connection, *packets: Packet) -> None:
        self.house.send(connection, *packets)
        self.settle()

    def step(self, *packets: Packet) -> None:
        """The victim says something, if it still can; then the pair exchanges a message."""
        connection, transport = self.connections[-1]
        if not transport.is_closed:
            self.send(connection, *packets)
            packets = transport.packets()
            transport.written.clear()
            for packet in packets:
                if isinstance(packet, Publish) and packet.qos == 1 and not transport.is_closed:
                    self.send(connection, Ack(4, packet.packet_id))
        self.exchange()

    def exchange(self) -> None:
        self.published += 1
        self.send(self.writer, make_publish("pair/a", b"%d" % self.published, 1, False, self.published))
        heard = [
            one for one in self.reader_side.packets() if isinstance(one, Publish) and one.topic == "pair/a"
        ]
        assert [one.payload for one in heard] == [b"%d" % self.published], "the reader noticed"
        self.send(self.reader, Ack(4, heard[-1].packet_id))
        answers = [one.packet_id for one in self.writer_side.packets() if isinstance(one, Ack)]
        assert answers == [self.published], "the writer noticed"
        for transport in (self.reader_side, self.writer_side):
            transport.written.clear()

    def join(self, *, clean: bool = False, expiry_s: int = 60) -> None:
        will = Will("aside/will", b"", 0, properties=props(will_delay_interval=5))
        connect = Connect(VICTIM, 5, clean, will=will, properties=props(session_expiry_interval=expiry_s))
        self.connections.append(self.house.open(connect))
        self.settle()
        self.exchange()

    def lose(self) -> None:
        """The transport of the victim's last connection goes."""
        connection, _ = self.connections[-1]
        if connection.transport() is not None:
            connection.connection_lost(None)
        self.settle()
        self.exchange()

    def wake(self, seconds: int) -> None:
        """Time passes: timers ring."""
        self.house.driver._timer_ns = self.house.driver.now_ns() + seconds * SECOND
        self.house.driver._wake()
        self.settle()
        self.exchange()


def terms(*entries: tuple[str, str]) -> Any:
    return props(user_properties=list(entries))


def live(life: Life) -> None:
    """Everything a client can do."""
    life.join()
    life.step(Subscribe(1, [SubscribeEntry("victim/plain", 2), SubscribeEntry("pair/#", 1)], props()))
    life.step(Subscribe(2, [SubscribeEntry("victim/where", 1)], terms(("where", "a > 1"))))
    life.step(Subscribe(3, [SubscribeEntry("$share/g/victim/shared", 1)], terms(("where", "a > 1"))))
    life.step(Subscribe(4, [SubscribeEntry("victim/every", 0)], terms(("every", "1s"))))
    life.step(
        Subscribe(5, [SubscribeEntry("victim/both", 0)], terms(("correlate", "victim/both & victim/c")))
    )
    life.step(
        Subscribe(6, [SubscribeEntry("victim/timed", 1)], terms(("deadline", "1s"), ("notify", "missed")))
    )
    life.step(Subscribe(7, [SubscribeEntry("victim/plain", 1)], props()))
    body = b'{"a": 2}'
    for number, topic in enumerate(("plain", "where", "shared", "both", "timed")):
        life.step(make_publish(f"victim/{topic}", body, 0))
        life.step(make_publish(f"victim/{topic}", body, 1, True, 20 + number))
    life.step(make_publish("victim/plain", body, 2, False, 30))
    life.step(Ack(6, 30))
    life.step(make_publish("$timebound/control/bounds", b"", 1, False, 31))
    life.step(make_publish("$timebound/advertise/victim/flow", b"", 1, False, 32, terms(("period", "1s"))))
    life.step(make_publish("victim/flow", body, 0))
    life.step(Pingreq())
    connection, _ = life.connections[-1]
    connection.pause_writing()
    for _ in range(3):
        life.step(make_publish("victim/timed", b"x" * 3_000, 1, False, 40))
    life.wake(1)
    if connection.transport() is not None:
        connection.resume_writing()
    life.settle()
    life.house.driver.patrol()
    life.exchange()
    # Two at once, so that their messages go through the input queues.
    life.writer.data_received(b"")
    if connection.transport() is not None and not life.connections[-1][1].is_closed:
        life.house.driver._is_scheduled = True
        life.house.send(connection, make_publish("victim/plain", body, 1, False, 50), Pingreq())
        life.house.send(life.writer, make_publish("aside", b""))
        life.settle()
        life.exchange()
    life.step(Unsubscribe(8, ["victim/plain"]))
    life.lose()
    life.exchange()
    life.wake(6)
    life.join()  # resumes what is in flight
    life.join()  # takes the session over
    life.step(Disconnect(0, terms()))
    life.lose()
    life.wake(100)
    life.join(clean=True, expiry_s=0)
    life.step(Subscribe(9, [SubscribeEntry("victim/plain", 1)], props()))
    life.lose()


def check_after(life: Life) -> None:
    """What has to hold once every connection of the victim is gone."""
    for connection, _ in life.connections:
        if connection.transport() is not None:
            connection.connection_lost(None)
    life.settle()
    life.wake(1_000)
    life.house.driver.patrol()
    life.exchange()
    house = life.house
    house.broker._check()
    assert set(house.driver.connections) == {life.reader.number, life.writer.number}
    assert house.driver.authenticated == 2
    assert house.broker.statistics().connected == 2
    assert house.broker.session(VICTIM) is None
    assert house.door._by_address == {"127.0.0.1": 2}


async def run_life(build: Build) -> Life:
    house = build(Limits(), is_durable=True)
    house.driver._loop = DirectLoop()
    life = Life(house)
    live(life)
    check_after(life)
    return life


async def test_life_without_an_error_goes_well(build: Build) -> None:
    life = await run_life(build)

    assert life.house.broker.counters.faults == 0


@needs_plain
@pytest.mark.parametrize("owner", TARGETS, ids=lambda owner: owner.__name__)
async def test_error_in_any_function_ends_the_victim_alone(
    build: Build, caplog: pytest.LogCaptureFixture, owner: type[Any]
) -> None:
    caplog.set_level(logging.CRITICAL, "timebound.node")
    faults: list[str] = []
    for name in await functions_called(build, owner):
        # Before it has done anything, after it has done all, and every time.
        for after, times in ((False, 1), (True, 1), (False, -1)):
            if times < 0 and name in ENDING:
                continue
            with Thrower(owner, name, after=after, times=times):
                try:
                    life = await run_life(build)
                    assert life.house.broker.counters.faults > 0, "it was not counted"
                except Exception as error:
                    faults.append(f"{owner.__name__}.{name} (after={after}, times={times}): {error!r}"[:300])

    assert not faults, "\n".join(faults)


@needs_plain
async def test_error_is_logged_once_with_name_and_traceback_and_told_to_the_client(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    house = build(Limits())
    house.driver._loop = DirectLoop()
    life = Life(house)
    life.join()

    connection, transport = life.connections[-1]
    with Thrower(Broker, "begin_subscribe", after=False, times=1):
        life.send(connection, Subscribe(1, [SubscribeEntry("victim/plain")], props()))

    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == [
        "internal error while serving 'victim': InjectedError('Broker.begin_subscribe')"
    ]
    assert errors[0].exc_info is not None
    [_, goodbye] = transport.packets()
    assert isinstance(goodbye, Disconnect)
    assert (goodbye.reason_code, goodbye.properties.reason_string) == (0x80, "internal error")
    assert life.house.broker.statistics().faults == 1


@needs_plain
async def test_error_that_comes_back_is_not_logged_for_ever(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    house = build(Limits())
    for _ in range(FAULTS_LOGGED_MAX + 5):
        house.driver.fault("a turn", InjectedError("again"))

    house.driver.patrol()

    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == FAULTS_LOGGED_MAX + 1
    assert errors[-1] == "5 more internal errors"
    assert house.broker.counters.faults == FAULTS_LOGGED_MAX + 5


@pytest.fixture
def pair(broker: BrokerProcess) -> Iterator[Callable[[], None]]:
    """A subscriber and a publisher on the shared broker; called, they exchange a message."""
    with join(broker.port) as reader, join(broker.port) as writer:
        reader.subscribe("isolation/pair", qos=1)

        def exchange() -> None:
            writer.publish("isolation/pair", b"x", 1)
            packet = reader.expect_publish("isolation/pair", b"x")
            reader.send(Ack(4, packet.packet_id))
            assert writer.expect(Ack).reason_code == 0

        yield exchange
        exchange()


@pytest.mark.parametrize(
    "payload",
    [
        b'{"mean_s_per_kb": 1%s, "variance": 0}' % (b"0" * 400),
        b'{"mean_s_per_kb": 0.1, "variance": -1%s}' % (b"0" * 4_000),
        b'{"mean_s_per_kb": 1e999, "variance": 0}',
        b"[" * 100_000,
        b'{"mean_s_per_kb": 0.1, "variance": 0, "more": %s' % (b"[" * 100_000),
        b'{"a":' * 50_000,
        b"\xff\xfe",
    ],
    ids=["huge", "huge-negative", "infinite", "deep", "deep-beside", "deep-objects", "no-text"],
)
def test_link_model_that_cannot_be_read_is_refused(
    broker: BrokerProcess, pair: Callable[[], None], payload: bytes
) -> None:
    with join(broker.port) as peer:
        peer.publish("$timebound/link/x", payload, 1)

        answer = peer.expect(Ack)
        assert answer.reason_code == 0x83
        assert answer.reason_string.startswith("link model: ")
        peer.expect_silence()
    pair()


def test_clients_with_a_deadline_that_vanish_are_not_noticed(
    broker: BrokerProcess, pair: Callable[[], None]
) -> None:
    """Their input waits when their transport goes: what is ready for them then has no socket to go to."""
    with join(broker.port) as writer:
        for number in range(30):
            with join(broker.port) as leaving:
                leaving.subscribe("isolation/vanish", user_properties=[("deadline", "1s")])
                writer.send(*[make_publish("isolation/vanish", b"x" * 500)] * 50)
                leaving.send(*[make_publish("isolation/vanish", b"y" * 500)] * 50)
            if number % 10 == 0:
                pair()
        writer.expect_silence()


async def test_nothing_counts_as_sent_to_a_client_that_has_vanished(build: Build) -> None:
    house = build(Limits())
    house.driver._loop = DirectLoop()
    subscribe = Subscribe(1, [SubscribeEntry("a")], terms(("deadline", "5s")))
    leaving, transport = house.open(Connect("leaving"), subscribe)
    house.driver.turn()
    written = len(transport.written)
    # What it has said still waits to be taken in, so its session stays until then.
    house.driver._is_scheduled = True
    house.send(leaving, make_publish("b", b""))
    leaving.connection_lost(None)
    now_ns = house.driver.now_ns()
    house.broker.route(Message("a", b"x", 0, False, now_ns), now_ns)

    leaving.flush()
    assert house.broker.account.in_time == 0
    house.driver.turn()

    assert len(transport.written) == written
    assert house.broker.account.dropped["disconnected"] == 1
    assert house.broker.counters.faults == 0
