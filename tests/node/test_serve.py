"""`timebound serve` as a process: what it prints, how it ends, and what it tells its clients."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.conftest import BrokerProcess, StartBroker
from tests.peer import Peer, join, props

from timebound.config.tls import TlsConfig
from timebound.node.config import ListenerConfig
from timebound.node.serve import ServeOptions, _configure, _url
from timebound.wire.codec import encode
from timebound.wire.packets import Publish, Suback, Subscribe, SubscribeEntry, make_publish

TIMEOUT_S = 30.0


def environment() -> dict[str, str]:
    """This process's, with relative places to import from made absolute: it is used elsewhere."""
    parts = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(part).resolve()) for part in parts)}


def serve(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a broker that is expected to end at once."""
    return subprocess.run(
        [sys.executable, "-m", "timebound", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=cwd,
        env=environment(),
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize(
    ("tls", "is_shared"), [("", True), ('[listeners.tls]\ncertificate = "c.pem"\nkey = "k.pem"\n', False)]
)
def test_a_port_for_browsers_is_at_the_address_of_a_listener_without_tls(
    host: str, tls: str, is_shared: bool, tmp_path: Path
) -> None:
    file = tmp_path / "timebound.toml"
    file.write_text(f'[[listeners]]\nhost = "{host}"\nallow_anonymous = true\n{tls}')

    config, _ = _configure(file, ServeOptions(ws_port=8083), {}, is_persistent=False)

    _, added = config.listeners
    assert (added.kind, added.port) == ("websocket", 8083)
    # One with TLS must not open a network to passwords without it.
    assert added.host == (host if is_shared else "127.0.0.1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_cleanly_and_clients_are_told(start_broker: StartBroker, number: signal.Signals) -> None:
    broker = start_broker()
    with join(broker.port) as peer, join(broker.port, version=4) as old, Peer(broker.port) as silent:
        peer.expect_silence()
        broker.process.send_signal(number)

        assert peer.expect_disconnect(0x8B) == "the broker is stopping"
        assert old.expect_closed() == []
        assert silent.expect_closed() == []
    assert broker.process.wait(TIMEOUT_S) == 0
    assert broker.process.stdout is not None
    assert broker.process.stdout.read().endswith(b"stopped\n")


def test_stop_does_not_wait_for_a_client_that_reads_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    with join(broker.port) as deaf, join(broker.port) as publisher:
        deaf.subscribe("flood")
        for _ in range(20):
            publisher.publish("flood", b"x" * 1_000_000)
        publisher.expect_silence()
        began = time.monotonic()

        assert broker.stop() == 0
        assert time.monotonic() - began < 6.0


def test_greeting_says_where_and_what_to_try(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, "")
    try:
        assert process.urls == [f"mqtt://127.0.0.1:{process.port}"]
    finally:
        assert process.stop() == 0
    assert (tmp_path / "data").is_dir()


def test_port_is_free_again_at_once(start_broker: StartBroker) -> None:
    first = start_broker()
    peer = join(first.port)
    first.stop()
    second = start_broker(f"[[listeners]]\nport = {first.port}\n")
    assert second.port == first.port
    peer.close()


def test_used_port_is_an_error_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = serve("--port", str(port), "--data", str(tmp_path / "data"))

    assert ended.returncode == 1
    assert ended.stderr.endswith(
        f"error: cannot listen on 127.0.0.1:{port}: another program uses this port; choose another one with "
        "--port, or listeners[0].port, or stop that program\n"
    )


def test_used_port_of_the_metrics_is_an_error_that_names_its_key(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "timebound.toml"
        file.write_text(f"[[listeners]]\nport = 0\n[metrics]\nport = {port}\n")
        ended = serve("--config", str(file), "--memory")

    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: another program uses this port" in ended.stderr
    assert "choose another one with metrics.port" in ended.stderr


def test_data_of_a_running_broker_is_refused(broker: BrokerProcess) -> None:
    ended = serve("--port", "0", "--data", str(broker.data))

    assert ended.returncode == 1
    assert "error: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("[limits]\nconnections_max = 0\n", "connections_max"),
        ("[limits\n", "timebound.toml"),
        ('[security]\npassword_file = "missing"\n', "missing"),
        ('[[listeners]]\n[listeners.tls]\ncertificate = "a.pem"\nkey = "a.key"\n', "a.pem"),
    ],
)
def test_wrong_configuration_is_an_error_with_exit_code_2(tmp_path: Path, config: str, said: str) -> None:
    file = tmp_path / "timebound.toml"
    file.write_text(config)
    ended = serve("--config", str(file), "--data", str(tmp_path / "data"))

    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists()


def test_limit_of_open_files_is_logged_with_what_to_do() -> None:
    limited = ["sh", "-c", 'ulimit -n 1000 && exec "$@"', "sh"]
    words = [sys.executable, "-m", "timebound", "serve", "--port", "0", "--memory"]
    with subprocess.Popen(
        [*limited, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.terminate()

    assert line.endswith(
        "connections_max (20000) requires 20256 open files, the limit is 1000: raise the limit with "
        "`ulimit -n 20256` or LimitNOFILE=20256 in a systemd unit, or lower limits.connections_max to 744\n"
    )


def test_memory_leaves_no_trace_on_disk(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "timebound", "serve", "--port", "0", "--memory"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path / "home",
        env=environment(),
    ) as process:
        assert process.stdout is not None
        port = 0
        for line in process.stdout:
            if line.startswith("listening on "):
                port = int(line.rpartition(":")[2])
            if line.startswith("data in memory only"):
                break
        with join(port, "c", properties=props(session_expiry_interval=60)) as peer:
            peer.subscribe("a", qos=2)
        with Peer(port) as peer:
            assert peer.connect("c", clean=False).session_present
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    assert list((tmp_path / "home").iterdir()) == []


def test_log_may_be_json_lines(start_broker: StartBroker) -> None:
    broker = start_broker('[log]\nformat = "json"\nlevel = "info"\n')
    join(broker.port, 'quo"te\n').close()
    broker.wait_logged("connected as")

    entries = [json.loads(line) for line in broker.log().splitlines()]
    assert any("quo" in entry["message"] and entry["level"] == "info" for entry in entries)


def test_many_clients_connect_at_once(broker: BrokerProcess) -> None:
    peers = [Peer(broker.port) for _ in range(300)]
    for number, peer in enumerate(peers):
        assert peer.connect(f"crowd-{number}").reason_code == 0
    peers[0].subscribe("crowd/+")
    for peer in peers:
        peer.publish("crowd/a", b"1")
    assert len([peers[0].expect(Publish) for _ in peers]) == 300
    for peer in peers:
        peer.close()


@pytest.mark.parametrize(
    ("listener", "host", "url"),
    [
        (ListenerConfig(), "127.0.0.1", "mqtt://127.0.0.1:1"),
        (ListenerConfig(), "::1", "mqtt://[::1]:1"),
        (ListenerConfig(kind="websocket", path="/x"), "::", "ws://[::]:1/x"),
        (ListenerConfig(tls=TlsConfig(Path("a"), Path("b"))), "10.0.0.1", "mqtts://10.0.0.1:1"),
        (ListenerConfig(kind="websocket", tls=TlsConfig(Path("a"), Path("b"))), "::1", "wss://[::1]:1/mqtt"),
    ],
)
def test_urls_name_scheme_and_address(listener: ListenerConfig, host: str, url: str) -> None:
    assert _url(listener, host, 1) == url


def tried(process: subprocess.Popen[bytes]) -> str:
    """The command that a broker suggests at its start, or nothing."""
    assert process.stdout is not None
    for line in iter(process.stdout.readline, b""):
        if line.startswith(b"try: "):
            return line.decode().removeprefix("try: ").strip()
        if line == b"stopped\n":
            break
    return ""


def start(folder: Path, config: str) -> subprocess.Popen[bytes]:
    (folder / "t.toml").write_text(config)
    return subprocess.Popen(
        [sys.executable, "-m", "timebound", "serve", "--memory", "--config", str(folder / "t.toml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )


def test_the_suggested_command_always_prints_its_message(tmp_path: Path) -> None:
    with start(tmp_path, "[[listeners]]\nport = 0\n") as process:
        command = tried(process).replace("timebound ", f"{sys.executable} -m timebound ")
        done = [
            subprocess.run(
                ["/bin/sh", "-c", command],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                env=environment(),
            )
            for _ in range(3)
        ]
        process.terminate()

    assert [(one.returncode, one.stdout) for one in done] == [(0, "hello world\n")] * 3


@pytest.mark.parametrize(
    "config",
    [
        "[[listeners]]\nport = 0\n[[acl]]\nuser = 'anna'\nfilter = '#'\n",
        "[[listeners]]\nport = 0\nkind = 'websocket'\n",
    ],
)
def test_nothing_is_suggested_that_would_be_refused(tmp_path: Path, config: str) -> None:
    with start(tmp_path, config) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith(b"data in "):
            pass
        process.terminate()

        assert tried(process) == ""


def flood(port: int, number: int, is_over: threading.Event) -> None:
    """Publish QoS 1 as fast as the broker reads, until the connection ends."""
    frames = [encode(make_publish(f"stop/{number}", b"x" * 100, 1, False, n), 5) for n in range(1, 501)]
    with join(port) as peer, contextlib.suppress(OSError):
        peer.socket.settimeout(0.2)
        while not is_over.is_set():
            with contextlib.suppress(TimeoutError):
                peer.socket.sendall(b"".join(frames))
            with contextlib.suppress(TimeoutError):
                while len(peer.socket.recv(65_536)) == 65_536:
                    pass


def test_stop_under_load_is_quick_and_silent(start_broker: StartBroker) -> None:
    """Full queues, timers that ring while storage is closed, and publishers that do not stop."""
    process = start_broker()
    durable = props(session_expiry_interval=600, receive_maximum=1)
    readers = [join(process.port, f"deaf-{n}", clean=False, properties=durable) for n in range(3)]
    readers += [join(process.port, f"brief-{n}", properties=props(receive_maximum=1)) for n in range(3)]
    for reader in readers:
        reader.subscribe("stop/#", qos=1)
    for number in range(20):
        with join(process.port, f"clock-{number}", clean=False, properties=durable) as absent:
            every = props(user_properties=[("every", "10ms")])
            absent.send(Subscribe(1, [SubscribeEntry("stop/clock", 1)], every))
            while not isinstance(absent.receive(), Suback):
                pass
    watcher = join(process.port)
    watcher.subscribe("$timebound/drops/#")
    is_over = threading.Event()
    threads = [threading.Thread(target=flood, args=[process.port, n, is_over]) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        with join(process.port) as figures:
            figures.subscribe("$SYS/broker/messages/received")
            while int(figures.expect(Publish).payload) < 5_000:
                pass
        began = time.monotonic()
        process.process.terminate()
        code = process.process.wait(60)
        took_s = time.monotonic() - began
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        for peer in [*readers, watcher]:
            peer.close()

    assert code == 0
    assert took_s < 15
    assert " ERROR " not in process.log()
    assert "is closed" not in process.log()
