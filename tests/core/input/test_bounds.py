"""Worst-case delays: the formulas, and simulations that try to exceed them."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from timebound.core.input.bounds import (
    NEVER,
    OTHER_CLIENTS,
    OTHER_TOPICS,
    OVERLOAD,
    OWN_QUEUE,
    OWN_SERVICE,
    UNBOUNDED,
    Bound,
    Rotation,
    flow_bound,
    printed_bound,
    printed_cells,
    printed_periodic_bound,
)
from timebound.core.input.cells import EVEN, ORDERS, PAPER, cell_order
from timebound.core.input.scheduler import ClientInput, InputQueue, InputScheduler
from timebound.sim.input.server import Arrival, relay

QUANTUM = 1_000  # ns; an arrival one nanosecond late has missed its poll
SELDOM = 1_000 * QUANTUM  # no message ever meets its predecessor


def corrected_bound(
    weights: list[int],
    topic: int,
    *,
    clients: int,
    quantum_ns: int,
    burst: int,
    interval_ns: int,
    order: str,
    parts: int = 1,
) -> Bound:
    """The bound for `clients` clients that all publish every topic; weights in any order."""
    rotation = Rotation(weights, [clients] * len(weights), order)
    return flow_bound(
        rotation,
        topic,
        burst=burst,
        interval_ns=interval_ns,
        quantum_ns=quantum_ns,
        clients=clients,
        parts=parts,
    )


class Scene(NamedTuple):
    """Weights, how many clients publish each topic, and one flow of client 0 on one topic."""

    weights: list[int]
    publishers: list[int]
    order: str
    topic: int
    burst: int
    interval: int
    parts: int = 1

    def rotation(self) -> Rotation:
        return Rotation(self.weights, self.publishers, self.order)

    def bound_in(self, rotation: Rotation, jitter_ns: int = 0) -> Bound:
        return flow_bound(
            rotation,
            self.topic,
            burst=self.burst,
            interval_ns=self.interval,
            quantum_ns=QUANTUM,
            clients=self.publishers[self.topic],
            parts=self.parts,
            jitter_ns=jitter_ns,
        )

    def tight(self) -> Bound:
        return self.bound_in(self.rotation())

    def arrivals(self, start: int, count: int) -> list[int]:
        """The fastest the contract allows: a burst, then one message per interval."""
        return [start + max(0, n - self.burst) * self.interval for n in range(1, count + 1)]


def share_interval(weights: list[int], publishers: list[int], topic: int, parts: int = 1) -> Fraction:
    """Return the time in which a client's share of the topic lets one message through."""
    cycle = sum(w * p for w, p in zip(weights, publishers, strict=True))
    return Fraction(parts * cycle * QUANTUM, weights[topic])


@st.composite
def scenes(draw: st.DrawFn, publishers_min: int = 1) -> Scene:
    count = draw(st.integers(1, 5))
    weights = draw(st.lists(st.integers(1, 10), min_size=count, max_size=count))
    publishers = draw(st.lists(st.integers(publishers_min, 4), min_size=count, max_size=count))
    topic = draw(st.integers(0, count - 1))
    parts = draw(st.integers(1, 3))
    factor = draw(st.fractions(Fraction(101, 100), Fraction(4)))
    interval = int(share_interval(weights, publishers, topic, parts) * factor) + 1
    burst = draw(st.integers(1, 6))
    return Scene(weights, publishers, draw(st.sampled_from(ORDERS)), topic, burst, interval, parts)


def polled_delays(scene: Scene, start_poll: int, count: int) -> list[int]:
    """Naive: every quantum of every cell takes its time, used or not; client 0 is polled first.

    The flow starts just after the start of its `start_poll`-th poll.
    """
    starts: list[int] = []
    cycle = 0
    for topic in cell_order(scene.weights, scene.order):
        if topic == scene.topic:
            starts.append(cycle)
        cycle += scene.publishers[topic] * QUANTUM

    def poll_time(number: int) -> int:
        return starts[number % len(starts)] + number // len(starts) * cycle

    delays = []
    poll = start_poll
    for arrival in scene.arrivals(poll_time(start_poll) + 1, count):
        for _ in range(scene.parts):
            poll += 1
            while poll_time(poll) < arrival:
                poll += 1
        delays.append(poll_time(poll) + QUANTUM - arrival)
    return delays


