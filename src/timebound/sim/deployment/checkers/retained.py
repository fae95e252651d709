"""After the quiet time every broker retains, for each topic, the last message that it had for it.

What a broker has is what its own clients published, and what neighbours sent because a client wants it
(docs/mesh.md: others do not get retained messages). A restarted broker may have lost what was not
acknowledged: then any message is right from the last one acknowledged on. Disk and memory agree.
"""

from __future__ import annotations

from timebound.core.mesh.message import Copy
from timebound.core.values.message import Message
from timebound.sim.deployment.deployment import PROBE, Checker, Deployment
from timebound.sim.deployment.history import SentMessage, number_in
from timebound.sim.deployment.node import SimNode

NONE = 0  # in place of a number: nothing is retained
UNSURE = -1  # at the end: there was a crash since
WILLS = "will/"  # topics of wills, which brokers publish themselves


class Retained(Checker):
    """Follows what could be retained at each broker, and asks with a client of its own at the end."""

    name = "retained"

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], list[int]] = {}  # by broker and topic: any of these is right
        self._seen: set[tuple[str, int, str, int, int]] = set()  # copies; only asked, never iterated

    def taken(self, deployment: Deployment, node: SimNode, message: Message) -> None:
        if message.retain and message.sequence:
            self._put(node, message, deployment)

    def copied(self, deployment: Deployment, node: SimNode, copy: Copy) -> None:
        if copy.what.message.retain and copy.targets is not None and node.name in copy.targets:
            name = (node.name, node.life, *copy.what.key())
            if name not in self._seen:
                self._seen.add(name)
                self._put(node, copy.what.message, deployment)

    def _put(self, node: SimNode, message: Message, deployment: Deployment) -> None:
        number = number_in(message.payload, message.user_properties)
        before = self._latest.get((node.name, message.topic), [NONE])
        # One that its publisher knows to be stored ends what may come back after a crash.
        known = [place for place, one in enumerate(before) if self._is_stored(deployment, node, one)]
        self._latest[node.name, message.topic] = [*before[max(known, default=0) :], number]

    def _is_stored(self, deployment: Deployment, node: SimNode, number: int) -> bool:
        """Whether a broker has acknowledged a message: that of its publisher, not one that got a copy."""
        sent = deployment.history.messages.get(number)
        if sent is None or not sent.qos or not sent.is_promised():
            return False
        return node.name in [name for name, _, _ in sent.taken]

    def life_ended(self, deployment: Deployment, node: SimNode) -> None:
        """Expect any message from the last acknowledged one on: the disk may have it."""
        for (name, topic), numbers in self._latest.items():
            if name == node.name:
                known = [place for place, one in enumerate(numbers) if self._is_stored(deployment, node, one)]
                # Of several that may be right, none is the last any more.
                self._latest[name, topic] = [*numbers[max(known, default=0) :], UNSURE]

    def finished(self, deployment: Deployment) -> None:
        if deployment.plan.is_settled:
            self._check_answers(deployment)
        for node in deployment.nodes.values():
            for topic, message in node.disk.tables.retained.items():
                if node.broker.retained_payload(topic) != message.payload:
                    deployment.fail(self.name, f"{node.name}: disk and memory differ on {topic!r}")

    def _check_answers(self, deployment: Deployment) -> None:
        """Compare what the checker's own client got with what brokers had; only settled runs have one."""
        got: dict[tuple[str, str], int] = {}
        for arrival in deployment.history.arrivals:
            if arrival.client.startswith(PROBE) and arrival.retain:
                got[arrival.node, arrival.topic] = arrival.number
        for (name, topic), numbers in self._latest.items():
            right = self._right(deployment, name, numbers)
            found = got.get((name, topic), NONE)
            if not topic.startswith((WILLS, "$")) and found not in right:
                text = f"{name} retains {found} on {topic!r}, expected one of {right} (0 = nothing)"
                deployment.fail(self.name, text)

    def _right(self, deployment: Deployment, name: str, numbers: list[int]) -> list[int]:
        """Return the numbers of which any is right: the last, or after a crash several."""
        right = numbers[-1:] if numbers[-1] != UNSURE else [one for one in numbers if one != UNSURE]
        messages = deployment.history.messages
        right = [NONE if one in messages and messages[one].is_empty else one for one in right]
        limits = deployment.nodes[name].limits
        is_full = limits.retained_messages_max < len({topic for node, topic in self._latest if node == name})
        if is_full or any(one in messages and _is_short_lived(messages[one]) for one in right):
            right.append(NONE)
        return right


def _is_short_lived(sent: SentMessage) -> bool:
    """Whether a retained message may be too old for whoever asks for it."""
    return sent.expiry_s >= 0 or sent.timeout_ns > 0
