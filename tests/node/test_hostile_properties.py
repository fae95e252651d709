"""User Properties of any kind are taken or refused, each with its answer, and nobody else notices."""

from __future__ import annotations

import random

from tests.conftest import ShareOver
from tests.peer import Peer, join, props

from timebound.wire.packets import Ack, Publish, Suback, Subscribe, SubscribeEntry, make_publish

NUMBERS = (
    *("0", "1", "-1", "+1", " 1", "1 ", "1.5", ".5", "1e400", "nan", "inf", "0x10", "1_000", "٣", "１"),
    *("", " ", "1000000000", "1000000001", "9" * 39, "9" * 5_000),
)
UNITS = ("", "ns", "ms", "s", "h", "d")
FILTERS = ("a", "#", "+/b", "a/#/b", "a/b+", "$share/g/a", "$share//a", "$SYS/#", "x" * 1_025, "/" * 64, "é")
WHERES = (
    "x = 1",
    "x LIKE '%a%'",
    "x =",
    "(" * 40,
    "x = y",
    "x / 0 = 1",
    "'",
    "x = " + "9" * 400,
    "x IS NULL",
)
TERMS = (
    "deadline",
    "price",
    "penalty",
    "within",
    "watchdog",
    "every",
    "keep",
    "ordered",
    "notify",
    "latency",
    "é",
    "",
)
FLOW = ("period", "rate", "burst", "size", "weight", "delay", "bogus")
TOPICS = ("a", "a/b", "$timebound/advertise/a", "$timebound/control/weight", "$timebound/link/me")
PAYLOADS = (
    b"",
    b"x",
    b'{"x": 1e400}',
    b"[" * 3_000,
    b"\xff",
    b"a 10",
    b"a +1",
    "a ٣".encode(),
    b'{"x": "a"}',
)
STEPS = 150


def correlation(chance: random.Random) -> str:
    parts = [chance.choice(FILTERS) for _ in range(chance.choice((1, 2, 62, 63)))]
    depth = chance.choice((1, 8, 9))
    return chance.choice(("all(", "any(")) * depth + ",".join(parts) + ")" * depth


def terms(chance: random.Random) -> list[tuple[str, str]]:
    found = [(chance.choice(TERMS), number(chance)) for _ in range(chance.randint(0, 3))]
    if chance.random() < 0.4:
        found.append(("where", chance.choice(WHERES)))
    if chance.random() < 0.4:
        found.append(("correlate", correlation(chance)))
    return found


def number(chance: random.Random) -> str:
    return chance.choice(NUMBERS) + chance.choice(UNITS)


def answered(peer: Peer, kind: type[Suback | Ack]) -> None:
    """Wait for an answer, and acknowledge nothing of what else comes."""
    while not isinstance(packet := peer.receive(), kind):
        assert isinstance(packet, Publish), packet


def test_every_packet_has_its_answer(share_over: ShareOver, scheme: str) -> None:
    broker = share_over('sys_interval = "0s"\n')
    chance = random.Random(scheme)
    with join(broker.port) as hostile, join(broker.port_of("mqtt:")) as bystander:
        bystander.subscribe("bystander", qos=1, user_properties=[("deadline", "1h")])
        for step in range(STEPS):
            entries = [SubscribeEntry(chance.choice(FILTERS), chance.randint(0, 2))]
            hostile.send(Subscribe(hostile.next_id(), entries, props(user_properties=terms(chance))))
            answered(hostile, Suback)
            flow = [(chance.choice((*FLOW, "timeout", "priority")), number(chance)) for _ in range(2)]
            hostile.send(
                make_publish(
                    chance.choice(TOPICS),
                    chance.choice(PAYLOADS),
                    chance.choice((1, 2)),
                    packet_id=hostile.next_id(),
                    properties=props(user_properties=flow),
                )
            )
            answered(hostile, Ack)
            if step % 50 == 0:
                bystander.send(Publish("bystander", b"%d" % step, 0))
                bystander.expect_publish("bystander", b"%d" % step)
