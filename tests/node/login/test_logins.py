"""Passwords that are checked while somebody guesses: a real broker, attackers from other addresses."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path

import pytest
from tests.conftest import StartBroker
from tests.peer import Peer

from timebound.node.login.logins import Logins, Question
from timebound.node.login.passwords import PasswordFile
from timebound.node.login.queue import WAITING_PER_ADDRESS_MAX
from timebound.wire.codec import encode
from timebound.wire.packets import Connect
from timebound.wire.reasons import ReasonCode

GUESSES = 400
BAD_PASSWORD = 0x86
QUOTA_EXCEEDED = 0x97


class SlowPasswords(PasswordFile):
    """Takes as long as the test wants; `right` is right."""

    def __init__(self) -> None:
        super().__init__(Path("none"))
        self.go_on = threading.Event()
        self.checked: list[str] = []

    def reload_if_changed(self) -> bool:
        return False

    def check(self, user: str, password: bytes) -> bool:
        assert self.go_on.wait(10.0)
        self.checked.append(user)
        return password == b"right"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    file = PasswordFile(tmp_path / "users")
    for name in ("ann", "bob"):
        file.set(name, "secret")
    file.save()
    return file.path


def guess(port: int, count: int, address: str = "127.0.0.2") -> list[socket.socket]:
    """Send wrong passwords from another address of this machine, and read no answer."""
    packet = encode(Connect("guesser", username="ann", password=b"guess"), 5)
    opened: list[socket.socket] = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", port), 10.0, source_address=(address, 0))
        one.sendall(packet)
        opened.append(one)
    return opened


def test_guessing_from_one_address_keeps_nobody_else_out(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(f'[security]\npassword_file = "{users}"\n')
    guessers = guess(broker.port, GUESSES)
    try:
        began = time.monotonic()
        with Peer(broker.port) as peer:
            assert peer.connect("right", username="bob", password=b"secret").reason_code == 0
        took_s = time.monotonic() - began
        # A check takes 0.1 s of an idle core. All guesses before this one would take 20 s at the least.
        assert took_s < 5.0
        # And one behind the guesser's address has its turn beside the name that is guessed.
        own = socket.create_connection(("127.0.0.1", broker.port), 10.0, source_address=("127.0.0.2", 0))
        guessers.append(own)
        own.sendall(encode(Connect("neighbour", username="bob", password=b"secret"), 5))
        own.settimeout(15.0)
        assert own.recv(100)[3] == 0  # CONNACK's reason code
    finally:
        for one in guessers:
            one.close()


def test_beyond_its_limit_an_address_is_refused_at_once(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(f'[security]\npassword_file = "{users}"\n')
    guessers = guess(broker.port, WAITING_PER_ADDRESS_MAX + 50, "127.0.0.1")
    try:
        with Peer(broker.port) as peer:
            refused = peer.connect("one-more", username="ann", password=b"guess")
            assert refused.reason_code == QUOTA_EXCEEDED
            assert "logins of this address already wait" in (refused.properties.reason_string or "")
        with Peer(broker.port, 4) as old:
            assert old.connect("one-more", username="ann", password=b"guess").reason_code == 0x88
    finally:
        for one in guessers:
            one.close()


class Answers:
    """Collects answers until there are as many as expected."""

    def __init__(self, count: int) -> None:
        self.codes: list[int] = []
        self._count = count
        self._complete = asyncio.Event()

    def add(self, code: int, reason: str) -> None:
        self.codes.append(code)
        if len(self.codes) == self._count:
            self._complete.set()

    async def wait_complete(self) -> None:
        await asyncio.wait_for(self._complete.wait(), 10.0)


async def test_waiting_logins_are_told_when_the_broker_stops() -> None:
    logins = Logins(asyncio.get_running_loop(), 1)
    passwords = SlowPasswords()
    answers = Answers(3)
    for name in ("a", "b"):
        logins.ask("10.0.0.1", Question(passwords, name, b"right", answers.add))

    logins.shutdown()
    told = list(answers.codes)
    logins.ask("10.0.0.1", Question(passwords, "c", b"right", answers.add))
    passwords.go_on.set()
    await answers.wait_complete()

    assert told == [ReasonCode.SERVER_UNAVAILABLE]  # b; a is being checked
    assert answers.codes[1:] == [ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SUCCESS]
    assert passwords.checked == ["a"]


async def test_a_delayed_address_is_served_when_its_delay_ends() -> None:
    logins = Logins(asyncio.get_running_loop(), 1)
    passwords = SlowPasswords()
    passwords.go_on.set()
    answers = Answers(5)

    for password in (b"wrong", b"wrong", b"wrong", b"wrong", b"right"):
        logins.ask("10.0.0.1", Question(passwords, "a", password, answers.add))
    await answers.wait_complete()
    logins.shutdown()

    assert answers.codes == [BAD_PASSWORD] * 4 + [0]


async def test_a_thread_waits_for_its_answer() -> None:
    logins = Logins(asyncio.get_running_loop(), 1)
    passwords = SlowPasswords()
    passwords.go_on.set()

    right = await asyncio.to_thread(logins.ask_from_thread, "flight", passwords, "a", b"right")
    wrong = await asyncio.to_thread(logins.ask_from_thread, "flight", passwords, "a", b"wrong")
    logins.shutdown()

    assert (right[0], wrong[0]) == (0, BAD_PASSWORD)
