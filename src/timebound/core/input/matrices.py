"""The matrix IN of clients and topics, and the shares of clients: equations 3 and 5.

Shares are exact fractions. Nothing here is on the hot path: for the scheduler, its open queues are IN.
"""

from __future__ import annotations

from fractions import Fraction

from timebound.core.input.cells import check_weight


class InputMatrix:
    """Weights of topics, and the matrix IN (clients x topics).

    Topics and clients keep the order in which they were first named.
    """

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}
        self._clients: dict[str, int] = {}
        self._publishes: set[tuple[str, str]] = set()

    def set_weight(self, topic: str, weight: int) -> None:
        check_weight(weight)
        self.weights[topic] = weight

    def add_client(self, client: str) -> None:
        self._clients.setdefault(client, len(self._clients))

    def advertise(self, client: str, topic: str) -> None:
        self._known(topic)
        self.add_client(client)
        self._publishes.add((client, topic))

    def clients(self) -> list[str]:
        return list(self._clients)

    def publishers(self, topic: str) -> list[str]:
        return [client for client in self._clients if (client, topic) in self._publishes]

    def deltas(self) -> dict[str, int]:
        """Return δ = IN x w (equation 3)."""
        return {
            client: sum(
                weight for topic, weight in self.weights.items() if (client, topic) in self._publishes
            )
            for client in self._clients
        }

    def client_shares(self) -> dict[str, Fraction]:
        """Return θ_i = δ_i / Σδ (equation 5); all 0 without publishers."""
        deltas = self.deltas()
        total = sum(deltas.values())
        return {client: Fraction(delta, total) if total else Fraction(0) for client, delta in deltas.items()}

    def _known(self, topic: str) -> None:
        if topic not in self.weights:
            raise ValueError(f"topic {topic!r} has no weight; set one first")
