"""One small trace whose tables can be computed by hand."""

from __future__ import annotations

from typing import Any

from tests.pipeline.traces import HOUR, MS, START, dropped, row

DAY = 24 * HOUR


def late(number: int, **values: Any) -> dict[str, Any]:
    return row(number, **{"outcome": "late", "allowed_ns": MS, "penalty_micro": 250_000, **values})


ROWS = [
    row(1),
    row(2, subscriber="u", link="u", price_micro=3_000_000, size_bytes=2_048),
    row(2, price_micro=2),
    late(3, topic="t/2"),
    dropped(4, penalty_micro=7),
    dropped(5, reason="hopeless", penalty_micro=1, allowed_ns=MS, hop=2),
    # An hour and a day later, and with the outcome known 20 ms after it was sent.
    row(6, published_ns=START + HOUR, time_ns=START + HOUR + 23 * MS, qos=1),
    row(7, published_ns=START + DAY, node="n2", subscriber="u", link="u"),
    # Within a contract: waited 2 ms at the input (sent after 3, of which 1 in the queue).
    row(8, publisher="press", promised_ns=2 * MS),
    row(9, publisher="press", promised_ns=2 * MS - 1),
    row(10, publisher="press", promised_ns=0),
]
