"""`timebound serve`: mistakes end it before anything is opened; options go before the file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.commands.shell import Run
from tests.conftest import BrokerProcess

from timebound import Client
from timebound.commands import serve
from timebound.errors import ConnectError
from timebound.node.login.passwords import PasswordFile


def test_every_mistake_of_a_configuration_is_shown_as_check_shows_it(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "timebound.toml"
    file.write_text('[[listeners]]\nhost = "0.0.0.0"\nprot = 8883\n[limits]\nconnections_max = 0\n')

    served = run("serve", "--config", file, "--memory")
    checked = run("check", file)

    assert served.returncode == checked.returncode == 2
    assert served.stderr == checked.stderr
    # Not wrapped, and without a port: that of the misspelt key is not known.
    assert checked.stderr.decode().splitlines() == [
        f"error: {file}:1: listeners[0]: nobody could log in at '0.0.0.0': set security.password_file, "
        'tls.identity = "common_name", or allow_anonymous = true',
        f"error: {file}:3: listeners[0].prot: unknown key; did you mean 'port'?",
        f"error: {file}:5: limits.connections_max: must be at least 1, not 0",
    ]


def test_host_at_which_nobody_could_log_in_is_refused(run: Run, tmp_path: Path) -> None:
    done = run("serve", "--host", "0.0.0.0", "--port", "0", "--data", tmp_path / "data")

    assert done.returncode == 2
    assert "error: --host: nobody could log in at '0.0.0.0': set security.password_file" in done.said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("port", ["-1", "65536", "mqtt"])
def test_a_port_out_of_range_is_a_wrong_call(run: Run, port: str) -> None:
    done = run("serve", "--port", port)

    assert done.returncode == 2
    assert "--port" in done.said


def test_options_go_before_the_file(broker: BrokerProcess) -> None:
    # It was started with --port 0 and a folder of its own; the file says neither.
    assert "port" not in broker.config.read_text()
    assert broker.port != 1883
    assert any(broker.data.iterdir())


async def log_in(port: int, password: str) -> None:
    client = Client("127.0.0.1", port, username="anna", password=password, reconnect=False)
    async with asyncio.timeout(20), client:
        pass


async def test_options_set_passwords_metrics_and_a_listener_for_browsers(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "users")
    users.set("anna", "right")
    users.save()
    options = ("--password-file", str(tmp_path / "users"), "--ws-port", "0")
    broker = BrokerProcess(tmp_path / "broker", "", options=options)
    try:
        assert [url.split(":")[0] for url in broker.urls] == ["mqtt", "ws"]
        await log_in(broker.port, "right")
        with pytest.raises(ConnectError):
            await log_in(broker.port, "wrong")
        assert broker.stop() == 0
    finally:
        broker.kill()


def test_options_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    text = 'node_name = "file"\n[[listeners]]\nport = 0\npath = "/a"\nkind = "websocket"\n'
    variables = {
        "TIMEBOUND_CONFIG_LISTENERS_0_PATH": "/b",
        "TIMEBOUND_CONFIG_LISTENERS_0_HOST": "0.0.0.0",
        "TIMEBOUND_CONFIG_DATA_PATH": str(tmp_path / "not-this"),
    }
    broker = BrokerProcess(tmp_path / "broker", text, options=("--host", "127.0.0.1"), variables=variables)
    try:
        (url,) = broker.urls
        assert url.startswith("ws://127.0.0.1:")
        assert url.endswith("/b")
        assert not (tmp_path / "not-this").exists()
        assert broker.stop() == 0
    finally:
        broker.kill()


def test_the_port_for_browsers_is_that_of_the_listener_they_have(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "timebound.toml"
    file.write_text('[[listeners]]\nport = 1883\n[[listeners]]\nkind = "websocket"\nport = 8083\n')

    done = run("serve", "--config", file, "--ws-port", "1883")

    assert done.stderr == b"error: --ws-port: 127.0.0.1:1883 is used by listener 0\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--metrics-port", "1883"), "--metrics-port: 127.0.0.1:1883 is used by listener 0"),
        (("--ws-port", "1883"), "--ws-port: 127.0.0.1:1883 is used by listener 0"),
        (
            ("--port", "9000", "--ws-port", "9001", "--metrics-port", "9001"),
            "--metrics-port: 127.0.0.1:9001 is used by listener 1",
        ),
        (("--password-file", "/none/users"), "--password-file: /none/users: cannot be read: no such file"),
    ],
)
def test_a_mistake_in_an_option_names_it(
    run: Run, tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    done = run("serve", "--data", tmp_path / "data", *options)

    assert done.returncode == 2
    assert expected in done.said


def test_a_mistake_in_a_variable_ends_serve_and_check_alike(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMEBOUND_CONFIG_LISTENERS_0_PORT", "mqtt")

    served, checked = run("serve", "--memory"), run("check")

    assert served.returncode == checked.returncode == 2
    assert served.stderr == checked.stderr
    assert served.said.startswith("error: TIMEBOUND_CONFIG_LISTENERS_0_PORT: must be a whole number")


def test_help_shows_its_examples(run: Run) -> None:
    assert serve.EXAMPLES.split("  ")[1].encode() in run("serve", "--help").stdout
