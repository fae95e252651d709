"""Text of others does not steer a terminal, and is unchanged everywhere else."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BrokerProcess
from timebound.node.serve import _Lines
from timebound.terminal import LINES, safe, safe_bytes

TIMEOUT_S = 30
EVIL = b"\x1b]0;owned\x07\x1b[2J\xc2\x9b31m ok \xff\r\xe2\x80\xae"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain äöü 日本 👩‍🚀", "plain äöü 日本 👩‍🚀"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\x7f\x9b\u2028", "a\\x7f\\x9b\\u2028"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("txt\u202egpj.exe", "txt\\u202egpj.exe"),
        ("a\\b \u00a0c", "a\\b \u00a0c"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text: str, expected: str) -> None:
    assert safe(text) == expected


def test_payload_keeps_its_lines_and_writes_out_other_bytes() -> None:
    assert safe_bytes(b"a\tb\nc\r\xff\x1b") == "a\tb\nc\\r\\xff\\x1b"


@given(st.text())
def test_nothing_that_steers_is_left_in_any_text(text: str) -> None:
    left = safe(text, keep=LINES)

    assert not any((ord(char) < 32 and char not in LINES) or 0x7F <= ord(char) <= 0x9F for char in left)
    assert safe(left, keep=LINES) == left


def on_terminal(arguments: list[str], broker: BrokerProcess) -> bytes:
    """What a command writes to a terminal."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "timebound", *arguments, "--port", str(broker.port)]
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL) as process:
        os.close(slave)
        written = b""
        while True:
            try:
                piece = os.read(master, 4_096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            written += piece
        assert process.wait(TIMEOUT_S) == 0
    os.close(master)
    return written


@pytest.fixture
def evil(broker: BrokerProcess) -> str:
    """A topic with a retained payload that would steer a terminal."""
    topic = "terminal/evil"
    command = [sys.executable, "-m", "timebound", "pub", topic, "--stdin", "--retain", "--qos", "1"]
    subprocess.run(
        [*command, "--port", str(broker.port)], input=EVIL, timeout=TIMEOUT_S, check=True, capture_output=True
    )
    return topic


def test_sub_writes_no_control_characters_to_a_terminal(broker: BrokerProcess, evil: str) -> None:
    written = on_terminal(["sub", evil, "--count", "1"], broker)
    payload = on_terminal(["sub", evil, "--count", "1", "--payload-only"], broker)

    shown = b"\\x1b]0;owned\\x07\\x1b[2J\\x9b31m ok \\xff\\r\\u202e\r\n"
    assert (written, payload) == (b"terminal/evil " + shown, shown)


def test_sub_writes_json_to_a_terminal_that_is_still_json(broker: BrokerProcess) -> None:
    topic = "terminal/text"
    text = "\x1b[2J\x9b31m\u202e ok"
    command = [sys.executable, "-m", "timebound", "pub", topic, text, "--retain", "--qos", "1"]
    subprocess.run([*command, "--port", str(broker.port)], timeout=TIMEOUT_S, check=True, capture_output=True)

    written = on_terminal(["sub", topic, "--count", "1", "--json"], broker).decode()

    assert json.loads(written)["payload"] == text
    assert written.rstrip("\r\n").isascii()


def test_sub_writes_bytes_as_they_are_into_a_pipe(broker: BrokerProcess, evil: str) -> None:
    command = [sys.executable, "-m", "timebound", "sub", evil, "--count", "1", "--port", str(broker.port)]

    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)

    assert done.stdout == b"terminal/evil " + EVIL + b"\n"


def test_line_of_the_log_stays_one_line_and_steers_nothing() -> None:
    record = logging.LogRecord("n", logging.INFO, "", 0, "refused: %s", ("x\x1b[2J\nforged line",), None)

    assert _Lines("%(message)s").format(record) == "refused: x\\x1b[2J\\nforged line"
