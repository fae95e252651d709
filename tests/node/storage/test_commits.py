"""A database that lost acknowledged commits is not used without a word; one that lost none always is."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.conftest import StartBroker
from tests.peer import join

from timebound.core.values.message import Message
from timebound.core.values.store_orders import PutRetained
from timebound.core.values.subscription import Subscription
from timebound.errors import StorageError
from timebound.node.storage import commits as storage_commits
from timebound.node.storage.commits import COMMITS_NAME, read_known
from timebound.node.storage.schema import DATABASE_NAME
from timebound.node.storage.storage import Storage
from timebound.wire.packets import Ack, Publish

NOW_NS = 1_700_000_000_000_000_000
WAL_NAME = DATABASE_NAME + "-wal"


def plain_subscription(*, client_id: str, topic_filter: str, **options: object) -> Subscription:
    return Subscription(client_id=client_id, topic_filter=topic_filter)


def open_storage(path: Path, *, fsync: bool = True, accept_loss: bool = False) -> Storage:
    return Storage.open(path, plain_subscription, fsync=fsync, accept_loss=accept_loss)


def put(storage: Storage, *topics: str) -> None:
    """Store retained messages, each in a commit of its own."""
    for number, topic in enumerate(topics, 1):
        written = threading.Event()
        storage.submit([PutRetained(Message(topic, b"1", 1, True, NOW_NS, sequence=number))], written.set)
        assert written.wait(10.0)


def topics(path: Path, *, accept_loss: bool = False) -> list[str]:
    with open_storage(path, accept_loss=accept_loss) as storage:
        return sorted(message.topic for message in storage.load(NOW_NS).retained)


def killed(source: Path, target: Path) -> Path:
    """The directory as `kill -9` would leave it at this moment."""
    target.mkdir()
    for name in (DATABASE_NAME, WAL_NAME, COMMITS_NAME):
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    return target


def damage(path: Path, at: float) -> None:
    """Flip a byte of the log, at a part of its length."""
    log = path / WAL_NAME
    content = bytearray(log.read_bytes())
    content[int(len(content) * at)] ^= 0xFF
    log.write_bytes(content)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What a killed broker left: five commits in the log."""
    with open_storage(tmp_path / "run") as storage:
        put(storage, "a", "b", "c", "d", "e")
        killed(tmp_path / "run", tmp_path / "left")
    return tmp_path / "left"


def test_a_killed_broker_has_lost_nothing(left: Path) -> None:
    assert topics(left) == ["a", "b", "c", "d", "e"]
    assert topics(left) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("at", [0.001, 0.3, 0.5, 0.9])
def test_damaged_log_is_refused_and_left_as_it_is(left: Path, at: float) -> None:
    damage(left, at)
    before = {name: (left / name).read_bytes() for name in (DATABASE_NAME, WAL_NAME, COMMITS_NAME)}

    with pytest.raises(StorageError, match=r"has lost \d of \d acknowledged commits.*serve --accept-loss"):
        open_storage(left)

    assert {name: (left / name).read_bytes() for name in before} == before


def test_what_is_left_is_used_once_the_loss_is_accepted(left: Path) -> None:
    damage(left, 0.9)

    remaining = topics(left, accept_loss=True)

    assert remaining in (["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"])
    with open_storage(left) as storage:  # and from then on nothing is missing
        put(storage, "f")
    assert topics(left) == [*remaining, "f"]


def test_a_removed_log_is_noticed(left: Path) -> None:
    (left / WAL_NAME).unlink()

    with pytest.raises(StorageError, match="its write-ahead log was damaged or removed"):
        open_storage(left)


def test_a_commit_that_a_crash_cut_short_is_no_loss(tmp_path: Path) -> None:
    """At every length to which a crash may have written the log of the commit under way."""
    with open_storage(tmp_path / "run") as storage:
        put(storage, "a")
        before = killed(tmp_path / "run", tmp_path / "before")
        put(storage, "a", "b")
        after = killed(tmp_path / "run", tmp_path / "after")
    start, end = (before / WAL_NAME).stat().st_size, (after / WAL_NAME).stat().st_size
    assert end > start
    shutil.copy(before / COMMITS_NAME, after / COMMITS_NAME)
    for number, length in enumerate(range(start, end + 1, 512)):
        cut = killed(after, tmp_path / f"cut-{number}")
        with (cut / WAL_NAME).open("rb+") as log:
            log.truncate(length)

        assert "a" in topics(cut)


def test_a_crash_before_the_count_is_written_is_no_loss(tmp_path: Path) -> None:
    with open_storage(tmp_path / "run") as storage:
        put(storage, "a")
        early = (tmp_path / "run" / COMMITS_NAME).read_bytes()
        put(storage, "a", "b")
        left = killed(tmp_path / "run", tmp_path / "left")
    (left / COMMITS_NAME).write_bytes(early)

    assert topics(left) == ["a", "b"]


