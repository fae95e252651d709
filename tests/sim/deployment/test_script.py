"""Actions are shown as one line."""

from __future__ import annotations

from timebound.sim.deployment.script import Action


def test_action_is_shown_with_time_and_details() -> None:
    assert str(Action(1_500_000_000, "publish", "p", {"number": 3, "topic": "a"})) == (
        "1500ms publish p number=3 topic='a'"
    )
    assert str(Action(0, "crash", "n1")) == "0s crash n1"
