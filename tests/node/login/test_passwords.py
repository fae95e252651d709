"""Password hashes and the file that holds them."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.errors import ConfigError
from timebound.node.login import passwords
from timebound.node.login.passwords import PasswordFile, hash_password, user_name_problem, verify

# Made once: each hash costs a tenth of a second.
HASH_OF_SECRET = hash_password("sécret")
# A cheap cost for tests that hash often; the salt is b"saltsalt", the password "pw".
CHEAP_HASH = "$scrypt$ln=4,r=8,p=1$c2FsdHNhbHQ$fTTF7PDuQy7fdkEGmv5nBRTqoX0LvJ4ud3poYZOGzUI"


def write(path: Path, text: str) -> PasswordFile:
    path.write_text(text, "utf-8")
    return PasswordFile.load(path)


def test_a_hash_verifies_its_own_password_alone() -> None:
    assert HASH_OF_SECRET.startswith("$scrypt$ln=15,r=8,p=1$")
    assert verify(HASH_OF_SECRET, "sécret".encode())
    assert not verify(HASH_OF_SECRET, b"secret")
    assert not verify(HASH_OF_SECRET, b"")


def test_the_format_stays_readable_by_later_versions() -> None:
    assert verify(CHEAP_HASH, b"pw")
    assert not verify(CHEAP_HASH, b"pw2")


def test_two_hashes_of_one_password_differ() -> None:
    assert hash_password("sécret") != HASH_OF_SECRET


@pytest.mark.parametrize("password", ["", "x" * 65_536])
def test_a_password_that_mqtt_cannot_carry_is_refused(password: str) -> None:
    with pytest.raises(ValueError, match=r"password has 65536 bytes, at most 65535|password is empty"):
        hash_password(password)


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "plain",
        "$scrypt$ln=15,r=8,p=1$c2FsdHNhbHQ$",
        "$scrypt$ln=0,r=8,p=1$c2FsdHNhbHQ$" + "A" * 43,
        "$scrypt$ln=21,r=8,p=1$c2FsdHNhbHQ$" + "A" * 43,
        "$scrypt$ln=20,r=8,p=1$c2FsdHNhbHQ$" + "A" * 43,
        "$scrypt$ln=4,r=0,p=1$c2FsdHNhbHQ$" + "A" * 43,
        "$scrypt$ln=4,r=8,p=99$c2FsdHNhbHQ$" + "A" * 43,
        "$scrypt$ln=4,r=8,p=1$c2E$" + "A" * 43,
        "$scrypt$ln=4,r=8,p=1$c2FsdHNhbHQ$AAAA",
        "$scrypt$ln=4,r=8,p=1$c2FsdHNhbHQ$A",
        "$scrypt$ln=٣,r=8,p=1$c2FsdHNhbHQ$" + "A" * 43,
    ],
)
def test_a_stored_text_that_is_no_usable_hash_is_refused(stored: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the kinds of text are tested with the file below
        verify(stored, b"pw")


def test_a_saved_file_is_private_and_loads_again(tmp_path: Path) -> None:
    path = tmp_path / "users"
    made = PasswordFile(path)
    made.set("ann", "one")
    made.set("bob", "two")
    made.save()

    loaded = PasswordFile.load(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [line.split(":")[0] for line in path.read_text().splitlines()] == ["ann", "bob"]
    assert loaded.check("bob", b"two")
    assert loaded.check("ann", b"one")
    assert not loaded.check("ann", b"two")
    assert [entry.name for entry in tmp_path.iterdir()] == ["users"]


def test_saving_into_a_missing_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PasswordFile(tmp_path / "missing" / "users").save()

    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.mkdir()

    with pytest.raises(OSError, match="directory"):
        PasswordFile(path).save()

    assert [entry.name for entry in tmp_path.iterdir()] == ["users"]


def test_removing_a_user_ends_a_remembered_login(tmp_path: Path) -> None:
    users = write(tmp_path / "users", f"ann:{CHEAP_HASH}\n")

    assert users.check("ann", b"pw")
    assert users.remove("ann")
    assert not users.remove("ann")
    assert not users.check("ann", b"pw")


def test_changing_a_password_ends_a_remembered_login(tmp_path: Path) -> None:
    users = write(tmp_path / "users", f"ann:{CHEAP_HASH}\n")

    assert users.check("ann", b"pw")
    users.set("ann", "new")

    assert users.check_nowait("ann", b"pw") is None
    assert not users.check("ann", b"pw")
    assert users.check("ann", b"new")


def test_only_a_right_password_is_remembered(tmp_path: Path) -> None:
    users = write(tmp_path / "users", f"ann:{CHEAP_HASH}\n")

    assert users.check_nowait("ann", b"pw") is None
    assert not users.check("ann", b"wrong")
    assert users.check_nowait("ann", b"wrong") is None
    assert users.check("ann", b"pw")
    assert users.check_nowait("ann", b"pw") is True
    assert users.check_nowait("ann", b"wrong") is None
    assert users.check_nowait("bob", b"pw") is None


def test_a_remembered_login_costs_no_scrypt(tmp_path: Path) -> None:
    users = write(tmp_path / "users", f"ann:{HASH_OF_SECRET}\n")
    assert users.check("ann", "sécret".encode())

    started = time.process_time()
    for _ in range(100):
        assert users.check("ann", "sécret".encode())

    # A hundred scrypts take seconds; the remembered ones about a millisecond.
    assert time.process_time() - started < 0.5


def test_an_unknown_user_takes_as_long_as_a_known_one(tmp_path: Path) -> None:
    users = write(tmp_path / "users", f"ann:{HASH_OF_SECRET}\n")

    def seconds(user: str) -> float:
        started = time.process_time()
        assert not users.check(user, b"wrong")
        return time.process_time() - started

    known = min(seconds("ann") for _ in range(3))
    unknown = min(seconds("nobody") for _ in range(3))

    assert 0.5 < unknown / known < 2


def test_a_change_of_the_file_is_seen_on_request(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users = write(path, f"ann:{CHEAP_HASH}\n")
    assert users.check("ann", b"pw")

    assert not users.reload_if_changed()
    path.write_text(f"bob:{CHEAP_HASH}\n")

    assert users.reload_if_changed()
    assert not users.check("ann", b"pw")
    assert users.check("bob", b"pw")
    assert not users.reload_if_changed()


def test_an_unchanged_user_stays_remembered_over_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users = write(path, f"ann:{CHEAP_HASH}\n")
    assert users.check("ann", b"pw")

    path.write_text(f"ann:{CHEAP_HASH}\nbob:{CHEAP_HASH}\n")
    users.reload_if_changed()

    assert users.check_nowait("ann", b"pw") is True


def test_a_file_that_became_wrong_keeps_the_users_known_before(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users = write(path, f"ann:{CHEAP_HASH}\n")

    path.write_text("ann\n")
    with pytest.raises(ConfigError, match=r"users:1: line is not 'name:hash'"):
        users.reload_if_changed()
    assert users.check("ann", b"pw")

    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read: no such file or directory"):
        users.reload_if_changed()
    assert users.check("ann", b"pw")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ann", "line is not 'name:hash'; make it with `timebound passwd`"),
        (f":{CHEAP_HASH}", "user name is empty; clients without a name are anonymous"),
        (f"*:{CHEAP_HASH}", "user name '*' stands for every user in access rules; choose another name"),
        ("ann:secret", "user 'ann': no '$scrypt$...' hash; make it with `timebound passwd`"),
        (f"first:{CHEAP_HASH}", "user 'first' exists twice"),
        (
            "ann:$scrypt$ln=20,r=8,p=1$c2FsdHNhbHQ$AAAA",
            "user 'ann': scrypt cost ln=20,r=8,p=1 needs more than 256 MiB",
        ),
    ],
)
def test_a_wrong_line_is_named_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "users"

    with pytest.raises(ConfigError) as caught:
        write(path, f"# users\n\nfirst:{CHEAP_HASH}\n{line}\n")

    assert str(caught.value) == f"{path}:4: {message}"


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match="is not a text file in UTF-8"):
        PasswordFile.load(path)


@pytest.mark.parametrize("user", ["", "*", "a:b", "#a", " a", "a\n", "a\0b", "\x07"])
def test_a_user_name_that_would_break_the_file_is_refused(tmp_path: Path, user: str) -> None:
    users = PasswordFile(tmp_path / "users")

    with pytest.raises(ValueError, match="user name"):
        users.set(user, "pw")

    assert not users.remove(user)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=12))
def test_an_accepted_user_name_survives_the_file(tmp_path_factory: pytest.TempPathFactory, user: str) -> None:
    if user_name_problem(user):
        return

    path = tmp_path_factory.getbasetemp() / "users"

    assert write(path, f"{user}:{CHEAP_HASH}\n").remove(user)


def test_forgetting_the_oldest_takes_no_longer_where_many_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 35_000
    monkeypatch.setattr(passwords, "verify", lambda hashed, password: True)
    monkeypatch.setattr(PasswordFile, "_fast_hash", lambda file, user, password: password)

    def forgetting_s(most: int) -> float:
        """Time to forget some users, of so many that are remembered."""
        monkeypatch.setattr(passwords, "_REMEMBERED_MAX", most)
        file = PasswordFile(tmp_path / "none")
        file._hashes = {f"u{number}": CHEAP_HASH for number in range(most + count)}
        for number in range(most):
            assert file.check(f"u{number}", b"pw")
        began_s = time.thread_time()
        for number in range(most, most + count):
            assert file.check(f"u{number}", b"pw")
        took_s = time.thread_time() - began_s
        known = [file.check_nowait(f"u{number}", b"pw") for number in range(most + count)]
        assert known == [None] * count + [True] * most
        return took_s

    few_s = min(forgetting_s(10) for _ in range(3))
    assert min(forgetting_s(40_000) for _ in range(2)) < 3.5 * few_s
