"""The published figures."""

from __future__ import annotations

from timebound.bench.channel_published import COLLOCATED, CONSUMERS, SUPPLIERS, TWO_PROCESSES


def test_published_tables_are_complete() -> None:
    cells = {(suppliers, consumers) for suppliers in SUPPLIERS for consumers in CONSUMERS}

    assert set(COLLOCATED) == set(TWO_PROCESSES) == cells
    for table in (COLLOCATED, TWO_PROCESSES):
        for near, far in table.values():
            assert near[0] <= near[2] <= near[1]
            assert far[0] <= far[2] <= far[1]
