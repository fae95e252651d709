"""The steps of the story: a real broker's trace has every message, and a step that fails says so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from timebound.demo.story import RESULTS, TRACE, Drained, analyse, overload, report
from timebound.errors import TimeboundError


def test_the_trace_has_a_record_for_every_message(tmp_path: Path) -> None:
    outcome = overload(tmp_path / "story", "worth", Drained(125_000.0, 1.0, load=2.0), lambda _passed_s: None)

    [file] = (tmp_path / "story" / TRACE).glob("date=*/node=*/part-*.parquet")
    rows = pq.read_table(file)
    topics = rows["topic"].to_pylist()
    published = {traffic.kind.topic: len(traffic.fates) for traffic in outcome.traffics}
    assert {topic: topics.count(topic) for topic in published} == published

    # The demo ends in order: nothing is lost by hanging up, and both sides count the same arrivals.
    fates = Counter(zip(rows["outcome"].to_pylist(), rows["reason"].to_pylist(), strict=True))
    assert not [reason for _, reason in fates if reason in ("disconnected", "session_expired")]
    sent = sum(count for (ended, _), count in fates.items() if ended != "dropped")
    assert sent == sum(traffic.in_time() + traffic.late() for traffic in outcome.traffics)


def test_a_step_that_fails_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TimeboundError, match="`timebound pipeline run` failed; see above"):
        analyse(tmp_path)
    assert "trace folder" in capfd.readouterr().err

    (tmp_path / RESULTS).mkdir()
    with pytest.raises(TimeboundError, match=r"`timebound report .*` failed; see above"):
        report(tmp_path)
