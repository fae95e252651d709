"""`timebound sub`: what it prints, when it ends, and its exit codes, at a real broker."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.commands.shell import LIMIT_S, Done, Run, command, spawn
from tests.conftest import BrokerProcess

from timebound.commands import sub


@contextmanager
def subscriber(broker: BrokerProcess, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `sub` that is starting; `words` begin with the filter."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command("sub", *words, "-p", str(broker.port)), stdout=pipe, stderr=pipe
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def publish_and_see(run: Run, broker: BrokerProcess, process: subprocess.Popen[bytes], topic: str) -> None:
    """Publish one retained message, so that it does not matter who comes first."""
    done = run("pub", topic, "seen", "--retain", "-q", "1", "-p", str(broker.port))
    assert done.returncode == 0, done.stderr
    assert process.stdout is not None
    assert process.stdout.readline() == f"{topic} seen\n".encode()


def test_sub_prints_what_pub_publishes(run: Run, broker: BrokerProcess) -> None:
    with subscriber(broker, "pubsub/plain/#", "--count", "3", "--wait", "20s") as process:
        publish_and_see(run, broker, process, "pubsub/plain/a")
        lines = spawn("pub", "pubsub/plain/b", "--lines", "-q", "2", "-p", str(broker.port), given=b"1\n2\n")
        out, err = process.communicate(timeout=LIMIT_S)

    assert lines.returncode == 0
    assert out == b"pubsub/plain/b 1\npubsub/plain/b 2\n"
    assert err == b""
    assert process.returncode == 0


def test_sub_as_json_tells_text_from_bytes(run: Run, broker: BrokerProcess, tmp_path: Path) -> None:
    binary = tmp_path / "payload.bin"
    binary.write_bytes(b"\xff\x00")
    port = str(broker.port)
    run("pub", "pubsub/json/text", "grün", "-r", "--property", "unit=C", "--property", "k=a=b", "-p", port)
    run("pub", "pubsub/json/zinary", "--file", binary, "-r", "-q", "1", "-p", port)

    done = run("sub", "pubsub/json/#", "--json", "--count", "2", "--wait", "20s", "-p", port)

    first, second = sorted(
        (json.loads(line) for line in done.stdout.splitlines()), key=lambda row: row["topic"]
    )
    assert first == {
        "topic": "pubsub/json/text",
        "payload": "grün",
        "encoding": "text",
        "qos": 0,
        "retain": True,
        "user_properties": [["unit", "C"], ["k", "a=b"]],
        "age": None,
    }
    assert second["encoding"] == "base64"
    assert base64.b64decode(second["payload"]) == b"\xff\x00"


def test_where_selects(run: Run, broker: BrokerProcess) -> None:
    port = str(broker.port)
    for value in ("80", "95"):
        run("pub", f"pubsub/where/{value}", f'{{"value": {value}}}', "-r", "-q", "1", "-p", port)

    done = run("sub", "pubsub/where/+", "--where", "value > 90", "--retained-only", "-p", port)

    assert done.stdout == b'pubsub/where/95 {"value": 95}\n'
    assert done.returncode == 0


@pytest.mark.parametrize("version", ["4", "5"])
def test_both_versions_work(run: Run, broker: BrokerProcess, version: str) -> None:
    port = str(broker.port)
    run("pub", f"pubsub/v{version}", "x", "-r", "-q", "2", "--mqtt-version", version, "-p", port)

    done = run(
        "sub",
        f"pubsub/v{version}",
        "-q",
        "2",
        "-n",
        "1",
        "--wait",
        "20s",
        "--mqtt-version",
        version,
        "-p",
        port,
    )

    assert done.stdout == f"pubsub/v{version} x\n".encode()


def test_fewer_messages_than_asked_for_within_wait_are_a_failure_that_says_how_many(
    run: Run, broker: BrokerProcess
) -> None:
    port = str(broker.port)
    run("pub", "pubsub/few", "x", "-r", "-q", "1", "-p", port)

    done = run("sub", "pubsub/few", "--count", "2", "--wait", "50ms", "-p", port)

    assert done.returncode == 1
    assert done.stdout == b"pubsub/few x\n"
    assert done.stderr == b"error: 1 of 2 messages came within 50ms\n"


@pytest.mark.parametrize("words", [("--wait", "50ms"), ("--wait", "50ms", "--retained-only")])
def test_wait_without_a_count_is_how_long_to_listen(
    run: Run, broker: BrokerProcess, words: tuple[str, ...]
) -> None:
    done = run("sub", "pubsub/silence", *words, "-p", str(broker.port))

    assert done == Done(0, b"", b"")


def test_sub_warns_of_what_the_server_says_about_a_granted_subscription(
    run: Run, broker: BrokerProcess
) -> None:
    words = ["sub", "pubsub/hint", "--wait", "50ms", "--property", "deadlin=1s", "-p", str(broker.port)]

    assert run(*words) == Done(
        0,
        b"",
        b"warning: subscription to pubsub/hint: unknown property 'deadlin'; did you mean 'deadline'?\n",
    )


def test_ctrl_c_ends_sub_quietly(run: Run, broker: BrokerProcess) -> None:
    with subscriber(broker, "pubsub/interrupt") as process:
        publish_and_see(run, broker, process, "pubsub/interrupt")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)

    assert (out, err) == (b"", b"")
    assert process.returncode == 130


def test_reader_that_closes_the_pipe_ends_sub_quietly_and_at_once(run: Run, broker: BrokerProcess) -> None:
    with subscriber(broker, "pubsub/pipe") as process:
        publish_and_see(run, broker, process, "pubsub/pipe")
        assert process.stdout is not None
        process.stdout.close()

        assert process.wait(LIMIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_session_keeps_messages_while_sub_is_away(run: Run, broker: BrokerProcess) -> None:
    port = str(broker.port)
    words = ["sub", "pubsub/session", "-q", "1", "--client-id", "pubsub-session", "--session-expiry", "1m"]
    run(*words, "--wait", "50ms", "-p", port)
    spawn("pub", "pubsub/session", "--lines", "-q", "1", "-p", port, given=b"1\n2\n")

    done = run(*words, "--count", "2", "--wait", "20s", "-p", port)

    assert done.stdout == b"pubsub/session 1\npubsub/session 2\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["sub", "a", "--cert-file", "/no/c", "--key-file", "/no/k"],
            2,
            "--cert-file /no/c and /no/k cannot be used",
        ),
        (["sub", "a", "--user", "u", "--password-file", "/no/p"], 2, "--password-file /no/p cannot be used"),
        (["sub", "a/#/b"], 2, "has '#' that is not alone in its last level"),
        (["sub", "a", "--where", "value >> 1"], 1, "at character 8"),
        (["sub", "a", "--json", "--payload-only"], 2, "two ways to print"),
        (["sub", "a", "--session-expiry", "1h"], 2, "--session-expiry needs --client-id"),
        (["sub", "a", "--url", "mqtt://x", "--host", "y"], 2, "both --url and --host"),
        (["sub", "a", "--key-file", "k.pem"], 2, "--key-file needs --cert-file"),
        (["sub", "a", "--wait", "0s"], 2, "must be above zero"),
    ],
)
def test_mistakes_have_their_exit_code_and_say_what_would_be_right(
    run: Run, broker: BrokerProcess, words: list[str], code: int, message: str
) -> None:
    done = run(*words, "-p", str(broker.port))

    assert done.returncode == code
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_help_shows_its_examples(run: Run) -> None:
    done = run("sub", "--help")

    assert done.returncode == 0
    assert sub.EXAMPLES.split("  ")[1].encode() in done.stdout
