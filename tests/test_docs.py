"""The pages under docs, followed as a newcomer would: programs run, and commands exist with their options."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.conftest import BrokerProcess, StartBroker
from timebound.cli import app
from timebound.commands._bounds_report import describe_toml, report
from timebound.core.link.strategy.registry import STRATEGY_NAMES
from timebound.core.values.access import AccessList, AccessRule
from timebound.node.config import load_config

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("decisions/*.md"))]
TIMEOUT_S = 30

JOURNAL = """
sys_interval = "0s"
[[listeners]]
port = 0
[[journals]]
name = "all"
[flight]
port = 0
"""


def programs(page: Path) -> list[str]:
    """The Python blocks of a page that stand on their own; the others are fragments."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    return [block for block in blocks if block.startswith(("import ", "from "))]


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_program_in_the_docs_is_run_by_a_test() -> None:
    found = {page.name: len(programs(page)) for page in PAGES if programs(page)}

    assert found == {"README.md": 1, "channel.md": 1, "client.md": 1, "journal.md": 1, "tutorial.md": 1}


def test_the_program_about_the_client_ends_and_prints_its_message(broker: BrokerProcess) -> None:
    (program,) = programs(DOCS / "client.md")
    code = program.replace('"mqtt://127.0.0.1"', f'"mqtt://127.0.0.1:{broker.port}"')
    assert code != program

    assert re.fullmatch(r"plant/7/temp \{'value': 91.5\} [\d.e-]+\n", run(code))


def test_the_program_about_the_channel_prints_what_the_page_says() -> None:
    (program,) = programs(DOCS / "channel.md")

    printed = run(program).splitlines()

    assert printed[0] == "fused [(52.5, 13.4), 13]"
    assert set(printed[1:]) == {"no heartbeat"}


def test_the_program_about_journals_reads_what_was_published(start_broker: StartBroker) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    broker = start_broker(JOURNAL)
    for value in (20, 95):
        words = ["pub", "plant/7/temperature", f'{{"value": {value}}}', "--qos", "1"]
        command = [sys.executable, "-m", "timebound", *words, "--port", str(broker.port)]
        subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)
    (program,) = programs(DOCS / "journal.md")
    code = program.replace("127.0.0.1:8815", f"127.0.0.1:{broker.port_of('grpc:')}")
    assert code != program

    printed = run(code + '\nprint(table.select(["topic", "payload"]).to_pylist())')

    assert printed == "[{'topic': 'plant/7/temperature', 'payload': b'{\"value\": 95}'}]\n"


def test_the_program_in_the_tutorial_gets_a_delay_bound(broker: BrokerProcess) -> None:
    (program,) = programs(DOCS / "tutorial.md")
    code = program.replace("11883", str(broker.port)).replace("range(3000)", "range(3)")
    assert code.count(str(broker.port)) == 1
    assert "range(3)" in code

    assert re.fullmatch(r"flow 'alarm/7' of client 'press' waits at most [\d.]+ ms\n", run(code))


def toml_of_tutorial(name: str) -> str:
    page = (DOCS / "tutorial.md").read_text()
    (text,) = re.findall(rf"```toml\n# {re.escape(name)}\n(.*?)```", page, re.DOTALL)
    return str(text)


