"""`timebound serve`: the process of a server: loop, signals, log, greeting."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import uvloop

from timebound.config.overrides import Override
from timebound.config.telemetry import LogConfig
from timebound.errors import ConfigError, StorageError
from timebound.node.config import Config, ListenerConfig, read_config
from timebound.node.memory import set_collecting
from timebound.node.server import Server
from timebound.node.service_manager import READY, STOPPING, ServiceManager
from timebound.terminal import LINES, safe
from timebound.toml.lines import KeyPath
from timebound.version import VERSION, is_compiled

OK = 0
FAILED = 1
WRONG = 2


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What the command line sets; it wins over variables of the environment, and those over the file."""

    host: str | None = None
    port: int | None = None
    data: Path | None = None
    metrics_port: int | None = None
    ws_port: int | None = None
    password_file: Path | None = None


def run(
    config_path: Path | None,
    options: ServeOptions,
    *,
    is_persistent: bool,
    accept_loss: bool = False,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code."""
    config, mistakes = _configure(config_path, options, environment or {}, is_persistent=is_persistent)
    for mistake in mistakes:
        print(f"error: {safe(str(mistake), keep=LINES)}", file=sys.stderr)
    if mistakes:
        return WRONG
    _set_up_log(config.log)
    try:
        manager = ServiceManager(environment or {})
        uvloop.run(_serve(config, is_persistent, accept_loss, manager))
    except (ConfigError, StorageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG if isinstance(error, ConfigError) else FAILED
    return OK


def _configure(
    path: Path | None, options: ServeOptions, environment: Mapping[str, str], *, is_persistent: bool
) -> tuple[Config, list[ConfigError]]:
    overrides = _overrides(options)
    if options.ws_port is not None:
        # Which listener it is about is known once the others are.
        others, _ = read_config(path, environment, overrides, is_persistent=False)
        overrides += _web_listener(others, options.ws_port)
    return read_config(path, environment, overrides, is_persistent=is_persistent)


def _overrides(options: ServeOptions) -> list[Override]:
    keys: list[tuple[str, KeyPath, object]] = [
        ("--host", ("listeners", 0, "host"), options.host),
        ("--port", ("listeners", 0, "port"), options.port),
        ("--data", ("data", "path"), _from_here(options.data)),
        ("--metrics-port", ("metrics", "port"), options.metrics_port),
        ("--password-file", ("security", "password_file"), _from_here(options.password_file)),
    ]
    return [Override(name, at, value) for name, at, value in keys if value is not None]


def _from_here(path: Path | None) -> str | None:
    """Return a path as the command line means it: not relative to the configuration file."""
    return None if path is None else str(path.absolute())


def _web_listener(config: Config, port: int) -> list[Override]:
    """Set the port of the first WebSocket listener; without one, add it at the first listener's address."""
    name = "--ws-port"
    for index, listener in enumerate(config.listeners):
        if listener.kind == "websocket":
            return [Override(name, ("listeners", index, "port"), port)]
    first, index = config.listeners[0], len(config.listeners)
    # A listener with TLS is no reason to send passwords over a network without it.
    host = first.host if first.tls is None else ListenerConfig().host
    values = {"port": port, "kind": "websocket", "host": host, "allow_anonymous": first.allow_anonymous}
    return [
        Override(name, ("listeners", index, key), value) for key, value in values.items() if value is not None
    ]


async def _serve(config: Config, is_persistent: bool, accept_loss: bool, manager: ServiceManager) -> None:
    server = Server(config, is_persistent=is_persistent, accept_loss=accept_loss)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stopping.set)
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    await server.start()
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    # `logging` asks this at its first line, and the answers are kept for ever: if that was in a flood, in
    # memory that can never be returned.
    isinstance("", Mapping)
    # Objects that live as long as the process need not be visited by every collection.
    gc.collect()
    gc.freeze()
    set_collecting()
    _greet(server, config, is_persistent)
    manager.tell(READY)
    feeding = asyncio.create_task(manager.feed_watchdog(), name="timebound-watchdog")
    try:
        await stopping.wait()
        manager.tell(STOPPING)
    finally:
        await server.stop()
        feeding.cancel()
    print("stopped", flush=True)


def _greet(server: Server, config: Config, is_persistent: bool) -> None:
    print(f"timebound {VERSION} ({'compiled' if is_compiled() else 'plain Python, slower'})")
    for listener, host, port in server.addresses():
        print(f"listening on {_url(listener, host, port)}")
    if server.flight_url():
        print(f"listening on {server.flight_url()}")
    print(f"data in {config.data.path.resolve()}" if is_persistent else "data in memory only")
    listener, host, port = server.addresses()[0]
    if _is_open(listener, config):
        where = "" if (host, port) == ("127.0.0.1", 1883) else f" --host {host} --port {port}"
        # Retained, so that it arrives even if the subscriber is ready later.
        print(f"try: timebound pub hello world --retain{where} && timebound sub hello --count 1{where}")
    sys.stdout.flush()


def _is_open(listener: ListenerConfig, config: Config) -> bool:
    """Whether a client may publish and subscribe with no options but the address."""
    security = config.security
    has_rules = bool(security.rules) or security.acl_file is not None
    is_plain = listener.kind == "tcp" and listener.tls is None
    return is_plain and listener.anonymous_allowed and not has_rules


def _url(listener: ListenerConfig, host: str, port: int) -> str:
    secure = listener.tls is not None
    if ":" in host:  # an IPv6 address
        host = f"[{host}]"
    if listener.kind == "websocket":
        scheme = "wss" if secure else "ws"
        return f"{scheme}://{host}:{port}{listener.path}"
    return f"{'mqtts' if secure else 'mqtt'}://{host}:{port}"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(entry)


class _Lines(logging.Formatter):
    """Formats log lines; text from clients can neither control the terminal nor begin a new line."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return safe(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        # A traceback has several lines.
        return safe(super().format(record), keep=LINES)


def _set_up_log(log: LogConfig) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if log.format == "json":
        handler.setFormatter(_JsonLines())
    else:
        formatter = _Lines("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    root = logging.getLogger("timebound")
    root.addHandler(handler)
    root.setLevel(log.level.upper())
