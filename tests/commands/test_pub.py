"""`timebound pub`: what it publishes, what it says about it, and its exit codes, at a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands.shell import Run, spawn
from tests.conftest import BrokerProcess, Certificates, StartBroker
from tests.peer import Peer

from timebound.commands import pub
from timebound.node.login.passwords import PasswordFile


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


def test_server_that_is_not_there_is_a_failure_for_people_and_programs(run: Run) -> None:
    done = run("pub", "t", "x", "-p", "1", "--json")

    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False
    assert b"127.0.0.1:1 cannot be reached" in done.stderr


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


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pub", "t"], 2, "give one of PAYLOAD, --file, --stdin and --lines"),
        (["pub", "t", "x", "--stdin"], 2, "give one of PAYLOAD"),
        (["pub", "t", "--lines", "--count", "2"], 2, "--count cannot be combined with --lines"),
        (["pub", "t/#", "x"], 2, "has a wildcard"),
        (["pub", "t", "x", "--timeout", "5"], 2, "'5' is not a duration"),
        (["pub", "t", "x", "--property", "k"], 2, "property 'k' is not written as NAME=VALUE"),
        (["pub", "t", "x", "--qos", "3"], 2, "--qos"),
        (["pub", "t", "--file", "/no/file"], 2, "--file /no/file cannot be used: No such file"),
        (["pub", "t", "x", "--ca-file", "/no/ca"], 2, "--ca-file /no/ca cannot be used: No such file"),
        (["pub", "t", "x", "--ca-file", __file__], 2, "test_pub.py cannot be used: "),
        (["pub", "t", "x", "--property", "timeout=soon", "-q", "1"], 1, "0x83"),
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
    done = run("pub", "--help")

    assert done.returncode == 0
    assert pub.EXAMPLES.split("  ")[1].encode() in done.stdout
