"""What `deploy` has: judged by the tools of each kind, and started as far as no container engine is needed.

A tool that is not installed skips its test by name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BrokerProcess
from timebound.config.overrides import PREFIX, from_environment
from timebound.node.login.passwords import PasswordFile
from timebound.node.telemetry.figures import FIGURES

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "timebound.service").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
TIMEOUT_S = 60
# Of 10; systemd itself calls what is below 2 well protected.
EXPOSURE_MAX = 2.0
# Made up in containers alone: a volume, and a secret.
CONTAINER_DATA = "/var/lib/timebound"
HEALTH = "127.0.0.1:9464"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def tool(name: str) -> str:
    """The path of a program, beside this Python or on PATH; without it the test is skipped."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def call(*words: str | Path) -> str:
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def documents(path: Path) -> list[Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return list(yaml.safe_load_all(path.read_text()))


def yaml_files() -> list[Path]:
    return sorted(DEPLOY.rglob("*.yaml"))


# --- systemd --------------------------------------------------------------------------


def settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with a program that is there."""
    (start,) = settings("ExecStart")
    copy = tmp_path / "timebound.service"
    copy.write_text(UNIT.replace(start.split()[0], sys.executable))
    return copy


def test_systemd_accepts_the_unit(unit: Path) -> None:
    assert call(tool("systemd-analyze"), "verify", unit) == ""


def test_systemd_finds_a_mistake_in_the_unit(unit: Path) -> None:
    """Whether the test above can fail."""
    unit.write_text(unit.read_text().replace("Type=notify", "Type=notfy"))

    done = subprocess.run([tool("systemd-analyze"), "verify", unit], capture_output=True, check=False)

    assert b"notfy" in done.stderr


def test_systemd_judges_the_unit_well_protected(unit: Path) -> None:
    printed = call(tool("systemd-analyze"), "security", "--offline=yes", unit)

    (exposure,) = re.findall(r"Overall exposure level for timebound\.service: ([\d.]+)", printed)
    assert float(exposure) < EXPOSURE_MAX


def test_the_unit_starts_a_broker_that_tells_systemd_and_reloads(tmp_path: Path) -> None:
    (start,), (reload_command,) = settings("ExecStart"), settings("ExecReload")
    words = shlex.split(start)
    assert words[1] == "serve"
    assert (
        words[words.index("--config") + 1] == f"/etc/{settings('ConfigurationDirectory')[0]}/timebound.toml"
    )
    assert words[words.index("--data") + 1] == f"/var/lib/{settings('StateDirectory')[0]}"
    name, equals, value = settings("Environment")[0].partition("=")
    assert (name, equals) == (f"{PREFIX}TRACE_PATH", "=")
    assert value.startswith(f"/var/lib/{settings('StateDirectory')[0]}/")

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)
        timeout_us = int(settings("WatchdogSec")[0].removesuffix("s")) * 1_000_000
        variables = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": str(timeout_us),
            name: str(tmp_path / "trace"),
        }
        broker = BrokerProcess(tmp_path / "broker", "[trace]\n", variables=variables)
        try:
            assert [manager.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]
            assert reload_command == "/bin/kill -HUP $MAINPID"
            broker.process.send_signal(signal.SIGHUP)
            broker.wait_logged("reloaded access rules")
            assert broker.stop() == 0
        finally:
            broker.kill()


# --- the container --------------------------------------------------------------------


def instruction(name: str) -> str:
    """The last one of this name, on one line."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)[-1]


def test_the_linter_for_dockerfiles_finds_nothing() -> None:
    assert call(tool("hadolint"), DEPLOY / "Dockerfile") == ""


def test_everything_that_the_image_copies_is_sent_to_the_engine() -> None:
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    allowed = re.findall(r"^!(.*)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)

    names = [name for line in copied for name in line.split()]

    assert set(names) == set(allowed)
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_container_is_not_root() -> None:
    assert int(instruction("USER")) > 0


def image_variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(instruction("ENV")))


def start_as_in_the_image(folder: Path, port: int, variables: dict[str, str]) -> subprocess.Popen[str]:
    """Run the image's command with its variables, at places of this machine."""
    program, *words = json.loads(instruction("CMD"))
    assert program == "timebound"
    given = {**image_variables(), **variables, f"{PREFIX}METRICS_PORT": str(port)}
    here = {name: value.replace(CONTAINER_DATA, str(folder / "data")) for name, value in given.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "timebound", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **here, f"{PREFIX}LISTENERS_0_PORT": "0"},
    )


def health_check(port: int) -> list[str]:
    words = json.loads(instruction("HEALTHCHECK").partition(" CMD ")[2])
    assert words[0] == "python"
    assert HEALTH in words[2]
    return [sys.executable, *(word.replace(HEALTH, f"127.0.0.1:{port}") for word in words[1:])]


