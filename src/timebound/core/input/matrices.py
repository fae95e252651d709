"""Who publishes and who subscribes to what, and the shares that follow: equations 1 to 5.

`Membership` holds the weights and the matrices IN and OUT. The four primitives advertise,
unadvertise, subscribe and unsubscribe change them; shares are exact fractions. Nothing here
is on the hot path: the scheduler keeps its own, faster picture of IN in its open queues.
"""

from __future__ import annotations

from fractions import Fraction

from timebound.core.input.cells import check_weight, step_of


class Membership:
    """Weights of topics, and the matrices IN (clients x topics) and OUT.

    Topics and clients keep the order in which they were first named.
    """

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}
        self._clients: dict[str, int] = {}
        self._publishes: set[tuple[str, str]] = set()
        self._subscribes: set[tuple[str, str]] = set()

    def set_weight(self, topic: str, weight: int) -> None:
        check_weight(weight)
        self.weights[topic] = weight

    def add_client(self, client: str) -> None:
        self._clients.setdefault(client, len(self._clients))

    def advertise(self, client: str, topic: str) -> None:
        self._known(topic)
        self.add_client(client)
        self._publishes.add((client, topic))

    def unadvertise(self, client: str, topic: str) -> None:
        self._publishes.discard((client, topic))

    def subscribe(self, client: str, topic: str) -> None:
        self._known(topic)
        self.add_client(client)
        self._subscribes.add((client, topic))

    def unsubscribe(self, client: str, topic: str) -> None:
        self._subscribes.discard((client, topic))

    def clients(self) -> list[str]:
        return list(self._clients)

    def matrix_in(self) -> list[list[int]]:
        return self._matrix(self._publishes)

    def matrix_out(self) -> list[list[int]]:
        return self._matrix(self._subscribes)

    def publishers(self, topic: str) -> list[str]:
        return [client for client in self._clients if (client, topic) in self._publishes]

    def subscribers(self, topic: str) -> list[str]:
        """Return who is given each message of the topic, all in the same quantum."""
        return [client for client in self._clients if (client, topic) in self._subscribes]

    def step(self) -> int:
        """Return g, the greatest common divisor of the weights."""
        return step_of(list(self.weights.values()))

    def topic_shares(self) -> dict[str, Fraction]:
        """Return r_k / R = w_k / Σw (equation 1)."""
        total = sum(self.weights.values())
        return {topic: Fraction(weight, total) for topic, weight in self.weights.items()}

    def cycle_cells(self) -> int:
        """Return the cells of a cycle, Σw / g (equation 2, which lacks the g)."""
        return sum(self.weights.values()) // self.step()

    def topic_time(self, topic: str, cell_ns: int) -> int:
        """Return the topic's part of a cycle, w_k / g cells (equation 2)."""
        return self.weights[topic] // self.step() * cell_ns

    def deltas(self) -> dict[str, int]:
        """Return δ = IN x w (equation 3)."""
        return {
            client: sum(
                weight for topic, weight in self.weights.items() if (client, topic) in self._publishes
            )
            for client in self._clients
        }

    def client_quanta(self) -> dict[str, int]:
        """Return the quanta a client gets in a cycle, δ_i / g (equation 4)."""
        step = self.step()
        return {client: delta // step for client, delta in self.deltas().items()}

    def client_shares(self) -> dict[str, Fraction]:
        """Return θ_i = δ_i / Σδ (equation 5); all 0 while nobody publishes."""
        deltas = self.deltas()
        total = sum(deltas.values())
        return {client: Fraction(delta, total) if total else Fraction(0) for client, delta in deltas.items()}

    def _known(self, topic: str) -> None:
        if topic not in self.weights:
            raise ValueError(f"topic {topic!r} has no weight; set one first")

    def _matrix(self, pairs: set[tuple[str, str]]) -> list[list[int]]:
        return [[1 if (client, topic) in pairs else 0 for topic in self.weights] for client in self._clients]
