"""Files that must be refused and left alone, the lock, and migration from an older version."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from timebound.core.values.message import Message
from timebound.core.values.store_orders import PutRetained, PutSession, StoreOrder
from timebound.core.values.subscription import Subscription
from timebound.errors import StorageError
from timebound.node.storage.schema import MIGRATIONS, Migration, lock_directory, open_database
from timebound.node.storage.storage import Storage
from timebound.translate import to_subscription

WAIT_S = 10.0
NOW_NS = 1_700_000_000_000_000_000

WITH_LOG = """
import os, sys
from pathlib import Path
from timebound.core.values.store_orders import PutRetained
from timebound.core.values.message import Message
from timebound.node.storage.storage import Storage
storage = Storage.open(Path(sys.argv[1]), None)
kill = lambda: os.kill(os.getpid(), 9)
messages = [Message(f"t/{n}", bytes(1000), 1, True, 1, sequence=n) for n in range(200)]
storage.submit([PutRetained(message) for message in messages], kill)
storage.close()
"""

HOLDER = """
import sys
from pathlib import Path
from timebound.node.storage.storage import Storage
with Storage.open(Path(sys.argv[1]), None):
    print("open", flush=True)
    sys.stdin.read()
"""

UNPRIVILEGED = """
import os, sys
from pathlib import Path
from timebound.errors import StorageError
from timebound.node.storage.storage import Storage
if os.getuid() == 0:
    os.setuid(65534)
try:
    Storage.open(Path(sys.argv[1]), None)
except StorageError as exc:
    print(exc)
"""


def plain_subscription(*, client_id: str, topic_filter: str, **options: object) -> Subscription:
    return Subscription(client_id=client_id, topic_filter=topic_filter)


def open_storage(path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> Storage:
    return Storage.open(path, plain_subscription, fsync=False, migrations=migrations)


def fill(path: Path) -> None:
    orders: list[StoreOrder] = [PutSession("c", 60, 0, "user")]
    orders += [PutRetained(Message(f"t/{n}", bytes(500), 1, True, NOW_NS, sequence=n)) for n in range(1, 101)]
    with open_storage(path) as storage:
        storage.submit(orders, lambda: None)


def contents(path: Path) -> dict[str, bytes]:
    """Every byte but the lock and the shared memory, which hold nothing of value, nor does an empty log."""
    files = {file.name: file.read_bytes() for file in path.iterdir()}
    if not files.get("timebound.db-wal"):
        files.pop("timebound.db-wal", None)
    return {name: data for name, data in files.items() if not name.endswith((".lock", "-shm"))}


def refusal(path: Path) -> str:
    """The error of opening, after checking that no byte has changed and the lock is free again."""
    before = contents(path)
    with pytest.raises(StorageError) as caught:
        open_storage(path)
    assert contents(path) == before
    os.close(lock_directory(path))
    return str(caught.value)


def run_child(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=30, check=False
    )


def test_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"

    open_storage(path).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / "timebound.db").stat().st_mode) == 0o600


def test_remains_of_an_unfinished_creation_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "timebound.db.new").write_bytes(b"half a database")

    open_storage(tmp_path).close()

    assert not (tmp_path / "timebound.db.new").exists()


def test_file_that_is_not_sqlite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timebound.db").write_bytes(b"shopping list\n" * 1000)

    assert "is not a SQLite database" in refusal(tmp_path)


def test_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timebound.db").touch()

    assert "is an empty file" in refusal(tmp_path)


def test_database_of_another_application_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "timebound.db")
    connection.execute("CREATE TABLE photo (name TEXT)")
    connection.close()

    assert "belongs to another application (application_id=0x0" in refusal(tmp_path)


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    connection = sqlite3.connect(tmp_path / "timebound.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    assert "has schema version 99, this program knows up to 4" in refusal(tmp_path)


def test_newer_schema_that_only_the_log_tells_of_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    script = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1] + "/timebound.db")
connection.execute("PRAGMA user_version = 99")
os.kill(os.getpid(), 9)
"""
    run_child(script, tmp_path)
    assert (tmp_path / "timebound.db-wal").stat().st_size > 0

    assert "has schema version 99" in refusal(tmp_path)