def worst_polled_delay(scene: Scene) -> int:
    cells = cell_order(scene.weights, scene.order).count(scene.topic)
    count = scene.burst + cells + 2
    return max(max(polled_delays(scene, start, count)) for start in range(cells))


def saturated(
    scene: Scene, quanta: int
) -> tuple[InputScheduler[Arrival], InputQueue[Arrival], list[Arrival]]:
    """Return a scheduler on which everybody but the flow has more waiting than can be served."""
    scheduler: InputScheduler[Arrival] = InputScheduler(
        scene.order, quantum_bytes=1, client_quanta_max=1_000_000
    )
    topics = [scheduler.add_topic(str(k), weight) for k, weight in enumerate(scene.weights)]
    clients: list[ClientInput[Arrival]] = [ClientInput(str(i)) for i in range(max(scene.publishers))]
    victim = scheduler.open_queue(clients[0], topics[scene.topic])
    flood: list[Arrival] = []
    for topic, publishers in zip(topics, scene.publishers, strict=True):
        for client in clients[:publishers]:
            queue = scheduler.open_queue(client, topic)
            if queue is not victim:
                # One endless message is as good as many, and quicker to push.
                flood.append(Arrival(0, queue, size=quanta))
    return scheduler, victim, flood


def served_delays(scene: Scene, start: int, count: int) -> list[int]:
    """Run the real scheduler with everybody else saturated; the flow starts at `start`."""
    times = scene.arrivals(start, count)
    quanta = times[-1] // QUANTUM + scene.tight().delay_ns // QUANTUM + 2
    scheduler, victim, flood = saturated(scene, quanta)
    own = [Arrival(time, victim, scene.parts) for time in times]
    relayed = relay(scheduler, [*flood, *own], QUANTUM)
    return [message.delay_ns for message in relayed if message.arrival.queue is victim]


def worst_served_delay(scene: Scene) -> int:
    """Try every moment of a cycle for the start of the flow, each just after a quantum began."""
    message = scene.tight().message
    cycle = scene.rotation().length
    return max(max(served_delays(scene, x * QUANTUM + 1, message)) for x in range(cycle, 2 * cycle))


def oracle_bound(scene: Scene) -> Fraction:
    """The formula of docs/bounds.md, with fractions and far more messages than needed."""
    lengths = [scene.publishers[k] for k in cell_order(scene.weights, scene.order)]
    cells = cell_order(scene.weights, scene.order)
    starts: list[int] = []
    now = 0
    per_cycle = cells.count(scene.topic)
    messages = scene.burst + 3 * per_cycle
    while len(starts) <= per_cycle + messages * scene.parts:
        for topic, length in zip(cells, lengths, strict=True):
            if topic == scene.topic:
                starts.append(now)
            now += length
    rate = Fraction(1, scene.interval)
    return QUANTUM + max(
        (starts[j + n * scene.parts] - starts[j]) * QUANTUM - max(Fraction(0), (n - scene.burst) / rate)
        for j in range(per_cycle)
        for n in range(1, messages + 1)
    )


