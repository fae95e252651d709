"""Columns that trace records share: every value under its own name, and epochs that are told apart."""

from __future__ import annotations

from timebound.core.values.trace_columns import ColumnsEpoch, MessageColumns, ReceiverColumns, TraceHint


def test_columns_of_messages_keep_each_value() -> None:
    epoch = ColumnsEpoch()

    columns = MessageColumns(epoch, 1, "topic", "publisher", 2, 3, 4, "broker", 5, "00-1-2-01")

    assert columns.epoch is epoch
    assert (columns.number, columns.topic, columns.publisher) == (1, "topic", "publisher")
    assert (columns.timeout_ns, columns.promised_ns, columns.hops) == (2, 3, 4)
    assert (columns.origin, columns.started_ns, columns.traceparent) == ("broker", 5, "00-1-2-01")


def test_columns_of_receivers_keep_each_value() -> None:
    epoch = ColumnsEpoch()

    columns = ReceiverColumns(epoch, 1, "client", "filter", 2, 3, "late", "reason", 4, 5, "link")

    assert columns.epoch is epoch
    assert (columns.number, columns.client_id, columns.topic_filter) == (1, "client", "filter")
    assert (columns.price_micro, columns.penalty_micro) == (2, 3)
    assert (columns.outcome, columns.reason, columns.qos) == ("late", "reason", 4)
    assert (columns.allowed_ns, columns.link) == (5, "link")


def test_every_epoch_is_one_of_its_own() -> None:
    assert ColumnsEpoch() != ColumnsEpoch()


def test_a_hint_knows_nothing_until_it_is_told() -> None:
    hint = TraceHint()
    assert hint.columns is None

    hint.columns = MessageColumns(ColumnsEpoch(), 1, "t", "p", 0, 0, 0, "", 0, "")

    assert hint.columns.topic == "t"