@pytest.mark.parametrize(
    "content", [b"", bytes(160), b"timebound-commits-1 5 1 - 00000000".ljust(160), b"\xff"]
)
def test_a_count_that_cannot_be_read_keeps_nobody_down(left: Path, content: bytes) -> None:
    (left / COMMITS_NAME).write_bytes(content)

    assert len(topics(left)) == 5
    assert read_known(left) is not None  # written anew


def test_a_new_database_beside_an_old_count_has_lost_nothing(left: Path) -> None:
    for name in (DATABASE_NAME, WAL_NAME):
        (left / name).unlink()

    assert topics(left) == []
    assert topics(left) == []


def test_a_restored_copy_is_used_without_its_count_and_explained_beside_it(tmp_path: Path) -> None:
    with open_storage(tmp_path / "run") as storage:
        put(storage, "a")
    copy = killed(tmp_path / "run", tmp_path / "copy")
    with open_storage(tmp_path / "run") as storage:
        put(storage, "b")

    shutil.copy(copy / DATABASE_NAME, tmp_path / "run" / DATABASE_NAME)
    with pytest.raises(StorageError, match="or an older copy was restored"):
        open_storage(tmp_path / "run")
    (tmp_path / "run" / COMMITS_NAME).unlink()

    assert topics(tmp_path / "run") == ["a"]
    assert topics(copy) == ["a"]  # restored as a whole


def test_a_database_of_an_earlier_version_is_counted_from_its_first_start_on(tmp_path: Path) -> None:
    with open_storage(tmp_path / "run") as storage:
        put(storage, "a")
    connection = sqlite3.connect(tmp_path / "run" / DATABASE_NAME)
    with connection:
        connection.execute("DELETE FROM counter WHERE name != 'sequence_max'")
    connection.close()
    (tmp_path / "run" / COMMITS_NAME).unlink()

    with open_storage(tmp_path / "run") as storage:
        put(storage, "a", "b")
        left = killed(tmp_path / "run", tmp_path / "left")
    (left / WAL_NAME).unlink()

    with pytest.raises(StorageError, match="acknowledged commits"):
        open_storage(left)


@pytest.mark.parametrize("fsync", [True, False])
def test_a_power_cut_may_take_commits_only_without_fsync(
    tmp_path: Path, fsync: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_storage(tmp_path / "run", fsync=fsync) as storage:
        put(storage, "a", "b")
        left = killed(tmp_path / "run", tmp_path / "left")
    (left / WAL_NAME).unlink()
    with pytest.raises(StorageError):  # the machine still runs, so this was no power cut
        open_storage(left, fsync=fsync)

    monkeypatch.setattr(storage_commits, "_boot_id", lambda: "another")
    if fsync:
        with pytest.raises(StorageError):
            open_storage(left, fsync=fsync)
    else:
        open_storage(left, fsync=fsync).close()
        assert "or there was a power cut, which data.fsync = false allows for" in caplog.text


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_count_that_a_crash_cut_short_leaves_the_other(left: Path, damaged: int) -> None:
    known = read_known(left)
    assert known is not None
    content = bytearray((left / COMMITS_NAME).read_bytes())
    content[-16 if damaged else -32] ^= 0xFF
    (left / COMMITS_NAME).write_bytes(content)

    remaining = read_known(left)
    assert remaining is not None
    assert known.commits - 1 <= remaining.commits <= known.commits
    assert topics(left) == ["a", "b", "c", "d", "e"]


def test_both_counts_damaged_are_not_believed(left: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = bytearray((left / COMMITS_NAME).read_bytes())
    content[-16] ^= 0xFF
    content[-32] ^= 0xFF
    (left / COMMITS_NAME).write_bytes(content)

    assert read_known(left) is None
    assert "a loss of commits before this start would not be detected" in caplog.text


def test_broker_refuses_a_damaged_log_until_told_to_go_on(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    with join(broker.port) as peer:
        for number in range(20):
            peer.publish(f"kept/{number}", b"1", 1, retain=True)
            assert peer.expect(Ack).reason_code < 0x80
    broker.kill()
    damage(broker.data, 0.6)

    command = [sys.executable, "-m", "timebound", "serve", "--port", "0", "--data", str(broker.data)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert refused.returncode == 1
    assert "acknowledged commits: its write-ahead log was damaged" in refused.stderr
    assert "Traceback" not in refused.stderr
    with subprocess.Popen(
        [*command, "--accept-loss"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as accepted:
        assert accepted.stdout is not None
        assert accepted.stderr is not None
        try:
            while not (line := accepted.stdout.readline()).startswith("data in"):
                assert line
            assert "continuing with what is left" in accepted.stderr.readline()
        finally:
            accepted.send_signal(signal.SIGTERM)
            accepted.communicate(timeout=10)

    again = start_broker(data=broker.data)
    with join(again.port) as peer:
        peer.subscribe("kept/#")
        assert peer.expect(Publish).topic == "kept/0"
