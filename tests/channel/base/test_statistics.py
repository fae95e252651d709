"""Statistics are snapshots: they stay as they were."""

from __future__ import annotations

from tests.channel.doubles import Recorder, reactive

from timebound.channel.base.dependency import every
from timebound.channel.base.statistics import ChannelStatistics, ConsumerStatistics


def test_snapshot_has_every_account_and_stays_as_it_was() -> None:
    with reactive() as carrier:
        carrier.connect(Recorder(), "a", name="good")
        carrier.connect(Recorder(failing=True), "a", name="bad")
        carrier.connect(Recorder(), every("1s"), name="timer")
        supplier = carrier.supplier("s", "a")
        supplier.push("a")
        before = carrier.statistics()
        supplier.push("a")
        after = carrier.statistics()

    assert before == ChannelStatistics(
        "test",
        suppliers=1,
        timers_set=1,
        consumers=(
            ConsumerStatistics("good", delivered=1, failures=0, dropped=0, queued=0, is_set_apart=False),
            ConsumerStatistics("bad", delivered=0, failures=1, dropped=0, queued=0, is_set_apart=False),
            ConsumerStatistics("timer", delivered=0, failures=0, dropped=0, queued=0, is_set_apart=False),
        ),
    )
    assert [c.delivered for c in after.consumers] == [2, 0, 0]
