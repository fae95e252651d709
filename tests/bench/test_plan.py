from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.bench.options import LoadOptions
from timebound.bench.plan import TopicPlan

counts = st.integers(1, 12)


@st.composite
def plans(draw: st.DrawFn) -> tuple[LoadOptions, TopicPlan]:
    options = LoadOptions(
        publishers=draw(counts),
        subscribers=draw(st.integers(0, 12)),
        topics=draw(counts),
        all_topics=draw(st.booleans()),
    )
    return options, TopicPlan(options, "run")


def matches(topic_filter: str, topic: str) -> bool:
    if topic_filter.endswith("#"):
        return topic.startswith(topic_filter[:-1])
    return topic_filter == topic


@given(plans(), st.lists(st.integers(0, 40), min_size=12, max_size=12))
def test_expected_deliveries_equal_a_count_of_each_message(
    made: tuple[LoadOptions, TopicPlan], sent: list[int]
) -> None:
    options, plan = made
    sent = sent[: options.publishers]

    expected = plan.expected(sent)

    filters = [plan.filters_of_subscriber(number) for number in range(options.subscribers)]
    counted = 0
    for number, messages in enumerate(sent):
        topics = plan.topics_of_publisher(number)
        for message in range(messages):
            topic = topics[message % len(topics)]
            counted += sum(any(matches(each, topic) for each in one) for one in filters)
    assert expected == counted


@given(plans())
def test_every_topic_is_published_to_and_all_are_of_one_length(made: tuple[LoadOptions, TopicPlan]) -> None:
    options, plan = made

    topics = [topic for number in range(options.publishers) for topic in plan.topics_of_publisher(number)]

    assert len(set(topics)) == options.topics
    assert len({len(topic) for topic in topics}) == 1


def test_four_to_four_on_four_topics_are_four_separate_flows() -> None:
    plan = TopicPlan(LoadOptions(publishers=4, subscribers=4, topics=4), "run")

    for number in range(4):
        assert (
            plan.topics_of_publisher(number) == plan.filters_of_subscriber(number) == [f"bench/run/{number}"]
        )
