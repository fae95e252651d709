"""The life of a victim, which does all that a client can, beside a pair that has to notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.node.clients_in_memory import MakeClient, PlainClient
from tests.node.doubles import Build, House
from tests.peer import props

from timebound.config.limits import Limits
from timebound.core.values.access import AccessList
from timebound.units import SECOND
from timebound.wire.packets import (
    Ack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
    Will,
    make_publish,
)

VICTIM = "victim"


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


class Life:
    """The victim, and beside it a pair that has to notice nothing."""

    is_ordering = False  # a request of the writer is handled: none of it is the victim's

    def __init__(self, house: House, make_client: MakeClient = PlainClient) -> None:
        self.house = house
        self.make_client = make_client
        self.reader = PlainClient(house, "127.0.0.1")
        self.reader.send(Connect("reader"), Subscribe(1, [SubscribeEntry("pair/#", 1)], props()))
        self.writer = PlainClient(house, "127.0.0.1")
        self.writer.send(Connect("writer"))
        self.published = 0
        self.victims: list[PlainClient] = []
        self.refused: list[int] = []  # answers to the victim
        self.settle()
        for client in (self.reader, self.writer):
            client.packets()

    def settle(self) -> None:
        for _ in range(3):
            self.house.storage.finish()
            self.house.driver.turn()

    def send(self, client: PlainClient, *packets: Packet) -> None:
        client.send(*packets)
        self.settle()

    def step(self, *packets: Packet) -> None:
        """The victim says something, if it still can; then the pair exchanges a message."""
        victim = self.victims[-1]
        if not victim.transport.is_closed:
            self.send(victim, *packets)
            for packet in victim.packets():
                if isinstance(packet, Publish) and packet.qos == 1:
                    self.send(victim, Ack(4, packet.packet_id))
                elif isinstance(packet, (Ack, Suback)):
                    codes = [packet.reason_code] if isinstance(packet, Ack) else packet.reason_codes
                    self.refused += [code for code in codes if code >= 0x80]
        self.exchange()

    def exchange(self) -> None:
        self.published += 1
        self.send(self.writer, make_publish("pair/a", b"%d" % self.published, 1, False, self.published))
        heard = [one for one in self.reader.packets() if isinstance(one, Publish) and one.topic == "pair/a"]
        assert [one.payload for one in heard] == [b"%d" % self.published], "the reader noticed"
        self.send(self.reader, Ack(4, heard[-1].packet_id))
        answers = [one.packet_id for one in self.writer.packets() if isinstance(one, Ack)]
        assert answers == [self.published], "the writer noticed"

    def order(self, topic: str, payload: bytes) -> None:
        """The writer sends a request to the broker that concerns every client."""
        self.published += 1
        Life.is_ordering = True
        self.send(self.writer, make_publish(topic, payload, 1, False, self.published))
        Life.is_ordering = False
        answers = [one for one in self.writer.packets() if isinstance(one, Ack)]
        assert [(one.packet_id, one.reason_code) for one in answers] == [(self.published, 0)]
        self.exchange()

    def join(self, *, clean: bool = False, expiry_s: int = 60) -> None:
        will = Will("aside/will", b"", 0, properties=props(will_delay_interval=5))
        connect = Connect(VICTIM, 5, clean, will=will, properties=props(session_expiry_interval=expiry_s))
        victim = self.make_client(self.house, VICTIM)
        self.victims.append(victim)
        self.send(victim, connect)
        self.exchange()

    def babble(self) -> None:
        """The victim connects once more, and then speaks neither MQTT nor anything below it."""
        self.victims.append(self.make_client(self.house, VICTIM))
        self.victims[-1].protocol.data_received(b"GET / HTTP/1.1\r\n\r\n" * 10)
        self.settle()
        self.lose()

    def lose(self) -> None:
        """The transport of the victim's last connection goes."""
        self.victims[-1].lose()
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
    subscribe(life)
    share_with_the_pair(life)
    publish(life)
    ask(life)
    write_slowly(life)
    life.order("$timebound/control/strategy", b"worth")
    life.house.broker.set_access(AccessList([]), life.house.driver.now_ns())
    life.exchange()
    # Two at once, so that their messages go through the input queues.
    life.writer.protocol.data_received(b"")
    victim = life.victims[-1]
    if not victim.transport.is_closed:
        life.house.driver._is_scheduled = True
        victim.send(make_publish("victim/plain", BODY, 1, False, 50), Pingreq())
        life.writer.send(make_publish("aside", b""))
        life.settle()
        life.exchange()
    life.step(Unsubscribe(9, ["victim/plain"]))
    life.lose()
    life.exchange()
    life.wake(6)
    life.join()  # resumes what is in flight
    life.join()  # takes the session over
    life.step(Disconnect(0, terms()))
    life.lose()
    life.wake(100)
    life.join(clean=True, expiry_s=0)
    life.step(Subscribe(10, [SubscribeEntry("victim/plain", 1)], props()))
    life.lose()
    life.babble()


BODY = b'{"a": 2}'