class TestFormulas:
    @given(scenes())
    def test_bound_is_the_formula(self, scene: Scene) -> None:
        assert scene.tight().delay_ns == oracle_bound(scene)

    def test_corrected_bound_takes_every_client_as_publisher_of_every_topic(self) -> None:
        # The flow of the example: 6 clients, 51.2 us, 723.4 messages a second, burst 2.
        bound = corrected_bound(
            [4, 3, 2], 0, clients=6, quantum_ns=51_200, burst=2, interval_ns=1_382_361, order=PAPER
        )

        assert bound.delay_ns == 51_200 + 6 * 6 * 51_200
        assert bound.message == 2

    def test_printed_times_are_lemmas_1_to_3(self) -> None:
        assert printed_cells([4, 3, 2], 0) == [2, 2, 3, 5]
        assert printed_cells([4, 3, 2], 1) == [3, 4, 6]
        assert printed_cells([4, 3, 2], 2) == [5, 7]

    def test_printed_periodic_bound_is_equation_15(self) -> None:
        weights = sorted([10, 7, 4, 1] * 5, reverse=True)

        bounds = [printed_periodic_bound(weights, k, clients=6, quantum_ns=51_200) for k in (0, 5, 10, 15)]

        assert bounds == [cells * 6 * 51_200 for cells in (20, 35, 65, 110)]

    def test_printed_bound_of_a_slow_periodic_flow_is_equation_15(self) -> None:
        slow = printed_bound([4, 3, 2], 1, clients=6, quantum_ns=51_200, burst=1, interval_ns=NEVER)

        assert slow == printed_periodic_bound([4, 3, 2], 1, clients=6, quantum_ns=51_200)

    def test_printed_bound_sorts_the_weights_first(self) -> None:
        assert printed_cells([2, 4, 3], 1) == printed_cells([4, 3, 2], 0)
        assert printed_cells([2, 2, 2], 2) == [2]

    def test_flow_over_its_share_has_no_bound(self) -> None:
        exactly_its_share = int(share_interval([4, 3, 2], [6, 6, 6], 0))

        bound = corrected_bound(
            [4, 3, 2],
            0,
            clients=6,
            quantum_ns=QUANTUM,
            burst=1,
            interval_ns=exactly_its_share,
            order=PAPER,
        )

        assert (bound.delay_ns, bound.dominating) == (UNBOUNDED, OVERLOAD)

    @pytest.mark.parametrize(
        ("scene", "term"),
        [
            (Scene([1, 9], [1, 1], EVEN, 0, 1, NEVER), OTHER_TOPICS),
            (Scene([9, 1], [8, 1], EVEN, 0, 1, NEVER), OTHER_CLIENTS),
            (Scene([9, 1], [1, 1], EVEN, 0, 8, NEVER), OWN_QUEUE),
            (Scene([9, 1], [1, 1], EVEN, 0, 1, NEVER, 5), OWN_SERVICE),
        ],
    )
    def test_dominating_term_names_what_to_change(self, scene: Scene, term: str) -> None:
        assert scene.tight().dominating == term


def searched_delay(rotation: Rotation, scene: Scene, jitter_ns: int) -> int:
    """The definition taken at its word: every message of the busy period, one by one."""
    message = scene.burst
    worst_ns = 0
    while True:
        served_ns = QUANTUM * (1 + rotation.span(scene.topic, message * scene.parts))
        worst_ns = max(worst_ns, served_ns - max(0, (message - scene.burst) * scene.interval - jitter_ns))
        message += 1
        if served_ns <= (message - scene.burst) * scene.interval - jitter_ns:
            return worst_ns


