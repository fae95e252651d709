"""A tiny mesh to drive by hand: a diamond a -> (b, c) -> d with two subscribers at d and one at c."""

from __future__ import annotations

from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.message import MeshMessage
from timebound.core.mesh.options import MeshOptions
from timebound.core.mesh.overlay import LinkState, PathTree
from timebound.core.mesh.table import MeshSubscription, SubscriptionTable
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import Message
from timebound.terms import Terms

SECOND = 1_000_000_000
LINKS = {("a", "b"): 0.05, ("a", "c"): 0.06, ("b", "d"): 0.05, ("c", "d"): 0.05}


class Diamond:
    """Its brokers, with one account; messages are of 10 KB unless said otherwise."""

    def __init__(
        self, routing: int, strategy: str = "eb", *, epsilon: float = 0.001, **options: float
    ) -> None:
        self.link_state = LinkState()
        self.table = SubscriptionTable()
        self.account = MeshAccount(is_tracing=True)
        self.options = MeshOptions(
            strategy_named(strategy), routing=routing, epsilon=epsilon, message_bytes=10_240, **options
        )
        for (source, target), mean in LINKS.items():
            self.link_state.set_link(source, target, LinkDelay(mean, 0.0001))
        self.brokers = {name: self._broker(name) for name in "abcd"}
        for number, home in enumerate("ddc"):
            self.table.insert(
                MeshSubscription(
                    client_id=f"s{number}",
                    home=home,
                    topic_filter="t",
                    terms=Terms(deadline_ns=10 * SECOND, price=1.0, penalty=0.5),
                )
            )
        self._sequence = 0

    def message(self, published_ns: int = 0, size_bytes: int = 10_240, topic: str = "t") -> MeshMessage:
        self._sequence += 1
        message = Message(topic, b"", 0, False, published_ns, "p", sequence=self._sequence)
        return MeshMessage(message, "a", size_bytes)

    def _make_broker(self, name: str) -> Forwarder:
        return Forwarder(name, self.link_state, self.table, self.options, self.account)

    def _broker(self, name: str) -> Forwarder:
        broker = self._make_broker(name)
        for neighbour in self.link_state.neighbours(name):
            delay = self.link_state.delay(name, neighbour)
            assert delay is not None
            broker.add_neighbour(neighbour, delay)
        return broker


def path_to(tree: PathTree, broker: str) -> list[str]:
    """The brokers on the way, origin and destination included; KeyError if it cannot be reached."""
    path = [broker]
    while path[-1] != tree.origin:
        path.append(tree.parents[path[-1]])
    path.reverse()
    return path
