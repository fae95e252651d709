"""A coroutine of a command as a process: its errors are one line, and its exit code tells them apart."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys

import pytest

from timebound.commands._run import FAILED, INTERRUPTED, OK, WRONG, fail, run
from timebound.errors import ClientError, ConfigError, PublishError


async def raising(error: BaseException) -> int:
    await asyncio.sleep(0)
    raise error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ClientError("no answer"), FAILED, "error: no answer\n"),
        (ValueError("--wait must be above zero"), WRONG, "error: --wait must be above zero\n"),
        (ConfigError("no such key"), FAILED, "error: no such key\n"),
        (OSError("disk full"), FAILED, "error: disk full\n"),
        (ClientError("a\x1b[2J"), FAILED, "error: a\\x1b[2J\n"),
        (KeyboardInterrupt(), INTERRUPTED, ""),
    ],
    ids=["client", "value", "own", "system", "escapes", "ctrl-c"],
)
def test_an_error_is_a_line_and_a_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(raising(error), as_json=False) == code
    assert capsys.readouterr() == ("", said)


def test_programs_get_the_reason_code_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(raising(PublishError("refused", reason_code=0x97)), as_json=True) == FAILED

    assert json.loads(capsys.readouterr().out) == {"ok": False, "error": "refused", "reason_code": 0x97}


def test_a_reader_that_closed_the_pipe_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert run(raising(BrokenPipeError()), as_json=False) == OK
        # What Python flushes at its end goes nowhere, and nothing complains.
        pipe.write("left over")
        pipe.flush()
    monkeypatch.undo()

    assert capsys.readouterr().err == ""


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run(raising(ZeroDivisionError()), as_json=False)


def test_warnings_of_the_client_are_shown_while_the_command_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("timebound.client")

    async def warn() -> int:
        logger.warning("reconnecting: %s", "gone\x1b[2J")
        return 3

    assert run(warn(), as_json=False) == 3
    assert capsys.readouterr().err == "warning: reconnecting: gone\\x1b[2J\n"
    assert logger.handlers == []


def test_failing_returns_the_code_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail("2 of 3 messages came", FAILED, 0, as_json=False) == FAILED
    assert capsys.readouterr().err == "error: 2 of 3 messages came\n"
