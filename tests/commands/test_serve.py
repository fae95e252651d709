"""`timebound serve`: mistakes end it before anything is opened; options go before the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commands.shell import Run
from tests.conftest import BrokerProcess

from timebound.commands import serve


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


def test_help_shows_its_examples(run: Run) -> None:
    assert serve.EXAMPLES.split("  ")[1].encode() in run("serve", "--help").stdout
