"""Calibration: the duration of a quantum on this machine, for the whole path of a message without sockets.

A separate broker is fed packets in batches, as they come from a socket: decode, queue, choose, match,
queue for the subscriber, encode. The running broker starts from this value and then uses the durations
of its own turns (`input/input.py`), sockets included.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from timebound.core.broker import Broker
from timebound.core.input.meter import DurationMeter
from timebound.core.input.queues import ClientInput
from timebound.core.input.scheduler import InputScheduler
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.outgoing import OutgoingEncoder
from timebound.units import SECOND
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connect, Publish

BATCH: Final = 128
FLUSH_BYTES: Final = 1 << 20
WARM_UP: Final = 2  # batches that do not count: caches are cold
# At the start of a broker: too short to be noticed, and too short for a quantile; hence the median with a
# margin, since sockets cost about as much again.
START_NS: Final = 20_000_000
START_MARGIN: Final = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured durations, in nanoseconds per message."""

    batches: int
    median_ns: int
    quantum_ns: int  # 99 of 100 batches took no longer

    def as_json(self) -> dict[str, float]:
        return {
            "quantum_us": self.quantum_ns / 1_000,
            "median_us": self.median_ns / 1_000,
            "service_rate": SECOND / self.quantum_ns,
            "batches": self.batches,
        }


def start_quantum_ns() -> int:
    """Return the quantum that a broker uses until it has measured its own turns."""
    return calibrate(START_NS).median_ns * START_MARGIN


def calibrate(duration_ns: int, size: int = 256) -> Calibration:
    """Measure for about `duration_ns`, with payloads of `size` bytes and one subscriber."""
    broker = Broker(BrokerLimits(), AccessList([]))
    publisher, _ = broker.connect("publisher", "", True, 0, 1_024, None, 1, 0)
    subscriber, _ = broker.connect("subscriber", "", True, 0, 1_024, None, 2, 0)
    broker.subscribe(subscriber, Subscription(client_id="subscriber", topic_filter="calibrate/#"), 0)
    scheduler: InputScheduler[Message] = InputScheduler()
    client: ClientInput[Message] = ClientInput("publisher")
    queue = scheduler.open_queue(client, scheduler.add_topic("calibrate", 1))
    decoder = Decoder(is_server=True)
    decoder.feed(encode(Connect("publisher"), 5))
    outgoing = OutgoingEncoder(5, 0, 0, False)
    data = encode(Publish("calibrate/a", b"x" * size), 5) * BATCH
    meter = DurationMeter()
    started_ns = now_ns = time.monotonic_ns()
    batches = 0
    while now_ns - started_ns < duration_ns or meter.count < 2:
        before_ns = now_ns
        for packet in decoder.feed(data):
            assert isinstance(packet, Publish)
            message = Message(packet.topic, packet.payload, 0, False, now_ns, "publisher")
            message.frame_v5 = packet.frame
            scheduler.push(queue, message, len(packet.payload))
        while (taken := scheduler.pop()) is not None:
            broker.publish(publisher, taken, 0, now_ns)
        for session in broker.take_ready():
            deliveries = broker.take_deliveries(session, FLUSH_BYTES, now_ns)
            b"".join([outgoing.encode(delivery, now_ns) for delivery in deliveries])
        now_ns = time.monotonic_ns()
        batches += 1
        if batches > WARM_UP:
            meter.add((now_ns - before_ns) / BATCH)
    return Calibration(meter.count, meter.quantile_ns(0.5), meter.quantile_ns(0.99))