def subscribe(life: Life) -> None:
    """Subscriptions of every kind, to messages of the victim's own."""
    life.step(Subscribe(1, [SubscribeEntry("victim/plain", 2), SubscribeEntry("pair/#", 1)], props()))
    life.step(Subscribe(2, [SubscribeEntry("victim/where", 1)], terms(("where", "a > 1"))))
    life.step(Subscribe(3, [SubscribeEntry("$share/g/victim/shared", 1)], terms(("where", "a > 1"))))
    life.step(Subscribe(4, [SubscribeEntry("victim/every", 0)], terms(("every", "1s"))))
    life.step(
        Subscribe(5, [SubscribeEntry("victim/#", 0)], terms(("correlate", "all(victim/both, victim/c)")))
    )
    life.step(
        Subscribe(6, [SubscribeEntry("victim/timed", 1)], terms(("deadline", "1s"), ("notify", "missed")))
    )
    life.step(Subscribe(7, [SubscribeEntry("victim/plain", 1)], props()))
    together = terms(("correlate", "all(victim/both, victim/c)"), ("watchdog", "1s"))
    life.step(Subscribe(8, [SubscribeEntry("$share/g/victim/+", 1)], together))
    # Its filter is so long that it waits for a part of the next turn.
    numbers = " OR ".join(f"a = {number}" for number in range(60))
    life.step(Subscribe(9, [SubscribeEntry("victim/long", 1)], terms(("where", numbers))))


def share_with_the_pair(life: Life) -> None:
    """Subscriptions of every kind, to the messages of the pair: with each, it exchanges some."""
    for entries in (
        (("where", "$topic = 'pair/a'"),),
        (("where", "a IS NULL"),),
        (("deadline", "1s"),),
        (("keep", "last"),),
        (("every", "1s"),),
        (("watchdog", "1s"),),
        (("correlate", "all(pair/a, pair/+)"),),
    ):
        life.step(Subscribe(60, [SubscribeEntry("pair/#", 1)], terms(*entries)))
        life.exchange()
        life.step(Subscribe(61, [SubscribeEntry("$share/g/pair/#", 1)], terms(*entries)))
        life.exchange()
        life.step(Unsubscribe(62, ["$share/g/pair/#"]))
    life.step(Subscribe(63, [SubscribeEntry("$share/g/pair/+", 1)], props()))
    # It stays behind when the victim goes, and the pair has to notice nothing then either.
    life.step(Subscribe(64, [SubscribeEntry("pair/#", 1)], terms(("deadline", "1s"))))


def publish(life: Life) -> None:
    for number, topic in enumerate(("plain", "where", "shared", "both", "c", "timed")):
        life.step(make_publish(f"victim/{topic}", BODY, 0))
        life.step(make_publish(f"victim/{topic}", BODY, 1, True, 20 + number))
    life.step(make_publish("victim/plain", BODY, 2, False, 30))
    life.step(Ack(6, 30))
    life.step(make_publish("victim/plain", b"", 1, True, 31))
    life.step(Pingreq())


def ask(life: Life) -> None:
    """Requests to the broker itself."""
    flow = "$timebound/advertise/victim/flow"
    life.step(make_publish("$timebound/control/bounds", b"", 1, False, 31))
    life.step(make_publish(flow, b"", 1, False, 32, terms(("period", "1s"), ("delay", "10s"))))
    life.step(make_publish("victim/flow", BODY, 0))
    life.step(make_publish(flow, b"", 1, False, 33, terms(("rate", "2"), ("burst", "3"))))
    life.step(make_publish(flow, b"", 1, False, 34))
    life.step(make_publish(flow, b"", 1, False, 35, terms(("period", "1s"))))
    life.step(make_publish("$timebound/control/weight", b"victim/# 3", 1, False, 36))
    life.step(make_publish("$timebound/control/weight", b"victim/# -", 1, False, 37))
    model = b'{"mean_s_per_kb": 0.001, "variance": 0}'
    life.step(make_publish("$timebound/link/victim", model, 1, False, 38))
    life.step(make_publish("$timebound/control/strategies", b"", 1, False, 39))
    life.step(make_publish("$timebound/control/strategy", b"ebpc 70", 1, False, 40))
    life.step(make_publish("$timebound/control/nothing", b"", 1, False, 41))


def write_slowly(life: Life) -> None:
    """The victim does not read for a while."""
    victim = life.victims[-1]
    if victim.connection._transport is not None:
        victim.protocol.pause_writing()
    for _ in range(3):
        life.step(make_publish("victim/timed", b"x" * 3_000, 1, False, 42))
    life.wake(1)
    if victim.connection._transport is not None:
        victim.protocol.resume_writing()
    life.settle()
    life.house.driver.patrol()
    life.exchange()


def check_after(life: Life) -> None:
    """What has to hold once every connection of the victim is gone."""
    for victim in life.victims:
        victim.lose()
    life.settle()
    life.wake(1_000)
    life.house.driver.patrol()
    life.exchange()
    house = life.house
    house.broker._check()
    assert set(house.driver.connections) == {life.reader.connection.number, life.writer.connection.number}
    assert house.driver.authenticated == 2
    assert house.broker.statistics().connected == 2
    assert house.broker.session(VICTIM) is None
    assert house.door._by_address == {"127.0.0.1": 2}


async def run_life(build: Build, make_client: MakeClient = PlainClient, turn_ns: int = 0) -> Life:
    house = build(Limits(), is_durable=True)
    house.driver.input.turn_ns = turn_ns or house.driver.input.turn_ns
    house.driver._loop = DirectLoop()
    house.driver.doors.append(house.door)
    life = Life(house, make_client)
    live(life)
    check_after(life)
    return life