@pytest.mark.parametrize("with_log", [False, True])
def test_corrupt_database_is_refused_with_its_log_untouched(tmp_path: Path, with_log: bool) -> None:
    fill(tmp_path)
    if with_log:
        run_child(WITH_LOG, tmp_path)
        assert (tmp_path / "timebound.db-wal").stat().st_size > 0
    file = tmp_path / "timebound.db"
    size = file.stat().st_size
    with file.open("r+b") as stream:
        for offset in range(4096, size, 4096):
            stream.seek(offset)
            stream.write(b"\xee" * 200)

    assert "is corrupt" in refusal(tmp_path)


def test_truncated_database_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    os.truncate(tmp_path / "timebound.db", 9000)

    assert "is corrupt" in refusal(tmp_path)


def test_database_without_schema_version_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    connection = sqlite3.connect(tmp_path / "timebound.db")
    connection.execute("PRAGMA user_version = 0")
    connection.close()

    assert "schema version is 0, expected 1..4" in refusal(tmp_path)


def test_missing_table_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    connection = sqlite3.connect(tmp_path / "timebound.db")
    connection.execute("DROP TABLE inbound")
    connection.close()

    assert "no such table: inbound" in refusal(tmp_path)


def test_log_without_its_database_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    run_child(WITH_LOG, tmp_path)
    (tmp_path / "timebound.db").unlink()

    assert "'timebound.db' does not: restore the database" in refusal(tmp_path)


def test_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StorageError, match="is not a directory"):
        open_storage(tmp_path / "file")
    with pytest.raises(StorageError, match="is not a directory"):
        open_storage(tmp_path / "file" / "data")


def test_directory_that_cannot_be_written_is_refused() -> None:
    # Not under tmp_path, which only its owner may enter: the child is somebody else.
    directory = Path(tempfile.mkdtemp(prefix="timebound-test-"))
    try:
        directory.chmod(0o555)
        inside = run_child(UNPRIVILEGED, directory)
        below = run_child(UNPRIVILEGED, directory / "data")
    finally:
        directory.chmod(0o700)
        shutil.rmtree(directory)

    assert inside.stdout == f"data directory '{directory}' is not writable: permission denied\n"
    assert below.stdout == f"data directory '{directory}/data' cannot be made: permission denied\n"


def test_database_file_that_cannot_be_written_is_refused() -> None:
    directory = Path(tempfile.mkdtemp(prefix="timebound-test-"))
    try:
        fill(directory)
        (directory / "timebound.lock").unlink()
        directory.chmod(0o777)
        (directory / "timebound.db").chmod(0o444)
        result = run_child(UNPRIVILEGED, directory)
    finally:
        shutil.rmtree(directory)

    assert re.fullmatch(r"database '.*/timebound.db' is not writable: .*\n", result.stdout)


def test_running_broker_keeps_others_out_until_it_is_gone(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(StorageError, match=rf"in use by another broker \(pid {child.pid}\)"):
            open_storage(tmp_path)

        child.send_signal(signal.SIGKILL)
        child.wait(WAIT_S)

    open_storage(tmp_path).close()


def test_same_process_cannot_open_twice(tmp_path: Path) -> None:
    with (
        open_storage(tmp_path),
        pytest.raises(StorageError, match=f"pid {os.getpid()}"),
    ):
        open_storage(tmp_path)


def test_check_that_takes_too_long_lets_the_database_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path)

    open_database(tmp_path, fsync=False, check_s_max=0.0).close()

    assert "stopped after 0.0 s, no damage found so far" in caplog.text


NEXT = (*MIGRATIONS, ("ALTER TABLE session ADD COLUMN note TEXT NOT NULL DEFAULT 'old'",))
NEXT_BUT_ONE = (
    *NEXT,
    ("CREATE TABLE extra (name TEXT)", "INSERT INTO extra SELECT note FROM session"),
)


def test_older_schema_is_migrated_step_by_step_and_its_copy_kept(tmp_path: Path) -> None:
    fill(tmp_path)

    with open_storage(tmp_path, migrations=NEXT_BUT_ONE) as storage:
        snapshot = storage.load(NOW_NS)

    assert [session.user for session in snapshot.sessions] == ["user"]
    assert len(snapshot.retained) == 100
    migrated = sqlite3.connect(tmp_path / "timebound.db")
    assert migrated.execute("SELECT name FROM extra").fetchall() == [("old",)]
    assert migrated.execute("PRAGMA user_version").fetchone() == (len(NEXT_BUT_ONE),)
    migrated.close()
    copy = sqlite3.connect(tmp_path / "timebound.db.version-4")
    assert copy.execute("PRAGMA user_version").fetchone() == (4,)
    assert copy.execute("SELECT count(*) FROM retained").fetchone() == (100,)
    copy.close()


