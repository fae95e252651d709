"""Fuzz the MQTT decoder: whatever a peer sends, it must return packets or set `error`.

    python fuzz/fuzz_decoder.py                      30 seconds, a new seed, which is printed
    python fuzz/fuzz_decoder.py --seed 7 --runs 10000
    python fuzz/fuzz_decoder.py --atheris [libFuzzer options]     guided by coverage, if installed

Each run feeds random bytes, or a good packet with some bytes changed, in random pieces, to the
decoder of a server and of a client. It fails if anything is raised, if pieces give another
result than the whole, if an error has no reason code of a refusal, or if an accepted packet
cannot be written and read again as the same packet.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time

from timebound.errors import ProtocolError
from timebound.wire import packet_types as types
from timebound.wire.codec import Decoder, encode, with_user_property
from timebound.wire.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
    Will,
)
from timebound.wire.properties import Properties
from timebound.wire.terms import parse_publish_terms, parse_subscribe_terms

PACKET_SIZE_MAX = 100_000  # small, so that a random length does not mean a long wait for nothing
# Bytes that mean something to the decoder: ends of ranges, packet types, property identifiers.
TELLING_BYTES = bytes([0, 1, 2, 3, 0x0B, 0x10, 0x1F, 0x23, 0x26, 0x30, 0x32, 0x7F, 0x80, 0x82, 0xC0, 0xFF])


class Finding(Exception):
    """The decoder did something it must not do."""


def seeds() -> list[bytes]:
    """Return good packets of every kind, in both versions."""
    rich = Properties()
    rich.session_expiry_interval = 60
    rich.receive_maximum = 10
    rich.user_properties = [("timeout", "250ms"), ("site", "7")]
    term = Properties()
    term.user_properties = [("where", "value > 90"), ("deadline", "250ms")]
    term.subscription_identifiers = [300]
    method = Properties()
    method.authentication_method = "SCRAM"
    reason = Properties()
    reason.reason_string = "because"
    user_property = with_user_property(b"", "timeout", "1s")
    packets: list[Packet] = [
        Connect("client", 5, True, 60, "user", b"secret", Will("will", b"gone", 1, True), rich),
        Connack(False, 0x87, reason),
        Publish("plant/7/temp", b"21.5", 0, passed_on=user_property),
        Publish("plant/7/temp", b"21.5", 1, True, True, 7, 3, 60, passed_on=user_property),
        Publish("plant/7/temp", bytes(300), 2, packet_id=9, subscription_identifiers=(1, 2)),
        *[Ack(kind, 5) for kind in range(types.PUBACK, types.PUBCOMP + 1)],
        Ack(types.PUBACK, 5, 0x87, "no"),
        Subscribe(3, [SubscribeEntry("a/#", 1), SubscribeEntry("$share/g/b", 2)], term),
        Suback(3, [1, 0x80]),
        Unsubscribe(4, ["a/#", "b"]),
        Unsuback(4, [0, 0x11]),
        Pingreq(),
        Disconnect(0x04, reason),
        Auth(0x18, method),
    ]
    found = [encode(packet, 5) for packet in packets]
    found += [encode(packet, 4) for packet in packets if not isinstance(packet, Auth | Connect)]
    return [*found, encode(Connect("old", 4, False, 10), 4)]


def mutated(stream: random.Random, good: list[bytes]) -> bytes:
    """Return random bytes, or some good packets with a few bytes changed, cut or repeated."""
    if stream.random() < 0.15:
        return stream.randbytes(stream.randrange(64))
    data = bytearray(b"".join(stream.choice(good) for _ in range(stream.randrange(1, 5))))
    for _ in range(stream.randrange(4)):
        position = stream.randrange(len(data) + 1)
        change = stream.randrange(4)
        if change == 0:
            del data[position : position + stream.randrange(1, 9)]
        elif change == 1:
            data[position:position] = stream.randbytes(stream.randrange(1, 5))
        elif position < len(data):
            data[position] = stream.choice(TELLING_BYTES) if change == 2 else stream.randrange(256)
    return bytes(data)


def feed(data: bytes, version: int, is_server: bool, cuts: list[int]) -> tuple[list[Packet], str]:
    decoder = Decoder(version, is_server=is_server, packet_size_max=PACKET_SIZE_MAX)
    packets: list[Packet] = []
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        packets += decoder.feed(data[start:stop])
    error = decoder.error
    if error is not None and not 0x81 <= error.reason_code <= 0xA2:
        raise Finding(f"error with reason code {error.reason_code:#x}: {error}")
    return packets, "" if error is None else f"{error.reason_code:#x} {error}"


def check(data: bytes, cuts: list[int]) -> int:
    """Feed the bytes to every kind of decoder; return how many packets were accepted."""
    accepted = 0
    for version, is_server in ((0, True), (5, True), (4, True), (5, False), (4, False)):
        packets, error = feed(data, version, is_server, [])
        if feed(data, version, is_server, cuts) != (packets, error):
            raise Finding(f"pieces cut at {cuts} give another result (version {version})")
        for packet in packets:
            check_packet(packet, version, is_server, packets)
        accepted += len(packets)
    return accepted


def check_packet(packet: Packet, version: int, is_server: bool, packets: list[Packet]) -> None:
    """Write the packet and read it again; read the product's own terms from it."""
    first = packets[0]
    if version == 0:
        version = 5 if isinstance(first, Connect) and first.protocol_version == 5 else 4
    start = 0 if isinstance(packet, Connect) else version
    again, error = feed(encode(packet, version), start, is_server, [])
    if again != [packet]:
        raise Finding(f"{packet!r} is read again as {again!r} {error}")
    try:
        if isinstance(packet, Publish):
            parse_publish_terms(packet.user_properties)
        elif isinstance(packet, Subscribe):
            parse_subscribe_terms(packet.properties.user_properties)
    except ProtocolError as refused:
        if refused.reason_code != 0x83:
            raise Finding(f"terms refused with {refused.reason_code:#x}") from refused


