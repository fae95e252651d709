"""Frames between a broker and the process that writes its trace: what comes out is what was sent."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from tests.node.trace.doubles import batch_of

from timebound.core.account.account import Account
from timebound.core.account.trace_log import TraceBatch, TraceRecord
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.node.trace.frames import (
    Answer,
    FrameReader,
    FrameWriter,
    read_answer,
    read_exactly,
    send_answer,
)
from timebound.terms import Terms


class Pipe:
    def __init__(self) -> None:
        self.output, self.input = os.pipe()
        self._is_open = True

    def close_input(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.input)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close_input()
    os.close(pipe.output)


def said(record: TraceRecord) -> tuple[object, ...]:
    """All that a record says, without the objects that say it."""
    message, receiver, *numbers = record
    return (
        *(
            message.number,
            message.topic,
            message.publisher,
            message.timeout_ns,
            message.promised_ns,
            message.hops,
        ),
        *(
            receiver.number,
            receiver.client_id,
            receiver.topic_filter,
            receiver.price_micro,
            receiver.penalty_micro,
        ),
        *(receiver.outcome, receiver.reason, receiver.qos, receiver.allowed_ns, receiver.link),
        *numbers,
    )


def records_of(batch: TraceBatch | None) -> list[tuple[object, ...]]:
    assert batch is not None
    return [said(record) for record in batch.records()]


def sent(writer: FrameWriter, reader: FrameReader, batch: TraceBatch) -> TraceBatch | None:
    """Send a batch from another thread: a pipe holds less than some of them."""
    thread = threading.Thread(target=writer.send, args=(batch,))
    thread.start()
    found = reader.read()
    thread.join()
    return found


def test_records_come_out_as_they_went_in(pipe: Pipe) -> None:
    reader, writer = FrameReader(pipe.output), FrameWriter(pipe.input)

    for batch in (batch_of(5), batch_of(1), batch_of(20_000)):
        found = sent(writer, reader, batch)

        assert found is not None
        assert found.count == batch.count
        assert records_of(found) == records_of(batch)


def test_kinds_and_readers_are_sent_once(pipe: Pipe) -> None:
    account = Account()
    account.is_tracing = True
    wanted = Subscription(client_id="reader", topic_filter="t/#", terms=Terms(price=2.5, penalty=0.5))
    reader, writer = FrameReader(pipe.output), FrameWriter(pipe.input)
    lengths = []
    for turn in range(4):
        for number in range(100 if turn < 2 else 101):
            message = Message(f"t/{number}", b"x", 0, False, 1, "p", sequence=turn * 200 + number)
            account.delivered("reader", Delivery(message, 0, False, subscription=wanted), 5)
        batch = account.trace.take()
        sizes = len(batch.runs) + len(batch.rows)

        writer.send(batch)
        head = os.read(pipe.output, 65_536)
        lengths.append(len(head) - sizes)
        # Put back what was only looked at.
        os.write(pipe.input, head)
        found = reader.read()

        assert records_of(found) == records_of(batch)
    assert lengths[0] > 1_000
    assert max(lengths[1:]) < 100
    assert lengths[2] > lengths[1] == lengths[3]


def test_new_tables_replace_the_old_ones(pipe: Pipe) -> None:
    reader, writer = FrameReader(pipe.output), FrameWriter(pipe.input)
    one, other = batch_of(9), batch_of(4, start=7)

    for batch in (one, other, one):
        assert records_of(sent(writer, reader, batch)) == records_of(batch)


@pytest.mark.parametrize("kept", [0, 1, 31, 32, 40, -1])
def test_a_broker_that_ends_within_a_frame_has_said_nothing(pipe: Pipe, kept: int) -> None:
    FrameWriter(pipe.input).send(batch_of(9))
    frame = os.read(pipe.output, 65_536)
    os.write(pipe.input, frame[:kept])
    pipe.close_input()

    assert FrameReader(pipe.output).read() is None


def test_answers_come_out_as_they_went_in(pipe: Pipe) -> None:
    answers = [Answer(), Answer(7, 5, 2, [(40, "trace lost 2 records: über"), (30, "")])]
    for answer in answers:
        send_answer(pipe.input, answer)
    pipe.close_input()

    assert [read_answer(pipe.output), read_answer(pipe.output)] == answers
    assert read_answer(pipe.output) is None


def test_nothing_at_all_can_be_read_exactly(pipe: Pipe) -> None:
    assert read_exactly(pipe.output, 0) == b""