def test_migration_takes_what_is_only_in_the_log(tmp_path: Path) -> None:
    run_child(WITH_LOG, tmp_path)
    assert (tmp_path / "timebound.db-wal").stat().st_size > 0

    with open_storage(tmp_path, migrations=NEXT) as storage:
        assert len(storage.load(NOW_NS).retained) == 200

    copy = sqlite3.connect(tmp_path / "timebound.db.version-4")
    assert copy.execute("SELECT count(*) FROM retained").fetchone() == (200,)
    copy.close()


def test_migrated_database_is_written_as_before(tmp_path: Path) -> None:
    fill(tmp_path)
    written = threading.Event()

    with open_storage(tmp_path, migrations=NEXT) as storage:
        storage.submit([PutSession("d", 60, 0, "")], written.set)

        assert written.wait(WAIT_S)
        assert [session.client_id for session in storage.load(NOW_NS).sessions] == ["c", "d"]


def test_migration_that_fails_changes_nothing_and_the_next_copy_gets_its_own_name(tmp_path: Path) -> None:
    fill(tmp_path)
    broken = (*NEXT, ("CREATE TABLE extra (name TEXT)", "INSERT INTO nowhere VALUES (1)"))

    for _ in range(2):
        with pytest.raises(StorageError, match="no such table: nowhere"):
            open_storage(tmp_path, migrations=broken)

    names = sorted(file.name for file in tmp_path.iterdir() if "version" in file.name)
    assert names == ["timebound.db.version-4", "timebound.db.version-4.2"]
    connection = sqlite3.connect(tmp_path / "timebound.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (4,)
    assert connection.execute("SELECT * FROM session").fetchall() == [("c", 60, 0, "user")]
    connection.close()


def test_wills_of_the_first_version_get_the_user_of_their_session(tmp_path: Path) -> None:
    sink = sqlite3.connect(tmp_path / "timebound.db")
    sink.execute("PRAGMA application_id = 0x54426E64")
    for statement in MIGRATIONS[0]:
        sink.execute(statement)
    sink.execute("INSERT INTO session VALUES ('c', 60, 0, 'ann')")
    for client_id in ("c", "without-session"):
        row = (client_id, 5, 0, 1, "will", b"gone", 0, 0, 0, client_id, b"", "", 0, 0, 0)
        sink.execute(f"INSERT INTO will VALUES ({', '.join('?' * len(row))})", row)
    sink.execute("PRAGMA user_version = 1")
    sink.commit()
    sink.close()

    with open_storage(tmp_path) as storage:
        wills = storage.load(NOW_NS).wills

    assert [(will.client_id, will.user) for will in wills] == [("c", "ann"), ("without-session", "")]


def test_subscriptions_of_the_second_version_are_unnamed_unless_they_had_a_name(tmp_path: Path) -> None:
    sink = sqlite3.connect(tmp_path / "timebound.db")
    sink.execute("PRAGMA application_id = 0x54426E64")
    for statement in (*MIGRATIONS[0], *MIGRATIONS[1]):
        sink.execute(statement)
    sink.execute("INSERT INTO session VALUES ('c', 60, 0, 'ann')")
    for topic_filter, text in (
        ("a", ""),
        ("b", '[["deadline","1s"],["site","name"]]'),
        ("c", '[["site","7"],["name","hot"]]'),
    ):
        row = ("c", topic_filter, 1, 0, 0, 0, 5, text)
        sink.execute(f"INSERT INTO subscription VALUES ({', '.join('?' * len(row))})", row)
    sink.execute("PRAGMA user_version = 2")
    sink.commit()
    sink.close()

    with Storage.open(tmp_path, to_subscription, fsync=False) as storage:
        found = storage.load(NOW_NS).sessions[0].subscriptions

    known = [
        (one.topic_filter, one.terms.name, one.terms.deadline_ns, one.qos, one.identifier) for one in found
    ]
    assert known == [("a", "", 0, 1, 5), ("b", "", 1_000_000_000, 1, 5), ("c", "hot", 0, 1, 5)]
    rows = sqlite3.connect(tmp_path / "timebound.db")
    assert rows.execute("SELECT name, topic_filter FROM subscription ORDER BY 2").fetchall() == [
        ("", "a"),
        ("", "b"),
        ("hot", "c"),
    ]
    rows.close()
