"""The evaluation in the paper on the topic-weighted scheduler, run on the scheduler itself.

Six clients publish on twenty topics, five each of weight 10, 7, 4 and 1, over three link layers;
each second every client has five other topics, such that client 1 gets the published shares
(Table I) and all weights add up to the published 165. What the paper leaves open is drawn from the
seed. Its sending intervals, U(0, 1 ms), load the broker far more than its table of delays allows;
U(0, 5 ms) fits that table.

Two brokers relay the same arrivals. `polling` polls every queue in turn, 0.001 ms each, as the
paper's does: its delays are the published ones. `scheduler` is the real scheduler, which knows
which queues have messages. Delays "at the broker" run from a message's arrival there to the end of
its relay, those "end to end" from the time its client wants to send it.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from timebound.core.input.bounds import UNBOUNDED, Rotation, flow_bound, printed_periodic_bound
from timebound.core.input.cells import PAPER, cell_order
from timebound.core.input.scheduler import ClientInput, InputQueue, InputScheduler
from timebound.sim.input.link_layers import LINK_LAYERS, LOST, Frame, LinkLayer
from timebound.sim.input.polling import PollingServer
from timebound.sim.input.server import Arrival, Relayed, relay
from timebound.units import MILLISECOND, SECOND

CLIENTS: Final = 6
WEIGHTS: Final = [10] * 5 + [7] * 5 + [4] * 5 + [1] * 5
TOPICS_EACH: Final = 5
DELTA_TOTAL: Final = 165
SECONDS: Final = 5
RELAY_NS: Final = 51_200
SEARCH_NS: Final = 1_000
QUANTUM_NS: Final = RELAY_NS + SEARCH_NS
# How many of client 1's five topics have weight 10 in each second; the others have weight 1.
CLIENT_1_HEAVY: Final = (5, 3, 1, 4, 2)
# The paper prints U(0, 1 ms), which asks light topics for more than their share: docs/reproduction.md.
INTERVAL_FITTING_NS: Final = 5 * MILLISECOND
# Table I: share in percent, average and maximum delay of client 1 in milliseconds.
PUBLISHED: Final = (
    (30.30, 0.0640, 0.1320),
    (19.39, 0.0778, 0.1950),
    (8.48, 0.1077, 0.3600),
    (24.85, 0.0711, 0.1530),
    (13.94, 0.0977, 0.3120),
)
POLLING: Final = "polling"
SCHEDULER: Final = "scheduler"
BROKERS: Final = (POLLING, SCHEDULER)
# A flow's contract for its bound: a fifth above its mean rate, with the burst that was measured.
RATE_MARGIN: Final = (6, 5)
WINDOWS_PER_SECOND: Final = 20  # points of a figure's line
_MEMBERSHIP_DRAWS_MAX: Final = 100_000

FlowKey = tuple[int, int, int]  # second, client, topic


@dataclass(frozen=True, slots=True)
class SecondRow:
    """Client 1 in one second: its share, its delays, and the bounds of its slowest topic.

    `bound_ms` is None when a flow exceeds its share: its delay was then short only because
    others were idle.
    """

    layer: str
    broker: str
    interval_ms: float
    second: int
    share_percent: float
    delay_ms_mean: float
    delay_ms_max: float
    end_to_end_ms_mean: float
    end_to_end_ms_max: float
    bound_printed_ms: float
    bound_ms: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve of a figure: the longest delay in each window of time."""

    name: str
    times_s: list[float]
    delays_ms: list[float]


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Results of one link layer with one broker; `over_bound` counts messages beyond their flow's bound."""

    layer: str
    broker: str
    rows: list[SecondRow]
    overall: Curve
    per_client: list[Curve]
    messages: int
    lost: int
    over_bound: int


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    order: str
    interval_ms: float
    layers: list[LayerRun]

    def rows(self) -> list[SecondRow]:
        return [row for layer in self.layers for row in layer.rows]

    def figure_9(self, broker: str = POLLING) -> list[Curve]:
        """Return the longest delays over time, a curve per link layer."""
        return [layer.overall for layer in self.layers if layer.broker == broker]

    def figure_10(self, broker: str = POLLING) -> list[Curve]:
        """Return the longest delays over time on the last link layer, a curve per client."""
        return [layer.per_client for layer in self.layers if layer.broker == broker][-1]

    def as_json(self) -> dict[str, object]:
        return {
            "published": [list(row) for row in PUBLISHED],
            **asdict(self),
        }


def run(
    seed: int = 0,
    *,
    interval_ns_max: int = INTERVAL_FITTING_NS,
    order: str = PAPER,
    layers: tuple[LinkLayer, ...] = LINK_LAYERS,
) -> Result:
    """Run the evaluation; the same seed gives the same membership and traffic to every layer."""
    members = memberships(Random(f"{seed} membership"))
    frames, topics = _traffic(members, interval_ns_max, Random(f"{seed} traffic"))
    runs: list[LayerRun] = []
    for layer in layers:
        received = layer.deliver(frames, Random(f"{seed} {layer.name}"))
        for broker in BROKERS:
            experiment = _Experiment(layer.name, broker, members, interval_ns_max, order)
            runs.append(experiment.run(frames, topics, received))
    return Result(seed, order, interval_ns_max / MILLISECOND, runs)


