"""An error of the broker's own ends the client it struck, and nobody else notices.

The first part throws at every handler in turn: a client, the victim, goes through everything that a client
can do, once for each function that is called on the way, which raises for the victim alone. Beside it
a pair exchanges messages. Functions of compiled classes cannot be replaced: it runs on plain Python.
The second part is what real clients have done, over real sockets.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest
from tests.conftest import BrokerProcess, Certificates
from tests.node.clients_in_memory import MakeClient, PlainClient, client_maker
from tests.node.doubles import Build, RecordingTransport
from tests.node.victim_life import (
    VICTIM,
    DirectLoop,
    Life,
    run_life,
    terms,
)
from tests.peer import join, props

from timebound.config.limits import Limits
from timebound.core.broker import Broker
from timebound.core.correlation.timers import Timer
from timebound.core.input.publisher import InputMessage
from timebound.core.link.strategy.entry import Entry
from timebound.core.matching.index import SubscriptionIndex
from timebound.core.predicate.index.index import ContentIndex
from timebound.core.sessions.durability import Durability
from timebound.core.sessions.faults import Faults
from timebound.core.sessions.outbound import Outbound
from timebound.core.sessions.owed import Owed
from timebound.core.sessions.pressure import Pressure
from timebound.core.sessions.session import PUBACK, ReadyList, Reply, Session
from timebound.core.values.access import ALL, ANYONE, AccessList, AccessRule
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.node.clients.adapter import Adapter
from timebound.node.clients.output import ConnectionOutput
from timebound.node.clients.tls import TlsAdapter
from timebound.node.clients.websocket import WebSocketAdapter
from timebound.node.control import link_models
from timebound.node.control import requests as control
from timebound.node.driver import FAULTS_LOGGED_MAX
from timebound.node.links.meter import LinkMeter
from timebound.serving import inquiry, requests
from timebound.version import is_compiled
from timebound.wire.packets import (
    Ack,
    Connect,
    Disconnect,
    Publish,
    Subscribe,
    SubscribeEntry,
    make_publish,
)

# Where everything is thrown at that is called for the victim in the life that `live` gives it. Not the few
# functions that end a session which could not be ended in order: they are the last resort, and nothing
# stands behind them.
ROOMS = (
    "timebound.core",
    "timebound.node.clients",
    "timebound.node.control",
    "timebound.node.input",
    "timebound.node.links",
    "timebound.node.login",
    "timebound.node.notices",
    "timebound.outgoing",
    "timebound.serving",
    "timebound.translate",
)
# Only the victim sends requests to the broker itself, so every call is made for it.
OF_VICTIM_ALONE = (control, inquiry, link_models)
# Functions that hold a guard themselves: what they guard is thrown at instead.
GUARDS = {
    "_choose_member",
    "_deliver",
    "_try_on",
    "_try_resume",
    "connection_lost",
    "connection_made",
    "data_received",
    "continue_replay",
    "continue_request",
    "evaluate_each",
    "offer",
    "eof_received",
    "pass_through",
    "pause_writing",
    "publish_queued",
    "resume_writing",
    "take",
    "take_in",
}
# Serves all receivers of a message at once, so an error concerns none of them: only its publisher is ended.
GUARDS.add("Selected.add")
# If these never work, a client cannot be removed at all.
ENDING = {
    "_by_sequence",
    "_charge",
    "_described",
    "_disconnect",
    "_find_leaf",
    "_forget_matches",
    "_leave",
    "_path",
    "_prune",
    "_return_to_queue",
    "_sweep",
    "_vanish",
    "competing",
    "Door.leave",
    "disconnect",
    "members",
    "remove",
    "remove_subscription",
    "sequence_of",
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
    "queued_messages",
    "outstanding",
    "reconcile",
    "_pairs_owed",
    "session",
}

needs_plain = pytest.mark.skipif(is_compiled(), reason="functions of compiled classes cannot be replaced")


Owner = type[Any] | ModuleType
CALLED: dict[int, list[tuple[Owner, str]]] = {}  # by the length of a turn


class InjectedError(Exception):
    """Thrown where the test says."""


def concerns(value: object, depth: int = 0) -> bool:
    """Whether a call with this argument is made for the victim."""
    if isinstance(value, str):
        return value.startswith((VICTIM, f"$share/g/{VICTIM}"))
    if isinstance(value, Connect):
        return value.client_id == VICTIM
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
        return (value.session is not None and concerns(value.session)) or concerns(value.peer)
    if isinstance(value, requests.Request):
        return concerns(value._session)
    if isinstance(value, (Adapter, LinkMeter)):
        return concerns(value._transport)
    if isinstance(value, RecordingTransport):
        return value.host == VICTIM
    if isinstance(value, (list, tuple)) and depth < 2:
        return any(concerns(item, depth + 1) for item in value)
    return False


class Thrower:
    """Makes one function, of a class or of a module, raise where it is called for the victim."""

    def __init__(self, owner: Owner, name: str, *, after: bool, times: int) -> None:
        self.owner = owner
        self.name = name
        self.after = after
        self.left = times
        self.hits = 0
        self._original: Callable[..., Any] = owner.__dict__[name]
        self._holders: list[Owner] = [owner]
        if isinstance(owner, ModuleType):
            self._holders = [
                module
                for path, module in list(sys.modules.items())
                if path.startswith("timebound.") and vars(module).get(name) is self._original
            ]

    def __enter__(self) -> Thrower:
        original = self._original
        thrower = self
        is_any = self.owner in OF_VICTIM_ALONE

        def replaced(*args: object, **more: object) -> object:
            is_hit = (is_any and not Life.is_ordering) or any(concerns(value) for value in args)
            if is_hit:
                thrower.hits += 1
            if not is_hit or thrower.left == 0:
                return original(*args, **more)
            thrower.left -= 1
            if thrower.after:
                original(*args, **more)
            raise InjectedError(f"{thrower.owner.__name__}.{thrower.name}")

        for holder in self._holders:
            setattr(holder, self.name, replaced)
        return self

    def __exit__(self, *_: object) -> None:
        for holder in self._holders:
            setattr(holder, self.name, self._original)


def functions_of(owner: Owner) -> list[str]:
    """The names of functions that may be thrown at."""
    return [
        name
        for name, value in vars(owner).items()
        if isinstance(value, FunctionType)
        and value.__module__ == (owner.__name__ if isinstance(owner, ModuleType) else owner.__module__)
        and not name.startswith("__")
        and (LAST_RESORT | PLAIN | GUARDS).isdisjoint([name, f"{owner.__name__}.{name}"])
    ]


def modules() -> list[ModuleType]:
    """All modules of the rooms."""
    found = []
    for room in ROOMS:
        module = importlib.import_module(room)
        found.append(module)
        for one in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{room}."):
            found.append(importlib.import_module(one.name))
    return found


def owners_in(module: ModuleType) -> list[Owner]:
    """A module and the classes that it defines."""
    values = list(vars(module).values())
    return [
        module,
        *[one for one in values if isinstance(one, type) and one.__module__ == module.__name__],
    ]


async def functions_called(
    build: Build, owners: list[Owner], make_client: MakeClient, turn_ns: int
) -> list[tuple[Owner, str]]:
    """The functions of classes and modules that are called for the victim."""
    throwers = [
        Thrower(owner, name, after=False, times=0) for owner in owners for name in functions_of(owner)
    ]
    with contextlib.ExitStack() as stack:
        for thrower in throwers:
            stack.enter_context(thrower)
        await run_life(build, make_client, turn_ns)
    return [(thrower.owner, thrower.name) for thrower in throwers if thrower.hits]


@pytest.fixture(params=["plain", "websocket", "tls"])
def make_client(request: pytest.FixtureRequest, certificates: Certificates) -> MakeClient:
    return client_maker(request.param, certificates)


async def test_life_without_an_error_goes_well(build: Build, make_client: MakeClient) -> None:
    life = await run_life(build, make_client)

    assert life.house.broker.counters.faults == 0
    assert life.refused == [0x90], "of all, only the unknown control topic is wrong"


async def called_in(build: Build, module: ModuleType, turn_ns: int) -> list[tuple[Owner, str]]:
    """Those of a module and its classes; found for all modules at once."""
    if turn_ns not in CALLED:
        owners = [owner for one in modules() for owner in owners_in(one)]
        CALLED[turn_ns] = await functions_called(build, owners, PlainClient, turn_ns)
    owned = owners_in(module)
    return [(owner, name) for owner, name in CALLED[turn_ns] if owner in owned]


async def throw_everywhere(
    build: Build,
    targets: list[tuple[Owner, str]],
    make_client: MakeClient = PlainClient,
    turn_ns: int = 0,
) -> list[str]:
    """Live once for each way in which a function can fail; return what others noticed."""
    noticed: list[str] = []
    for owner, name in targets:
        # Before it has done anything, after it has done all, and every time.
        for after, times in ((False, 1), (True, 1), (False, -1)):
            if times < 0 and not ENDING.isdisjoint([name, f"{owner.__name__}.{name}"]):
                continue
            with Thrower(owner, name, after=after, times=times) as thrower:
                try:
                    life = await run_life(build, make_client, turn_ns)
                    # Some functions are called only on a busy machine.
                    assert life.house.broker.counters.faults > 0 or not thrower.hits, "it was not counted"
                except Exception as error:
                    noticed.append(f"{owner.__name__}.{name} (after={after}, times={times}): {error!r}"[:300])
    return noticed


@needs_plain
@pytest.mark.parametrize("turn_ns", [0, 1], ids=["idle", "busy"])
@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
async def test_error_in_any_function_ends_the_victim_alone(
    build: Build, caplog: pytest.LogCaptureFixture, module: ModuleType, turn_ns: int
) -> None:
    """On a busy machine every step of a long request has a turn of its own."""
    caplog.set_level(logging.CRITICAL, "timebound.node")

    targets = await called_in(build, module, turn_ns)
    noticed = await throw_everywhere(build, targets, turn_ns=turn_ns)

    assert not noticed, "\n".join(noticed)


@needs_plain
@pytest.mark.parametrize(
    ("owner", "kind"), [(WebSocketAdapter, "websocket"), (TlsAdapter, "tls")], ids=["websocket", "tls"]
)
async def test_error_in_an_adapter_ends_the_victim_alone(
    build: Build,
    caplog: pytest.LogCaptureFixture,
    certificates: Certificates,
    owner: type[Any],
    kind: str,
) -> None:
    caplog.set_level(logging.CRITICAL, "timebound.node")

    make_client = client_maker(kind, certificates)
    targets = await functions_called(build, [owner, Adapter], make_client, 0)
    noticed = await throw_everywhere(build, targets, make_client)

    assert not noticed, "\n".join(noticed)


def helped(build: Build, topic_filter: str, **more: str) -> tuple[Life, PlainClient]:
    """The victim and a helper, both members of a shared subscription."""
    house = build(Limits())
    house.driver._loop = DirectLoop()
    life = Life(house)
    life.join()
    helper = PlainClient(house, "127.0.0.1")
    helper.send(Connect("helper"))
    for client in (helper, life.victims[-1]):
        life.send(client, Subscribe(1, [SubscribeEntry(topic_filter)], terms(*more.items())))
        client.packets()
    return life, helper


@needs_plain
async def test_another_member_gets_what_an_error_keeps_from_the_victim(build: Build) -> None:
    life, helper = helped(build, "$share/g/s")

    with Thrower(Owed, "has_room_for", after=False, times=-1):
        for _ in range(3):
            life.send(life.writer, make_publish("s", b"x"))

    assert [type(packet) for packet in helper.packets()] == [Publish] * 3
    assert life.victims[-1].transport.is_closed
    assert not life.writer.transport.is_closed


@needs_plain
async def test_error_in_a_shared_correlation_ends_the_member_it_was_delivered_to(build: Build) -> None:
    life, helper = helped(build, "$share/g/s/+", correlate="all(s/a, s/b)")

    with Thrower(Outbound, "offer", after=False, times=-1) as thrower:
        for _ in range(4):
            life.send(life.writer, make_publish("s/a", b"x"), make_publish("s/b", b"x"))

    assert thrower.hits == 1, "it is ended before its next turn"
    assert not helper.transport.is_closed
    assert [type(packet) for packet in helper.packets()] == [Publish] * 6
    assert life.house.broker.counters.faults == 1


@needs_plain
def test_error_does_not_keep_acknowledgements_from_other_publishers() -> None:
    ready, faults = ReadyList(), Faults()
    pressure = Pressure(ready, Durability(ready, False), faults)
    sessions = [Session(name, "", AccessList([]).for_client("", name)) for name in ("a", VICTIM, "b")]
    for number, session in enumerate(sessions):
        session.connection = 1 + number
        pressure.acknowledge(session, Reply(PUBACK, 7), ["there"], 0)

    with Thrower(Pressure, "_release", after=False, times=1):
        pressure.relieve({})

    assert [len(session.replies) for session in sessions] == [1, 0, 1]
    assert [(fault.client_id, fault.connection) for fault in faults.take()] == [(VICTIM, 2)]


@needs_plain
async def test_error_does_not_keep_new_access_rules_from_other_clients(build: Build) -> None:
    life, helper = helped(build, "s")

    with Thrower(SubscriptionIndex, "remove", after=False, times=1):
        life.house.broker.set_access(
            AccessList([AccessRule(ANYONE, ALL, "nothing", True)]), life.house.driver.now_ns()
        )
        life.settle()

    session = life.house.broker.session("helper")
    assert session is not None
    assert not session.subscriptions
    assert (life.victims[-1].transport.is_closed, helper.transport.is_closed) == (True, False)


@needs_plain
async def test_error_is_logged_once_with_name_and_traceback_and_told_to_the_client(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    house = build(Limits())
    house.driver._loop = DirectLoop()
    life = Life(house)
    life.join()

    victim = life.victims[-1]
    with Thrower(Broker, "begin_subscribe", after=False, times=1):
        life.send(victim, Subscribe(1, [SubscribeEntry("victim/plain")], props()))

    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == [
        "internal error while serving 'victim': InjectedError('Broker.begin_subscribe')"
    ]
    assert errors[0].exc_info is not None
    [_, goodbye] = victim.packets()
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
def pair(broker_over: BrokerProcess) -> Iterator[Callable[[], None]]:
    """A subscriber and a publisher on the shared broker; called, they exchange a message."""
    with join(broker_over.port) as reader, join(broker_over.port) as writer:
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
    broker_over: BrokerProcess, pair: Callable[[], None], payload: bytes
) -> None:
    with join(broker_over.port) as peer:
        peer.publish("$timebound/link/x", payload, 1)

        answer = peer.expect(Ack)
        assert answer.reason_code == 0x83
        assert answer.reason_string.startswith("link model: ")
        peer.expect_silence()
    pair()


def test_clients_with_a_deadline_that_vanish_are_not_noticed(
    broker_over: BrokerProcess, pair: Callable[[], None]
) -> None:
    """Their input waits when their transport goes: what is ready for them then has no socket to go to."""
    with join(broker_over.port) as writer:
        for number in range(30):
            with join(broker_over.port) as leaving:
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


@needs_plain
async def test_error_in_the_index_of_filters_loses_no_message_and_is_counted(
    build: Build, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = build(Limits())
    house.driver._loop = DirectLoop()
    where = terms(("where", "a = 1"))
    _, transport = house.open(Connect("reader"), Subscribe(1, [SubscribeEntry("t")], where))
    writer, written = house.open(Connect("writer"))

    def fail(*_: object) -> list[object]:
        raise InjectedError("ContentIndex.match")

    monkeypatch.setattr(ContentIndex, "match", fail)
    house.send(writer, make_publish("t", b'{"a": 1}'))
    house.send(writer, make_publish("t", b'{"a": 2}'))
    house.driver.turn()

    assert [packet.payload for packet in transport.packets() if isinstance(packet, Publish)] == [b'{"a": 1}']
    assert (transport.is_closed, written.is_closed) == (False, False)
    assert house.broker.counters.faults == 2
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert (
        errors
        == ["internal error while serving client 'the content filters': InjectedError('ContentIndex.match')"]
        * 2
    )
