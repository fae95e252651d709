"""`timebound pub` and `timebound sub` as a shell runs them, against the real broker."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import BrokerProcess, Certificates, StartBroker
from tests.peer import Peer

from timebound.cli import app
from timebound.commands._connection import Connecting
from timebound.commands._options import parse_properties
from timebound.commands._publish import Publishing
from timebound.commands._subscribe import Subscribing
from timebound.node.login.passwords import PasswordFile

LIMIT_S = 20.0


Run = Callable[..., "Done"]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: bytes
    stderr: bytes


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a command in this process, as `timebound` would; starting one takes half a second."""

    def run_here(*words: str | Path) -> Done:
        with pytest.raises(SystemExit) as ended:
            app([str(word) for word in words])
        captured = capfdbinary.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, captured.out, captured.err)

    return run_here


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "timebound", *map(str, words)]


def spawn(*words: str | Path, given: bytes = b"") -> Done:
    """Run a command in a process of its own, with this standard input."""
    done = subprocess.run(command(*words), input=given, capture_output=True, timeout=LIMIT_S, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


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


def test_pub_reads_standard_input_whole_and_sub_prints_payloads_alone(
    run: Run, broker: BrokerProcess
) -> None:
    port = str(broker.port)
    spawn("pub", "pubsub/stdin", "--stdin", "-r", "-q", "1", "-p", port, given=b"two\nlines")

    done = run("sub", "pubsub/stdin", "--payload-only", "--count", "1", "--wait", "20s", "-p", port)

    assert done.stdout == b"two\nlines\n"


def test_pub_as_json_says_what_was_done(run: Run, broker: BrokerProcess) -> None:
    done = run(
        "pub",
        "pubsub/count",
        "abc",
        "-q",
        "1",
        "--count",
        "3",
        "--interval",
        "1ms",
        "--json",
        "-p",
        str(broker.port),
    )

    summary = json.loads(done.stdout)
    assert summary.pop("seconds") > 0.002
    assert summary == {"ok": True, "topic": "pubsub/count", "messages": 3, "bytes": 9, "reason_code": 0x10}


def test_pub_notes_when_nobody_listens(run: Run, broker: BrokerProcess) -> None:
    done = run("pub", "pubsub/nobody", "x", "-q", "1", "-p", str(broker.port))

    assert done.returncode == 0
    assert done.stderr == b"note: no subscription matches 'pubsub/nobody'\n"


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


@pytest.mark.parametrize(("version", "reason_code"), [("4", 0), ("5", 0x90)])
def test_qos_0_message_over_which_the_server_closes_is_a_failure(
    run: Run, start_broker: StartBroker, version: str, reason_code: int
) -> None:
    broker = start_broker("[limits]\ntopic_length_max = 16\n")
    words = ["pub", "t" * 17, "x", "--json", "--mqtt-version", version, "-p", str(broker.port)]

    done = run(*words)

    assert done.returncode == 1
    assert json.loads(done.stdout)["reason_code"] == reason_code
    assert b"messages with QoS 0 may be lost" in done.stderr


def test_qos_0_message_with_an_unreadable_property_is_a_failure_with_the_servers_reason(
    run: Run, broker: BrokerProcess
) -> None:
    words = ["pub", "pubsub/soon", "x", "--property", "timeout=soon", "-p", str(broker.port)]

    done = run(*words)

    assert done.returncode == 1
    assert b"(0x83 implementation specific error: property 'timeout' is 'soon'" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pub", "t"], 2, "give one of PAYLOAD, --file, --stdin and --lines"),
        (["pub", "t", "x", "--stdin"], 2, "give one of PAYLOAD"),
        (["pub", "t", "--lines", "--count", "2"], 2, "--count does not go with --lines"),
        (["pub", "t/#", "x"], 2, "has a wildcard"),
        (["pub", "t", "x", "--timeout", "5"], 2, "'5' is not a duration"),
        (["pub", "t", "x", "--property", "k"], 2, "property 'k' is not written as NAME=VALUE"),
        (["pub", "t", "x", "--qos", "3"], 2, "--qos"),
        (["pub", "t", "--file", "/no/file"], 2, "--file /no/file cannot be used: No such file"),
        (["pub", "t", "x", "--ca-file", "/no/ca"], 2, "--ca-file /no/ca cannot be used: No such file"),
        (["pub", "t", "x", "--ca-file", __file__], 2, "test_pub_and_sub.py cannot be used: "),
        (
            ["sub", "a", "--cert-file", "/no/c", "--key-file", "/no/k"],
            2,
            "--cert-file /no/c and /no/k cannot be used",
        ),
        (["sub", "a", "--user", "u", "--password-file", "/no/p"], 2, "--password-file /no/p cannot be used"),
        (["pub", "t", "x", "--property", "timeout=soon", "-q", "1"], 1, "0x83"),
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


def test_duration_that_cannot_be_read_is_a_wrong_call_of_any_command() -> None:
    done = spawn("calibrate", "--duration", "soon")

    assert done.returncode == 2
    assert b"'soon' is not a duration" in done.stderr


def test_server_that_is_not_there_is_a_failure_for_people_and_programs(run: Run) -> None:
    done = run("pub", "t", "x", "-p", "1", "--json")

    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False
    assert b"127.0.0.1:1 cannot be reached" in done.stderr


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


def test_tls_and_password_options(
    run: Run, start_broker: StartBroker, certificates: Certificates, tmp_path: Path
) -> None:
    users = PasswordFile(tmp_path / "users.txt")
    users.set("ann", "s3cret")
    users.save()
    secret = tmp_path / "password.txt"
    secret.write_text("s3cret\n")
    broker = start_broker(
        "[[listeners]]\nport = 0\nallow_anonymous = false\n"
        f'[listeners.tls]\ncertificate = "{certificates.certificate}"\nkey = "{certificates.key}"\n'
        f'[security]\npassword_file = "{users.path}"\n'
    )
    words = [
        "pub",
        "t",
        "x",
        "-q",
        "1",
        "-p",
        str(broker.port),
        "--ca-file",
        str(certificates.ca),
        "--user",
        "ann",
    ]

    right = run(*words, "--password-file", secret)
    wrong = run(*words, "--password", "guess")

    assert right.returncode == 0, right.stderr
    assert wrong.returncode == 1
    assert b"0x86" in wrong.stderr or b"0x87" in wrong.stderr


def test_large_file_is_published_whole(run: Run, broker: BrokerProcess, tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(bytes(range(256)) * 4_000)
    with Peer(broker.port) as peer:
        peer.connect("pubsub-large")
        peer.subscribe("pubsub/large")

        done = run("pub", "pubsub/large", "--file", path, "-q", "1", "-p", str(broker.port))

        assert done.returncode == 0, done.stderr
        peer.expect_publish("pubsub/large", path.read_bytes())


def test_help_shows_examples(run: Run) -> None:
    for name in ("pub", "sub"):
        done = run(name, "--help")
        assert done.returncode == 0
        assert f"timebound {name}".encode() in done.stdout


def test_properties_keep_their_order() -> None:
    assert parse_properties(("b=1", "a==", "b=")) == [("b", "1"), ("a", "="), ("b", "")]


def test_empty_password_file_is_a_wrong_call(tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.touch()

    with pytest.raises(ValueError, match="is empty"):
        Connecting(password_file=path).client()


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="use one of them"):
        Connecting(password="x", password_file=Path("y")).client()
    with pytest.raises(ValueError, match="leave nothing to print"):
        Subscribing(("a",), retained_only=True, no_retained=True).check()
    with pytest.raises(ValueError, match="give one of"):
        Publishing("a").check()
