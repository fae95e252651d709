"""Settings of a simulated mesh: plain values, made from scenario files and from the papers.

Values are checked where they are read (`scenario/`). Where a paper leaves a question open, `reading` decides
(`papers/brokers/reading.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from timebound.core.link.strategy.registry import DEFAULT_STRATEGY
from timebound.sim.kernel.draws import Draw
from timebound.sim.papers.brokers.reading import Reading
from timebound.terms import DEFAULT_TERMS, Terms
from timebound.units import HOUR, MILLISECOND

SAMPLINGS: Final = ("message", "kilobyte")
TRUNCATIONS: Final = ("resample", "clip")
ARRIVALS: Final = ("poisson", "periodic", "bursty")
ESTIMATES: Final = ("known", "measured")


@dataclass(frozen=True, slots=True)
class TopologySetting:
    """`kind` is layered, tree, ring, transit-stub or links; the other fields are what it needs."""

    kind: str = "layered"
    layers: tuple[int, ...] = (4, 4, 8, 16)
    parents: int = 2
    brokers: int = 7
    children: int = 2
    transit: int = 4
    stubs: int = 3
    stub_brokers: int = 5
    links: tuple[tuple[str, str], ...] = ()
    both_ways: bool = True
    names: tuple[str, ...] = ()  # of brokers, beside those of the links


@dataclass(frozen=True, slots=True)
class LinkSetting:
    """Time per KB of each link: `mean_ms` is drawn once per link, then N(mean, deviation) per message."""

    mean_ms: Draw
    deviation_ms: float
    latency_ns: int = 0
    loss: float = 0.0  # share of transmissions that are repeated
    sampling: str = "message"
    truncation: str = "resample"


@dataclass(frozen=True, slots=True)
class LoginSetting:
    """How clients connect to whole brokers: as which user, and at which listener; empty = the first.

    Their sessions outlive a connection by `session_expiry_ns`.
    """

    user: str = ""
    listener: str = ""
    session_expiry_ns: int = 0


@dataclass(frozen=True, slots=True)
class PublisherSetting:
    """`count` publishers at each broker of a layer (or at the named brokers)."""

    rate_per_minute: float
    size_bytes: Draw
    name: str = "p"
    topic: str = "sim"
    layer: int = 0
    brokers: tuple[str, ...] = ()
    count: int = 1
    arrivals: str = "poisson"
    burst: int = 10
    attributes: tuple[tuple[str, Draw], ...] = ()
    timeout_ms: Draw | None = None
    priority: Draw | None = None
    connection_ns: int = 0
    # Whether the publisher's own connection takes time like a link of the mesh, and whether its
    # messages wait for each other there.
    link_costs: bool = False
    link_queues: bool = True
    # Only of clients of whole brokers. `advertise` has the properties of a flow; empty = none.
    login: LoginSetting = field(default_factory=LoginSetting)
    qos: int = 0
    retain: bool = False
    advertise: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionSetting:
    """`count` subscribers at each broker of a layer, each with one of `terms`.

    `where` may contain names of `draws` in braces: in `a < {x}`, x is drawn for each subscriber.
    """

    name: str = "s"
    topic_filter: str = "#"
    layer: int = -1
    brokers: tuple[str, ...] = ()
    count: int = 1
    where: str = ""
    draws: tuple[tuple[str, Draw], ...] = ()
    terms: tuple[Terms, ...] = (DEFAULT_TERMS,)
    last_mile_ns: int = 0
    login: LoginSetting = field(default_factory=LoginSetting)  # with `qos`, only of whole brokers
    qos: int = 0


@dataclass(frozen=True, slots=True)
class FaultSetting:
    """`kind` is crash, cut or slow; from `at_ns` to `until_ns` (0 = permanent)."""

    kind: str
    at_ns: int
    until_ns: int = 0
    broker: str = ""
    link: tuple[str, str] = ("", "")
    factor: float = 1.0  # for slow: multiplies the time per KB


@dataclass(frozen=True, slots=True)
class MeshSetting:
    """One deployment and its load; a run adds a seed."""

    topology: TopologySetting
    links: LinkSetting
    publishers: tuple[PublisherSetting, ...]
    subscriptions: tuple[SubscriptionSetting, ...]
    strategy: str = DEFAULT_STRATEGY
    mix: float = -1.0  # the strategy's own
    epsilon: float = 0.0005
    duration_ns: int = 2 * HOUR
    processing_ns: int = 2 * MILLISECOND
    message_bytes: int = 0  # message size in FT; 0 = measured
    estimates: str = "known"
    faults: tuple[FaultSetting, ...] = ()
    reading: Reading = field(default_factory=Reading)
    preference: float = 0.0  # late binding: see core/mesh/options.py
    waiting_share: float = 0.0
    send_cost: float = 0.0
    thrift: float = 0.0
    keeps_order: bool = True  # of messages of one publisher and topic; the papers know no order
    keeps_fresh: bool = True  # gives up early what exceeds a link; the papers' brokers do not
    is_tracing: bool = False