def test_the_brokers_of_the_tutorial_have_valid_configurations(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    page = (DOCS / "tutorial.md").read_text()
    (neighbour,) = re.findall(r"```toml\n(\[\[neighbours\]\].*?)```", page, re.DOTALL)
    (tmp_path / "plant.toml").write_text(toml_of_tutorial("plant.toml") + neighbour)
    (tmp_path / "plant-2.toml").write_text(toml_of_tutorial("plant-2.toml"))

    first, second = (load_config(tmp_path / name) for name in ("plant.toml", "plant-2.toml"))

    assert [neighbour.port for neighbour in first.neighbours] == [second.listeners[0].port]
    assert [first.node_name] == [neighbour.name for neighbour in second.neighbours]


def test_the_bounds_in_the_tutorial_are_what_the_code_gives() -> None:
    rows = report(describe_toml(toml_of_tutorial("flows.toml"))).rows

    page = (DOCS / "tutorial.md").read_text()
    shown = re.findall(r"^    (alarm|log) .* ([\d.]+) +[\d.]+ +other topics$", page, re.MULTILINE)
    assert [(row.topic, f"{row.bound_ms:.3f}") for row in rows] == shown


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s:]+)\)", page.read_text())
    broken = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)

    assert broken == []


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The rows of the table below a heading, without its head."""
    table = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_product_of_the_comparison_in_the_readme_has_a_version_and_a_source() -> None:
    rows = rows_of((DOCS / "comparison.md").read_text(), "What others have")
    head = re.findall(r"^\| \| Timebound \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)[0]

    products = {name for cell in head.split(" | ") for name in cell.split(", ")}

    assert {"Mosquitto", "EMQX", "NATS", "DDS", "Zenoh"} <= products
    assert [name for name in products if not any(name in row[0] for row in rows)] == []
    for row in rows:
        assert all(row), row
        assert len(row) == 4
        assert re.search(r"\d", row[3]), row


def test_make_lists_its_targets_and_runs_them_whatever_files_there_are() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)

    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    targets = re.findall(r"^make ([a-z-]+) +\S", listed, re.MULTILINE)
    assert targets == re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE)
    assert {"help", "run", "test", "test-slow", "dist"} <= set(targets) <= set(phony.split())


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()

    missing = [page.name for page in DOCS.glob("*.md") if f"({page.name}" not in index]

    assert missing == ["README.md"]


def shown_commands() -> list[tuple[str, str]]:
    """Every call of `timebound` in a block of code, with the page it stands on."""
    found = []
    for page in PAGES:
        for line in page.read_text().splitlines():
            command = line.strip().removeprefix("$ ")
            is_code = line.startswith("    ") or not line.startswith(" ")
            if is_code and re.match(r"timebound [a-z]+( |$)", command) and "DIR [" not in command:
                found.append((page.name, command))
    return found


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_a_command_in_the_docs_exists_with_its_options(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    context = command.make_context("timebound", list(words), resilient_parsing=True)

    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    with command.make_context(line, words, parent=context):
        pass


def test_the_description_on_the_page_about_bounds_gives_its_flow_a_bound(tmp_path: Path) -> None:
    (description,) = re.findall(
        r"```toml\n# plant\.toml\n(.*?)```", (DOCS / "bounds.md").read_text(), re.DOTALL
    )

    rows = report(describe_toml(description)).rows

    assert [row.topic for row in rows] == ["alarm", "log"]
    assert rows[0].bound_ms is not None


def documented_strategies() -> tuple[str, ...]:
    table = (DOCS / "scheduling.md").read_text().split("## Strategies")[1].split("\n## ")[0]
    return tuple(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))


def test_the_page_about_scheduling_has_a_row_for_every_strategy() -> None:
    assert documented_strategies() == STRATEGY_NAMES


def test_the_page_about_simulation_names_every_strategy() -> None:
    (listed,) = re.findall(r'^strategy = "\w+" +# (.*)$', (DOCS / "simulation.md").read_text(), re.MULTILINE)

    assert tuple(listed.split(", ")) == STRATEGY_NAMES


@pytest.mark.parametrize(
    ("topic", "without_rules", "with_rules"),
    [
        ("$timebound/advertise/plant", True, True),
        ("$timebound/control/strategy", True, False),
        ("$timebound/link/anna", True, False),
        ("$SYS/broker/version", False, False),
    ],
)
def test_the_topics_of_the_broker_are_open_as_the_page_says(
    topic: str, without_rules: bool, with_rules: bool
) -> None:
    rules = [AccessRule("anna", "all", "plant/#", True)]

    assert AccessList([]).for_client("bert", "b").may_publish(topic) is without_rules
    assert AccessList(rules).for_client("bert", "b").may_publish(topic) is with_rules


SOURCE = ROOT / "src" / "timebound"
ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")
# Pages that tell where things are in the code.
MAPS = (DOCS / "architecture.md", ROOT / "CONTRIBUTING.md")


def named_files(page: Path) -> list[tuple[str, str]]:
    """Every Python file that a page names, with the page; one with `<name>` in it stands for many."""
    names = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)(?=[`:])", page.read_text(encoding="utf-8"))
    return [(page.name, name) for name in sorted(set(names))]


@pytest.mark.parametrize(("page", "name"), [found for page in MAPS for found in named_files(page)])
def test_every_file_that_a_map_of_the_code_names_exists(page: str, name: str) -> None:
    assert (SOURCE / name).is_file() or (ROOT / name).is_file(), f"{page} names {name}"


@pytest.mark.parametrize(
    ("name", "function"), re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py): ([a-z_]+)`", ARCHITECTURE)
)
def test_every_function_that_the_architecture_names_is_in_its_file(name: str, function: str) -> None:
    assert f"def {function}(" in (SOURCE / name).read_text(encoding="utf-8")


def test_the_picture_of_rooms_shows_every_part_and_every_room_of_the_core() -> None:
    shown = set(re.findall(r"[a-z_]+", (DOCS / "rooms.svg").read_text(encoding="utf-8")))
    parts = {
        path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    rooms = {path.name for path in (SOURCE / "core").iterdir() if (path / "__init__.py").exists()}

    assert (parts | rooms) - shown - {"__init__", "__main__", "version"} == set()