def run(seed: int, seconds: float, runs: int) -> int:
    stream = random.Random(seed)
    good = seeds()
    deadline = time.monotonic() + seconds
    done = accepted = 0
    print(f"seed {seed}, at most {seconds:g} s and {runs} runs", flush=True)
    while done < runs and time.monotonic() < deadline:
        data = mutated(stream, good)
        cuts = sorted(stream.randrange(len(data) + 1) for _ in range(stream.randrange(6)))
        try:
            accepted += check(data, cuts)
        except Exception as error:
            print(f"run {done} of seed {seed} failed: {error!r}\n  bytes {data.hex()}\n  cuts {cuts}")
            return 1
        done += 1
    print(f"{done} runs, {accepted} packets accepted, nothing found")
    return 0


def run_atheris(arguments: list[str]) -> int:
    try:
        import atheris  # type: ignore[import-untyped]  # optional, and it has no types
    except ImportError:
        print("atheris is not installed; without --atheris this runs in plain Python", file=sys.stderr)
        return 2

    def one_input(data: bytes) -> None:
        check(data, [len(data) // 3, len(data) // 2])

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *arguments], one_input)
    atheris.Fuzz()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="fuzz the MQTT decoder")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run (default: a new seed)")
    parser.add_argument("--seconds", type=float, default=30.0, help="time limit")
    parser.add_argument("--runs", type=int, default=10_000_000, help="limit of runs")
    parser.add_argument("--atheris", action="store_true", help="let atheris choose the bytes")
    options, rest = parser.parse_known_args()
    if options.atheris:
        return run_atheris(rest)
    if rest:
        parser.error(f"unknown arguments {rest}")
    seed = secrets.randbits(32) if options.seed is None else options.seed
    return run(seed, options.seconds, options.runs)


if __name__ == "__main__":
    sys.exit(main())
