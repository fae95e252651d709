"""The driver with journals: what waits for them, in which order, and what goes on behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.node.doubles import Build

from timebound.core.account.trace_log import TraceBatch
from timebound.core.values.message import Message
from timebound.wire.packets import Ack, Connect, Pingreq, Publish
from timebound.wire.properties import Properties


class HeldJournals:
    """Journals that have everything on disk when the test says so."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.waiting: list[Callable[[], None]] = []
        self.is_full = False

    def write(self, messages: list[Message]) -> None:
        self.written += [message.topic for message in messages]

    def write_trace(self, batch: TraceBatch) -> None:
        raise AssertionError("nothing is traced")

    def sync(self, done: Callable[[], None]) -> None:
        self.waiting.append(done)

    def is_behind(self) -> bool:
        return self.is_full

    def offsets(self) -> list[tuple[str, int]]:
        return [("kept", len(self.written))]

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done()


async def test_a_kept_message_is_acknowledged_when_journal_and_then_storage_have_it(build: Build) -> None:
    house = build(is_durable=True)
    journals = HeldJournals()
    house.driver.journals = journals
    house.broker.keep_topics(["kept"])
    lasting = Properties()
    lasting.session_expiry_interval = 60
    connection, transport = house.open(Connect("c", properties=lasting))
    house.driver.turn()
    house.storage.finish()
    await asyncio.sleep(0)
    house.send(connection, Publish("kept", b"", 2, packet_id=7))
    house.driver.turn()
    stored_first = len(house.storage.waiting)

    journals.finish()
    await asyncio.sleep(0)
    house.storage.finish()
    before = [type(packet) for packet in transport.packets()]
    await asyncio.sleep(0)

    assert journals.written == ["kept"]
    assert stored_first == 0
    assert Ack not in before
    assert Ack in [type(packet) for packet in transport.packets()]


async def test_what_needs_no_storage_is_acknowledged_when_the_journal_has_it(build: Build) -> None:
    house = build()
    journals = HeldJournals()
    house.driver.journals = journals
    house.broker.keep_topics(["kept"])
    _, transport = house.open(Connect("c"), Publish("kept", b"", 1, packet_id=7))
    house.driver.turn()
    before = [type(packet) for packet in transport.packets()]

    journals.finish()
    await asyncio.sleep(0)

    assert Ack not in before
    assert Ack in [type(packet) for packet in transport.packets()]
    assert house.storage.waiting == []


async def test_publishers_are_read_again_when_the_journals_have_caught_up(build: Build) -> None:
    house = build()
    journals = HeldJournals()
    house.driver.journals = journals
    connection, transport = house.open(Connect("c"))
    house.driver.turn()
    journals.is_full = True
    house.send(connection, Pingreq())
    house.driver.turn()
    was_reading = transport.is_reading

    journals.is_full = False
    journals.finish()
    await asyncio.sleep(0)

    assert not was_reading
    assert transport.is_reading


async def test_what_was_decided_is_on_disk_when_the_driver_says_so(build: Build) -> None:
    house = build()
    journals = HeldJournals()
    house.driver.journals = journals
    stored: list[bool] = []

    house.driver.wait_stored(lambda: stored.append(True))
    journals.finish()
    await asyncio.sleep(0)
    before = list(stored)
    house.storage.finish()

    assert before == []
    assert stored == [True]