def test_the_image_starts_a_broker_that_is_healthy_until_it_hangs(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "users")
    users.save()
    port = free_port()
    variables = {f"{PREFIX}SECURITY_PASSWORD_FILE": str(tmp_path / "users")}
    with start_as_in_the_image(tmp_path, port, variables) as broker:
        try:
            assert broker.stdout is not None
            lines = [broker.stdout.readline() for _ in range(3)]
            assert lines[1].startswith("listening on mqtt://0.0.0.0:")
            assert lines[2] == f"data in {(tmp_path / 'data').resolve()}\n"

            healthy = subprocess.run(health_check(port), timeout=TIMEOUT_S, check=False)
            broker.send_signal(signal.SIGSTOP)
            hanging = subprocess.run(
                health_check(port), stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False
            )
            broker.send_signal(signal.SIGCONT)

            assert (healthy.returncode, hanging.returncode) == (0, 1)
            broker.send_signal(getattr(signal, instruction("STOPSIGNAL")))
            broker.communicate(timeout=TIMEOUT_S)
            assert broker.returncode == 0
        finally:
            broker.kill()


def test_the_image_starts_no_broker_at_which_nobody_could_log_in(tmp_path: Path) -> None:
    with start_as_in_the_image(tmp_path, free_port(), {}) as broker:
        _, said = broker.communicate(timeout=TIMEOUT_S)

    assert broker.returncode == 2
    assert f"{PREFIX}LISTENERS_0_HOST: nobody could log in at '0.0.0.0'" in said


# --- compose and Kubernetes -----------------------------------------------------------


@pytest.mark.parametrize("path", yaml_files(), ids=lambda path: path.relative_to(DEPLOY).as_posix())
def test_every_file_is_yaml_and_no_more_than_one_value_for_a_key(path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    assert all(isinstance(document, dict) for document in documents(path))

    for node in yaml.compose_all(path.read_text()):
        assert doubled(yaml, node) == []


def doubled(yaml: Any, node: Any) -> list[str]:
    """Keys that stand twice in a table; the parser takes the last in silence."""
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        found = [key for key in set(keys) if keys.count(key) > 1]
        return found + [name for _, value in node.value for name in doubled(yaml, value)]
    if isinstance(node, yaml.SequenceNode):
        return [name for value in node.value for name in doubled(yaml, value)]
    return []


def test_compose_mounts_what_is_there_and_names_every_volume_and_secret() -> None:
    (compose,) = documents(DEPLOY / "compose.yaml")

    for service in compose["services"].values():
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in compose["volumes"]
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", service["image"])
    assert compose["services"]["broker"]["secrets"] == list(compose["secrets"]) == ["users"]
    build = compose["services"]["broker"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")


def test_prometheus_and_grafana_look_where_the_broker_and_its_figures_are() -> None:
    (compose,) = documents(DEPLOY / "compose.yaml")
    (prometheus,) = documents(DEPLOY / "prometheus.yaml")
    (sources,) = documents(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yaml")
    (provider,) = documents(DEPLOY / "grafana" / "provisioning" / "dashboards" / "timebound.yaml")

    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert host in compose["services"]
    assert port == image_variables()[f"{PREFIX}METRICS_PORT"]
    assert sources["datasources"][0]["url"].split("/")[2].split(":")[0] in compose["services"]
    folder = provider["providers"][0]["options"]["path"]
    assert f"./grafana/dashboards:{folder}:ro" in compose["services"]["grafana"]["volumes"]


def test_the_dashboard_shows_figures_that_there_are() -> None:
    board = json.loads((DEPLOY / "grafana" / "dashboards" / "timebound.json").read_text())
    known = {f"timebound_{figure.metric}" for figure in FIGURES if figure.metric}

    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]

    assert len(shown) > 10
    assert {name for expression in shown for name in re.findall(r"timebound_\w+", expression)} <= known


def test_kubernetes_accepts_the_manifests() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")

    for manifest in documents(DEPLOY / "kubernetes.yaml"):
        validate.validate(manifest, validate.latest_version(), strict=True)


def container() -> Any:
    _, stateful = documents(DEPLOY / "kubernetes.yaml")
    return stateful["spec"]["template"]["spec"]["containers"][0]


def test_kubernetes_asks_for_health_where_it_is_answered() -> None:
    found = container()
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}

    asked = {kind: found[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")}

    assert str(ports["metrics"]) == image_variables()[f"{PREFIX}METRICS_PORT"]
    assert {request["port"] for request in asked.values()} == {"metrics"}
    assert {kind: request["path"] for kind, request in asked.items()} == {
        "startup": "/readyz",
        "readiness": "/readyz",
        "liveness": "/healthz",
    }


def test_every_variable_that_is_set_is_a_key_of_the_configuration() -> None:
    (compose,) = documents(DEPLOY / "compose.yaml")
    names = {
        *image_variables(),
        *compose["services"]["broker"]["environment"],
        *(entry["name"] for entry in container()["env"]),
        *(setting.partition("=")[0] for setting in settings("Environment")),
    }

    found, mistakes = from_environment(dict.fromkeys(names, "1"))

    assert mistakes == []
    assert len(found) == len(names)


def test_nothing_here_is_fetched_from_a_named_host() -> None:
    for path in (path for path in DEPLOY.rglob("*") if path.is_file()):
        hosts = re.findall(r"https?://([^/:\s'\"]+)", path.read_text())
        assert set(hosts) <= {"127.0.0.1", "prometheus"}, path