def memberships(random: Random) -> list[list[list[int]]]:
    """Draw the topics of each client in each second; those of client 1 are given."""
    drawn = []
    for heavy in CLIENT_1_HEAVY:
        first = [*range(heavy), *range(15, 15 + TOPICS_EACH - heavy)]
        missing = DELTA_TOTAL - sum(WEIGHTS[topic] for topic in first)
        for _ in range(_MEMBERSHIP_DRAWS_MAX):
            others = [sorted(random.sample(range(len(WEIGHTS)), TOPICS_EACH)) for _ in range(CLIENTS - 1)]
            if sum(WEIGHTS[topic] for topics in others for topic in topics) == missing:
                drawn.append([first, *others])
                break
    assert len(drawn) == SECONDS, "one draw in about twelve has the right sum"
    return drawn


def _traffic(
    members: list[list[list[int]]], interval_ns_max: int, random: Random
) -> tuple[list[Frame], list[int]]:
    """Draw what every client sends; return the frames and, for each, its topic."""
    sent: list[tuple[int, int, int]] = []
    for client in range(CLIENTS):
        now_ns = random.randrange(interval_ns_max)
        while now_ns < SECONDS * SECOND:
            topic = random.choice(members[now_ns // SECOND][client])
            sent.append((now_ns, client, topic))
            now_ns += random.randrange(interval_ns_max + 1)
    sent.sort()
    # Topics of larger weight have lower numbers, hence priority on CAN.
    return [Frame(time_ns, client, topic) for time_ns, client, topic in sent], [topic for *_, topic in sent]


class _Experiment:
    """One broker behind one link layer."""

    def __init__(
        self, layer: str, broker: str, members: list[list[list[int]]], interval_ns_max: int, order: str
    ) -> None:
        self.layer = layer
        self.broker = broker
        self.members = members
        self.interval_ns_max = interval_ns_max
        self.order = order
        self.scheduler: InputScheduler[Arrival] = InputScheduler(order, client_quanta_max=1_000_000)

    def run(self, frames: list[Frame], topics: list[int], received: list[int]) -> LayerRun:
        queues = self.queues()
        arrivals = [
            Arrival(time_ns, queues[frame.station, topic], sent_ns=frame.time_ns)
            for time_ns, frame, topic in zip(received, frames, topics, strict=True)
            if time_ns != LOST
        ]
        arrivals.sort(key=_arrival_time)
        relayed = self.polled(arrivals) if self.broker == POLLING else self.scheduled(arrivals)
        bounds = self.flow_bounds(arrivals)
        return LayerRun(
            self.layer,
            self.broker,
            [self.row(relayed, second, bounds) for second in range(SECONDS)],
            _line(self.layer, relayed),
            [
                _line(f"client {client + 1}", [message for message in relayed if _client(message) == client])
                for client in range(CLIENTS)
            ],
            messages=len(relayed),
            lost=len(frames) - len(arrivals),
            over_bound=sum(_is_over(message, bounds) for message in relayed),
        )

    def queues(self) -> dict[tuple[int, int], InputQueue[Arrival]]:
        """Open every queue that is used in some second; empty ones take no time in the others."""
        topics = [self.scheduler.add_topic(str(topic), weight) for topic, weight in enumerate(WEIGHTS)]
        clients: list[ClientInput[Arrival]] = [ClientInput(str(client)) for client in range(CLIENTS)]
        return {
            (client, topic): self.scheduler.open_queue(clients[client], topics[topic])
            for second in self.members
            for client, published in enumerate(second)
            for topic in published
        }

    def scheduled(self, arrivals: list[Arrival]) -> list[Relayed]:
        return relay(self.scheduler, arrivals, QUANTUM_NS)

    def polled(self, arrivals: list[Arrival]) -> list[Relayed]:
        cells = cell_order(WEIGHTS, self.order)
        cycles = [
            [
                (str(client), str(topic))
                for topic in cells
                for client, published in enumerate(second)
                if topic in published
            ]
            for second in self.members
        ]
        server = PollingServer(cycles, period_ns=SECOND, search_ns=SEARCH_NS, relay_ns=RELAY_NS)
        return server.relay(arrivals)

    def flow_bounds(self, arrivals: list[Arrival]) -> dict[FlowKey, int]:
        """Return the tight bound of each flow, for the burst it really had."""
        # The mean interval of a client is half the maximum; it deals its messages out to five topics.
        interval_ns = self.interval_ns_max * TOPICS_EACH * RATE_MARGIN[1] // (2 * RATE_MARGIN[0])
        times: dict[FlowKey, list[int]] = {}
        for arrival in arrivals:
            times.setdefault(_flow(arrival), []).append(arrival.time_ns)
        bounds = {}
        for second, clients in enumerate(self.members):
            publishers = [sum(topic in published for published in clients) for topic in range(len(WEIGHTS))]
            rotation = Rotation(WEIGHTS, publishers, self.order)
            for client, published in enumerate(clients):
                for topic in published:
                    key = (second, client, topic)
                    bounds[key] = flow_bound(
                        rotation,
                        topic,
                        burst=measured_burst(times.get(key, []), interval_ns),
                        interval_ns=interval_ns,
                        quantum_ns=QUANTUM_NS,
                        clients=publishers[topic],
                    ).delay_ns
        return bounds

    def row(self, relayed: list[Relayed], second: int, bounds: dict[FlowKey, int]) -> SecondRow:
        mine = [m for m in relayed if _client(m) == 0 and m.arrival.sent_ns // SECOND == second]
        delays = [message.delay_ns / MILLISECOND for message in mine]
        totals = [(message.done_ns - message.arrival.sent_ns) / MILLISECOND for message in mine]
        published = self.members[second][0]
        own = [bounds[second, 0, topic] for topic in published]
        printed_ns = [
            printed_periodic_bound(WEIGHTS, topic, clients=CLIENTS, quantum_ns=QUANTUM_NS)
            for topic in published
        ]
        return SecondRow(
            layer=self.layer,
            broker=self.broker,
            interval_ms=self.interval_ns_max / MILLISECOND,
            second=second,
            share_percent=100 * sum(WEIGHTS[topic] for topic in published) / DELTA_TOTAL,
            delay_ms_mean=sum(delays) / len(delays),
            delay_ms_max=max(delays),
            end_to_end_ms_mean=sum(totals) / len(totals),
            end_to_end_ms_max=max(totals),
            bound_printed_ms=max(printed_ns) / MILLISECOND,
            bound_ms=None if UNBOUNDED in own else max(own) / MILLISECOND,
        )


def measured_burst(times_ns: list[int], interval_ns: int) -> int:
    """Return the smallest burst with which these arrivals keep to one message per interval."""
    burst = 1
    due_ns = 0
    for time_ns in times_ns:
        # The n-th message of a burst may come n - 1 intervals early.
        burst = max(burst, 1 + -(-max(0, due_ns - time_ns) // interval_ns))
        due_ns = max(due_ns, time_ns) + interval_ns
    return burst


def _line(name: str, relayed: list[Relayed]) -> Curve:
    width_ns = SECOND // WINDOWS_PER_SECOND
    longest = [0] * (SECONDS * WINDOWS_PER_SECOND)
    for message in relayed:
        window = message.arrival.sent_ns // width_ns
        longest[window] = max(longest[window], message.delay_ns)
    times_s = [window * width_ns / SECOND for window in range(len(longest))]
    return Curve(name, times_s, [delay_ns / MILLISECOND for delay_ns in longest])


def _is_over(message: Relayed, bounds: dict[FlowKey, int]) -> bool:
    bound_ns = bounds[_flow(message.arrival)]
    return bound_ns != UNBOUNDED and message.delay_ns > bound_ns


def _flow(arrival: Arrival) -> FlowKey:
    return arrival.sent_ns // SECOND, int(arrival.queue.client.name), int(arrival.queue.topic.name)


def _client(message: Relayed) -> int:
    return int(message.arrival.queue.client.name)


def _arrival_time(arrival: Arrival) -> int:
    return arrival.time_ns


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw figures 9 and 10 as PNG files and return their paths; requires matplotlib."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    written = []
    for number, title, lines in (
        (9, "longest delay at the broker, by link layer", result.figure_9()),
        (10, "longest delay at the broker, by client", result.figure_10()),
    ):
        # One panel per curve: six overlaid curves cannot be told apart.
        figure, panels = pyplot.subplots(
            len(lines),
            sharex=True,
            sharey=True,
            squeeze=False,
            figsize=(8, 1.5 + len(lines)),
            layout="constrained",
        )
        for line, (axes,) in zip(lines, panels, strict=True):
            axes.step(line.times_s, line.delays_ms, where="post")
            axes.grid(axis="x")  # topics change every second
            axes.text(1.01, 0.5, line.name, transform=axes.transAxes, verticalalignment="center")
        panels[0][0].set_ylim(bottom=0)  # last: it fixes the upper limit of all panels as well
        figure.supxlabel("time (s)")
        figure.supylabel("delay (ms)")
        figure.suptitle(f"{title}; intervals U(0, {result.interval_ms:g} ms), {result.order}")
        path = folder / f"paper000-figure{number}.png"
        figure.savefig(path, dpi=120, bbox_inches="tight")
        pyplot.close(figure)
        written.append(path)
    return written
