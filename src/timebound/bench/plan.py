"""The topics of publishers and subscribers, and the deliveries that follow.

All topics of a run are new to the broker and of equal length: every packet of a publisher has the
same size, and no other messages are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from timebound.bench.options import LoadOptions


class TopicPlan:
    """The topics of one run; `run_id` keeps them apart from those of other runs."""

    def __init__(self, options: LoadOptions, run_id: str) -> None:
        self._options = options
        self.run_id = run_id
        self._prefix = f"{options.topic_prefix}/{run_id}"
        width = len(str(options.topics - 1))
        self._topics = [f"{self._prefix}/{number:0{width}d}" for number in range(options.topics)]

    def topics_of_publisher(self, number: int) -> list[str]:
        return [self._topics[topic] for topic in self._options.topics_of(number, self._options.publishers)]

    def filters_of_subscriber(self, number: int) -> list[str]:
        if self._options.all_topics:
            return [f"{self._prefix}/#"]
        return [self._topics[topic] for topic in self._options.topics_of(number, self._options.subscribers)]

    def subscribers_by_topic(self) -> list[int]:
        """Return the number of subscribers of each topic."""
        options = self._options
        if options.all_topics:
            return [options.subscribers] * options.topics
        counts = [0] * options.topics
        for subscriber in range(options.subscribers):
            for topic in options.topics_of(subscriber, options.subscribers):
                counts[topic] += 1
        return counts

    def expected(self, sent: Sequence[int]) -> int:
        """Return the deliveries that follow if publisher n has sent sent[n] messages.

        A publisher uses its topics in turn, starting with the first.
        """
        counts = self.subscribers_by_topic()
        expected = 0
        for number, messages in enumerate(sent):
            fan_outs = [counts[topic] for topic in self._options.topics_of(number, self._options.publishers)]
            rounds, rest = divmod(messages, len(fan_outs))
            expected += rounds * sum(fan_outs) + sum(fan_outs[:rest])
        return expected
