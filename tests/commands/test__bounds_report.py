"""What `timebound bounds` answers, from inline options and from TOML."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from timebound.commands._bounds_report import describe_inline, describe_toml, report
from timebound.errors import ConfigError

PLANT = """
quantum = "100us"
order = "paper"

[[topic]]
name = "alarm"
weight = 4

[[topic]]
name = "state"
weight = 2

[[topic]]
name = "unused"
weight = 2

[[client]]
name = "press"
publishes = ["alarm", "state"]

[[flow]]
client = "oven"
topic = "alarm"
period = "10ms"
burst = 2
size = 1500
"""


def test_inline_example_of_the_issue() -> None:
    described = describe_inline(
        weights="4,3,2", clients=6, quantum="51.2us", order="paper", flows=["topic=1,rate=723.4,burst=2"]
    )

    flow = report(described).rows[0]

    assert (flow.topic, flow.burst, flow.share) == (1, 2, 4 / 9)
    assert flow.rate == 723.4
    assert flow.bound_printed_ms == pytest.approx(3 * 6 * 0.0512)
    assert flow.bound_ms == flow.bound_tight_ms == pytest.approx(37 * 0.0512)
    assert flow.dominating == "other topics"
    assert report(described).clients == {"each of 6": 1 / 6}


def test_topics_without_a_flow_follow_with_the_bound_of_a_lone_message() -> None:
    rows = report(describe_inline(weights="4,3,2", clients=6, quantum="51.2us", order="paper")).rows

    assert [row.topic for row in rows] == [1, 2, 3]
    assert [row.rate for row in rows] == [None, None, None]
    cells = [row.bound_ms / (6 * 0.0512) for row in rows if row.bound_ms is not None]
    assert cells == pytest.approx([3 + 1 / 6, 4 + 1 / 6, 6 + 1 / 6])


def test_flow_over_its_share_has_a_printed_bound_only() -> None:
    described = describe_inline(weights="1,1", clients=4, quantum="1ms", flows=["topic=2,rate=200"])

    flow = report(described).rows[0]

    assert flow.bound_printed_ms is not None
    assert (flow.bound_ms, flow.bound_tight_ms, flow.dominating) == (None, None, "overload")


def test_description_in_toml_has_real_cell_lengths_and_client_shares() -> None:
    answer = report(describe_toml(PLANT))

    flow, state, unused = answer.rows
    # Weights 4, 2, 2 give the cells A A S U; two clients publish A, one S, nobody U; a message
    # of 1500 bytes takes two quanta, so the burst's second one is through after four cells of A.
    assert (flow.topic, flow.client) == ("alarm", "oven")
    assert flow.bound_tight_ms == pytest.approx(0.1 * (1 + 2 * (2 + 2 + 1)))
    assert flow.bound_ms == pytest.approx(0.1 * (1 + 2 * 4 * 2))
    assert state.bound_tight_ms == pytest.approx(0.1 * (1 + 5))
    assert (unused.bound_tight_ms, unused.dominating) == (None, "no publisher")
    assert answer.clients == {"press": float(Fraction(6, 10)), "oven": float(Fraction(4, 10))}


def test_report_can_be_written_as_json() -> None:
    answer = json.loads(json.dumps(report(describe_toml(PLANT)).as_json()))

    assert answer["rows"][0]["topic"] == "alarm"
    assert set(answer["rows"][0]) >= {"topic", "share", "bound_printed_ms", "bound_ms", "bound_tight_ms"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "4,x"}, "weights: 'x' is not a whole number"),
        ({"weights": "4,0"}, "weights: weight 0 is out of range"),
        ({"clients": 0}, "clients: 0 is out of range"),
        ({"quantum": "51.2"}, "quantum: '51.2' is not a duration"),
        ({"quantum": "0"}, "quantum: '0' is not positive"),
        ({"order": "odd"}, "order: cell order 'odd' is unknown"),
        ({"flows": ["1"]}, "flow: '1' is not name=value"),
        ({"flows": ["topic=3,rate=1"]}, "flow: topic 3 is not one of 1 to 2"),
        ({"flows": ["topic=1"]}, "flow: needs either a rate"),
        ({"flows": ["topic=1,rate=1,period=1s"]}, "flow: needs either a rate"),
        ({"flows": ["topic=1,rate=0"]}, "flow: rate '0' is not a number above zero, per second"),
        ({"flows": ["topic=1,rate=-1"]}, "flow: rate '-1' is not a number above zero"),
        ({"flows": ["topic=1,rate=fast"]}, "flow: rate 'fast'"),
        ({"flows": ["topic=1,period=3"]}, "flow: period '3' is not a duration above zero like 20ms"),
        ({"flows": ["topic=1,rate=1,burst=0"]}, "flow: burst 0 is out of range"),
        ({"flows": ["topic=1,rate=1,brust=2"]}, "flow: 'brust' is unknown"),
    ],
)
def test_inline_mistake_is_named(options: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"weights": "4,3", "clients": 2, "quantum": "1ms"} | options

    with pytest.raises(ConfigError, match=message):
        describe_inline(**given)  # type: ignore[arg-type]  # the table above mixes types on purpose


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x =", "plant.toml: not TOML"),
        ("quantum = '1ms'", "plant.toml: needs at least one"),
        ("topic = 3", r"plant.toml: topic: write it as \[\[topic\]\]"),
        ("[[topic]]\nweight = 3", "plant.toml: topic: has no name"),
        (
            "[[topic]]\nname = 'a'\nweight = 'heavy'",
            "plant.toml: topic.weight: 'heavy' is not a whole number",
        ),
        ("[[client]]\nname = 'c'\npublishes = ['a']", "plant.toml: topic 'a' has no weight"),
        ("[[client]]\nname = 'c'\npublishes = 'a'", "plant.toml: publishes: 'a' is not a list"),
        ("[[flow]]\ntopic = 'a'", "plant.toml: topic 'a' has no weight"),
    ],
)
def test_mistake_in_toml_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        describe_toml(text, "plant.toml")