class TestSearchIsShort:
    """Near its share a flow's busy period grows without end; the search must not."""

    @given(scenes(), st.integers(0, 200 * QUANTUM), st.integers(1, 3))
    def test_bound_is_that_of_the_whole_busy_period(self, scene: Scene, jitter_ns: int, near: int) -> None:
        scene = scene._replace(interval=max(scene.interval // near, share_ns(scene) + QUANTUM // 50))

        found = scene.bound_in(scene.rotation(), jitter_ns)

        assert found.delay_ns == searched_delay(scene.rotation(), scene, jitter_ns)

    @given(scenes(), st.integers(1, 60), st.integers(1, 100))
    def test_limited_rotation_is_never_below_the_exact_one(
        self, scene: Scene, cells_max: int, above: int
    ) -> None:
        scene = scene._replace(interval=share_ns(scene) + above)
        limited = Rotation(scene.weights, scene.publishers, scene.order, cells_max=cells_max)

        found = scene.bound_in(limited)

        assert limited.is_exact == (limited.cells <= cells_max)
        assert found.delay_ns >= scene.tight().delay_ns
        for cells in range(1, 2 * limited.cells):
            span = scene.rotation().span(scene.topic, cells)
            assert span <= limited.span(scene.topic, cells) <= limited.span_limit(scene.topic, cells)
            assert span <= limited.whole_cycles(scene.topic, cells)
        # The message after the burst is the last whose wait can be the longest.
        quanta = 1 + limited.whole_cycles(scene.topic, (scene.burst + 1) * scene.parts)
        assert scene.tight().delay_ns <= quanta * QUANTUM

    def test_one_nanosecond_above_its_share_a_cycle_is_enough(self) -> None:
        scene = Scene([400, 7, 3], [3, 2, 1], EVEN, 0, 1, 0)
        scene = scene._replace(interval=share_ns(scene) + 1)
        rotation = scene.rotation()

        bound = flow_bound(rotation, 0, burst=1, interval_ns=scene.interval, quantum_ns=QUANTUM, clients=3)

        assert bound.delay_ns > scene.interval
        # All its starts for each of its messages, twice over; the busy period has millions.
        assert rotation.work <= 410 + 402 * 400


def share_ns(scene: Scene) -> int:
    return scene.rotation().share_interval_ns(scene.topic, scene.parts, QUANTUM)


class TestSimulationAgainstBounds:
    @given(scenes())
    def test_polled_worst_case_reaches_the_bound_exactly(self, scene: Scene) -> None:
        assert worst_polled_delay(scene) == scene.tight().delay_ns - 1

    @settings(max_examples=40, deadline=None)
    @given(scenes(), st.integers(0, 400_000))
    def test_scheduler_never_exceeds_the_bound(self, scene: Scene, start: int) -> None:
        count = scene.burst + cell_order(scene.weights, scene.order).count(scene.topic)

        assert max(served_delays(scene, start, count)) <= scene.tight().delay_ns

    @settings(max_examples=15, deadline=None)
    @given(scenes(publishers_min=2))
    def test_scheduler_comes_within_a_tenth_of_the_tight_bound(self, scene: Scene) -> None:
        assume(scene.rotation().length <= 60)

        assert worst_served_delay(scene) >= 0.9 * scene.tight().delay_ns

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_no_flow_among_many_exceeds_the_corrected_nor_the_tight_bound(self, data: st.DataObject) -> None:
        weights = data.draw(st.lists(st.integers(1, 10), min_size=1, max_size=4))
        matrix = data.draw(
            st.lists(
                st.lists(st.booleans(), min_size=len(weights), max_size=len(weights)), min_size=1, max_size=4
            )
        )
        order = data.draw(st.sampled_from(ORDERS))
        publishers = [sum(row[k] for row in matrix) for k in range(len(weights))]
        scheduler: InputScheduler[Arrival] = InputScheduler(order, client_quanta_max=1_000_000)
        topics = [scheduler.add_topic(str(k), weight) for k, weight in enumerate(weights)]
        tight: dict[tuple[str, str], int] = {}
        corrected: dict[tuple[str, str], int] = {}
        events: list[Arrival] = []
        for i, row in enumerate(matrix):
            client: ClientInput[Arrival] = ClientInput(str(i))
            for k in range(len(weights)):
                if not row[k]:
                    continue
                # Some just within their share of the worst case, some beyond it: those flood.
                full = share_interval(weights, [len(matrix)] * len(weights), k)
                interval = int(full * data.draw(st.fractions(Fraction(1, 2), Fraction(3)))) + 1
                scene = Scene(weights, publishers, order, k, data.draw(st.integers(1, 5)), interval)
                key = (client.name, str(k))
                tight[key] = scene.tight().delay_ns
                corrected[key] = scene._replace(publishers=[len(matrix)] * len(weights)).tight().delay_ns
                queue = scheduler.open_queue(client, topics[k])
                start = data.draw(st.integers(0, 50_000))
                events += [Arrival(time, queue) for time in scene.arrivals(start, 30)]

        relayed = relay(scheduler, sorted(events, key=lambda arrival: arrival.time_ns), QUANTUM)

        assert len(relayed) == len(events)
        for message in relayed:
            key = (message.arrival.queue.client.name, message.arrival.queue.topic.name)
            assert tight[key] == UNBOUNDED or message.delay_ns <= tight[key]
            assert corrected[key] == UNBOUNDED or tight[key] <= corrected[key]


class TestFiveCorrections:
    """Each: a schedule of the published order that exceeds the published bound, and why."""

    clients = 3

    def scene(self, weights: list[int], topic: int, burst: int, interval: int) -> Scene:
        return Scene(weights, [self.clients] * len(weights), PAPER, topic, burst, interval)

    def printed(self, scene: Scene) -> int:
        return printed_bound(
            scene.weights,
            scene.topic,
            clients=self.clients,
            quantum_ns=QUANTUM,
            burst=scene.burst,
            interval_ns=scene.interval,
        )

    def check_exceeded(self, scene: Scene, least_excess: int) -> None:
        for worst in (worst_polled_delay(scene), worst_served_delay(scene)):
            assert worst > self.printed(scene) + least_excess
            assert worst <= scene.tight().delay_ns

    def test_printed_times_forget_the_cell_just_served(self) -> None:
        # t(2) = t(1) for the heaviest topic: two messages of one client in one cell.
        scene = self.scene([2, 1], 0, burst=2, interval=SELDOM)
        assert printed_cells([2, 1], 0) == [1, 1]

        self.check_exceeded(scene, QUANTUM)

    def test_printed_times_stop_too_early_for_larger_bursts(self) -> None:
        # Topic 2 has one cell a cycle, so only n = 1 is looked at; its third message needs three cycles.
        scene = self.scene([2, 1], 1, burst=3, interval=SELDOM)

        self.check_exceeded(scene, 5 * self.clients * QUANTUM)

    def test_message_that_just_misses_its_poll_waits_one_quantum_more(self) -> None:
        # A lone message in a plain round robin; nothing but the missed quantum is different.
        scene = self.scene([1, 1], 0, burst=1, interval=SELDOM)

        self.check_exceeded(scene, 0)
        assert scene.tight().delay_ns == self.printed(scene) + QUANTUM

    def test_periodic_flow_near_its_share_queues_behind_itself(self) -> None:
        interval = int(share_interval([4, 3, 2], [self.clients] * 3, 0)) + 1
        scene = self.scene([4, 3, 2], 0, burst=1, interval=interval)

        # More than the missed quantum alone could explain.
        self.check_exceeded(scene, QUANTUM)
        assert scene.tight().message > 1

    def test_one_client_has_only_its_quantum_of_a_cell(self) -> None:
        # Half of what the printed condition admits, and still more than one client's share.
        interval = int(share_interval([1, 1], [1, 1], 0)) * 2
        scene = self.scene([1, 1], 0, burst=1, interval=interval)
        assert self.printed(scene) != UNBOUNDED
        assert scene.tight().delay_ns == UNBOUNDED

        delays = polled_delays(scene, 0, 200)

        assert delays[50] > 5 * self.printed(scene)
        assert delays[100] - delays[50] == delays[150] - delays[100] > 0


COMPARED = [
    ("4, 3, 2", [4, 3, 2]),
    ("10, 12", [12, 10]),
    ("10, 1 x 12", [10] + [1] * 12),
    ("5 x (10, 7, 4, 1)", sorted([10, 7, 4, 1] * 5, reverse=True)),
    ("100, 10, 1", [100, 10, 1]),
    ("20 .. 1", list(range(20, 0, -1))),
]


def comparison_rows() -> list[str]:
    """One line per weight: worst cases of a periodic flow at 95 % of its share, in quanta."""
    rows = []
    for name, weights in COMPARED:
        for weight in sorted({weights[0], weights[len(weights) // 2], weights[-1]}, reverse=True):
            topics = [k for k, other in enumerate(weights) if other == weight]
            interval = int(share_interval(weights, [6] * len(weights), topics[0]) / Fraction(95, 100))
            worst = {}
            for order in ORDERS:
                rotation = Rotation(weights, [6] * len(weights), order)
                worst[order] = max(
                    flow_bound(
                        rotation, k, burst=1, interval_ns=interval, quantum_ns=QUANTUM, clients=6
                    ).delay_ns
                    for k in topics
                )
            paper, even = (worst[order] / QUANTUM for order in ORDERS)
            rows.append(f"| {name} | {weight} | {paper:.1f} | {even:.1f} | {even / paper:.2f} |")
    return rows


class TestOrdersCompared:
    def test_table_in_the_decision_is_what_the_code_gives(self, request: pytest.FixtureRequest) -> None:
        page = (request.config.rootpath / "docs/decisions/0030-cell-order.md").read_text()

        for row in comparison_rows():
            assert row in page

    @settings(max_examples=200)
    @given(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 10, 20, 50]), min_size=1, max_size=12))
    def test_even_never_waits_longer_for_the_next_cell_than_paper(self, weights: list[int]) -> None:
        ones = [1] * len(weights)
        paper, even = (Rotation(weights, ones, order) for order in ORDERS)

        for topic in range(len(weights)):
            assert even.span(topic, 1) <= paper.span(topic, 1)
