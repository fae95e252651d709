"""The README's tour, run as it stands: only the port is filled in."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import BrokerProcess, StartBroker

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TIMEOUT_S = 30


def commands(program: str) -> list[list[str]]:
    """The calls of a program that the README shows, as arguments."""
    lines = [line.strip().removeprefix("$ ") for line in README.splitlines() if line.startswith("    ")]
    return [shlex.split(line)[1:] for line in lines if line.startswith(program + " ")]


def timebound(arguments: list[str], broker: BrokerProcess) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "timebound", *arguments, "--port", str(broker.port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_tour_delivers_only_what_the_filter_selects(start_broker: StartBroker) -> None:
    broker = start_broker()
    subscribe, refused = (call for call in commands("timebound") if call[0] == "sub")
    publishes = [call for call in commands("timebound") if call[0] == "pub"]
    assert len(publishes) == 2

    with timebound([*subscribe, "--count", "1"], broker) as subscriber:
        broker.wait_logged(" connected as ")
        # The message that the filter selects is retained, so that no race with SUBACK matters.
        for call in reversed(publishes):
            with timebound([*call, "--retain"], broker) as publisher:
                assert publisher.wait(TIMEOUT_S) == 0
        printed, _ = subscriber.communicate(timeout=TIMEOUT_S)
    assert printed == 'plant/7/temp {"value": 95}\n'

    with timebound(refused, broker) as subscriber:
        _, complaint = subscriber.communicate(timeout=TIMEOUT_S)
    assert subscriber.returncode == 1
    shown = re.search(r"error: subscription to.*?'value > > 3'\)", README, re.DOTALL)
    assert shown is not None
    assert " ".join(complaint.split()) == " ".join(shown.group().split())


def test_the_python_example_runs(broker: BrokerProcess) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    code = example.replace('Client("127.0.0.1")', f'Client("127.0.0.1", {broker.port})')
    assert code != example

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )

    assert re.fullmatch(r"plant/7/temp \{'value': 95\} [\d.]+ ms old\n", done.stdout), done.stdout


def test_every_page_the_readme_points_at_exists() -> None:
    linked = re.findall(r"\]\(([^)#:]+)\)", README)

    missing = [link for link in linked if not (ROOT / link).exists()]

    assert missing == []
