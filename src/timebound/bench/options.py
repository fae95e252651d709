"""The options and the result of a load run.

Topics are spread: with no more publishers than topics, topic t belongs to publisher t modulo
their number; otherwise publisher p uses topic p modulo the number of topics. The same holds for
subscribers. So 4 publishers, 4 subscribers and 4 topics are four separate flows, and 1 publisher,
10 subscribers and 1 topic are a fan-out of ten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from timebound.bench.latency import Latency

CLIENTS_MAX: Final = 60_000  # one address has no more ports
SIZE_MAX: Final = 16 << 20
PACKET_ID_MAX: Final = 65_535
_MQTT_VERSIONS: Final = (4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The work of one run. `rate` is for all publishers together; 0 = full speed."""

    host: str = "127.0.0.1"
    port: int = 1883
    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    size: int = 64
    qos: int = 0
    subscribe_qos: int | None = None  # None = as published
    rate: float = 0.0
    rate_per_publisher: float = 0.0  # instead of `rate`
    duration_s: float = 5.0
    warmup_s: float = 1.0
    drain_s: float = 5.0  # longest wait for messages in transit at the end
    window: int = 1000  # unacknowledged messages of a publisher, QoS 1 and 2
    all_topics: bool = False  # every subscriber gets every topic
    mqtt_version: int = 5  # 5, or 4 for MQTT 3.1.1
    topic_prefix: str = "bench"
    username: str | None = None
    password: str | None = None
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    verify_tls: bool = True
    timeout_s: float = 10.0  # for each step of setting up

    def __post_init__(self) -> None:
        self._check_range("publishers", self.publishers, 1, CLIENTS_MAX)
        self._check_range("subscribers", self.subscribers, 0, CLIENTS_MAX)
        self._check_range("topics", self.topics, 1, 10_000_000)
        self._check_range("size", self.size, 0, SIZE_MAX)
        self._check_range("qos", self.qos, 0, 2)
        self._check_range("subscribe_qos", self.delivery_qos, 0, 2)
        self._check_range("rate", self.total_rate, 0, 1e9)
        self._check_range("duration", self.duration_s, 0.01, 1e6)
        self._check_range("warm-up", self.warmup_s, 0, 1e6)
        self._check_range("window", self.window, 1, PACKET_ID_MAX)
        if self.mqtt_version not in _MQTT_VERSIONS:
            raise ValueError(f"mqtt version {self.mqtt_version} is unknown (5, or 4 for MQTT 3.1.1)")
        if self.rate and self.rate_per_publisher:
            raise ValueError("rate and rate per publisher exclude each other; give one of them")

    @staticmethod
    def _check_range(name: str, value: float, least: float, most: float) -> None:
        if not least <= value <= most:
            raise ValueError(f"{name} {value:g} is out of range ({least:g} to {most:g})")

    @property
    def delivery_qos(self) -> int:
        return self.qos if self.subscribe_qos is None else self.subscribe_qos

    @property
    def total_rate(self) -> float:
        return self.rate or self.rate_per_publisher * self.publishers

    def topics_of(self, client: int, clients: int) -> list[int]:
        """Return the topic numbers of one of `clients` publishers or subscribers."""
        if self.topics < clients:
            return [client % self.topics]
        return list(range(client, self.topics, clients))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The result of one run. Rates are of the measured time, counts of the whole run."""

    options: LoadOptions
    sent: int  # messages handed to the network
    expected: int  # deliveries these should cause
    received: int  # deliveries until the end of the drain
    refused: int  # messages the broker refused with a reason code
    measured_s: float
    sent_per_s: float
    received_per_s: float
    latency: Latency | None  # None if nothing was sampled
    generator_cpu: float  # processor time of the generator per second measured; 1.0 = it was the limit
    lost_connections: int
    lost_reason: str  # of the first of them

    @property
    def loss(self) -> float:
        """The share of deliveries that did not arrive."""
        return max(0.0, 1.0 - self.received / self.expected) if self.expected else 0.0
