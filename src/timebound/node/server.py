"""The broker as a server: opens storage and listeners, and closes them again.

    server = Server(config)
    await server.start()
    ...
    await server.stop()

Start fails as a whole, with one clear error, before anything is changed. On stop, clients receive
DISCONNECT (0x8B), pending data is flushed, and the port is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from timebound.config.input import entrance_options
from timebound.config.limits import core_limits
from timebound.config.tls import TlsConfig
from timebound.core.broker import Broker
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.values.access import AccessList
from timebound.errors import ConfigError
from timebound.linking.join import join_mesh
from timebound.node.calibrate import start_quantum_ns
from timebound.node.clients.connection import Connection
from timebound.node.clients.handshake import Door
from timebound.node.clients.tls import TlsAdapter
from timebound.node.config import Config, ListenerConfig, load_access_list
from timebound.node.driver import PATROL_INTERVAL_S, Driver
from timebound.node.journal.journals import Journals
from timebound.node.listening import cannot_listen
from timebound.node.login.logins import Logins
from timebound.node.login.passwords import PasswordFile
from timebound.node.mesh.dial import Dialler
from timebound.node.storage.storage import NoStorage, Storage
from timebound.node.telemetry.figures import Sources
from timebound.node.telemetry.metrics import MetricsServer
from timebound.node.telemetry.sys_topics import SysTopics
from timebound.node.trace.writer import TraceLimits, TraceWriter
from timebound.packages import FOR_TRACES, require
from timebound.translate import to_subscription
from timebound.units import SECOND
from timebound.wire.reasons import ReasonCode

if TYPE_CHECKING:
    from timebound.node.clients.websocket import Unframing
    from timebound.node.flight.publish import RowPublisher
    from timebound.node.flight.service import FlightService

logger = logging.getLogger("timebound.node")

# Backlog of connections before accept; devices reconnect all at once.
BACKLOG: Final = 4_096
# Time for clients to read their DISCONNECT on stop.
STOP_TIMEOUT_S: Final = 2.0
# Time for closing sessions in order on stop; with many full queues it may not suffice, and the rest is cut.
STOP_CLOSING_NS_MAX: Final = 2 * SECOND
# Open files besides connections: listeners, database, journals, trace.
SPARE_FILES: Final = 256


class Server:
    """One broker, from start to stop."""

    def __init__(self, config: Config, *, is_persistent: bool = True, accept_loss: bool = False) -> None:
        self.config = config
        self._is_persistent = is_persistent
        self._accept_loss = accept_loss
        self._storage: Storage | NoStorage = NoStorage()
        self._listeners: list[tuple[ListenerConfig, asyncio.Server]] = []
        self._contexts: list[ssl.SSLContext | None] = []
        self._doors: list[Door] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._logins: Logins | None = None
        self._passwords: PasswordFile | None = None
        self._trace: TraceWriter | None = None
        self._metrics: MetricsServer | None = None
        self._journals: Journals | None = None
        self._publishing: RowPublisher | None = None
        self._flight: FlightService | None = None
        self._unframing: Unframing | None = None  # of all WebSocket listeners
        self._not_ready = "starting"
        self.driver: Driver | None = None

    async def start(self) -> None:
        """Open everything.

        Raises:
            ConfigError, StorageError: something configured cannot be used.
            OSError: an address cannot be listened on.
        """
        self._log_notices()
        security = self.config.security
        access = load_access_list(security)
        if security.password_file is not None:
            self._passwords = PasswordFile.load(security.password_file)
        self._contexts = _tls_contexts(self.config.listeners)
        loop = asyncio.get_running_loop()
        self._logins = logins = Logins(loop)
        if self._is_persistent:
            data = self.config.data
            self._storage = Storage.open(
                data.path,
                to_subscription,
                on_error=_on_storage_error,
                fsync=data.fsync,
                accept_loss=self._accept_loss,
            )
        try:
            index = WatchedIndex() if self.config.neighbours else None
            broker = self._make_broker(access, index)
            self.driver = Driver(broker, self._storage, self.config.limits, loop, self.config.input)
            now_ns = self.driver.now_ns()
            broker.identify(self.config.node_name, now_ns)
            diallers = self._open_mesh(broker, index, self.driver)
            self._open_journals(broker, self.driver)
            snapshot = self._storage.load(now_ns)
            if self._journals is not None:
                self._journals.expect_repeats(snapshot.offsets, snapshot.publishers())
                self.driver.note_offsets()
            broker.restore(snapshot, now_ns)
            for number, listener in enumerate(self.config.listeners):
                door = Door(listener, self.config, self.driver, access, self._passwords, logins)
                self._doors.append(door)
                self.driver.doors.append(door)
                await self._listen(number, door)
            await self._open_account(broker, now_ns)
            self._open_flight(self.driver, access, logins)
        except BaseException:
            await self.stop()
            raise
        _raise_file_limit(self.config.limits.connections_max)
        self._tasks.append(asyncio.create_task(self._patrol(), name="timebound-patrol"))
        for dialler in diallers:
            self._tasks.append(asyncio.create_task(dialler.run(), name="timebound-neighbour"))
        if self.config.sys_interval_s:
            figures = SysTopics(self._sources(now_ns), self.config.node_name)
            self._tasks.append(asyncio.create_task(self._publish_figures(figures), name="timebound-sys"))
        self.driver.turn()
        self._not_ready = ""

    def _make_broker(self, access: AccessList, index: WatchedIndex | None) -> Broker:
        config = self.config
        quantum_ns = 0 if config.input.quantum_time_s else start_quantum_ns()
        options = entrance_options(config.input, quantum_ns)
        return Broker(core_limits(config.limits), access, self._is_persistent, index, options)

    def _open_mesh(self, broker: Broker, index: WatchedIndex | None, driver: Driver) -> list[Dialler]:
        """Set up the mesh; return the diallers of links to neighbours."""
        if index is None:
            return []
        driver.mesh = mesh = join_mesh(self.config, broker, index, driver)
        return [Dialler(mesh, neighbour, driver) for neighbour in self.config.neighbours if neighbour.host]

    def _sources(self, started_ns: int) -> Sources:
        """Return the parts that figures are read from."""
        driver = self.driver
        assert driver is not None
        return Sources(driver.broker, driver.mesh, self._trace, started_ns)

    async def _open_account(self, broker: Broker, started_ns: int) -> None:
        """Start trace files and metrics."""
        trace = self.config.trace
        if trace.enabled:
            limits = TraceLimits(trace.file_bytes_max, trace.file_age_max_s, trace.disk_bytes_max)
            self._trace = TraceWriter(trace.path, self.config.node_name, limits)
            broker.account.is_tracing = True
            assert self.driver is not None
            self.driver.trace = self._trace
        metrics = self.config.metrics
        if metrics.port:
            assert self.driver is not None
            self._metrics = MetricsServer(self._sources(started_ns), self.driver.now_ns, self.why_not_ready)
            try:
                await self._metrics.start(metrics.host, metrics.port)
            except OSError as error:
                raise cannot_listen(error, metrics.host, metrics.port, "metrics.port") from error

    def _open_journals(self, broker: Broker, driver: Driver) -> None:
        """Open journals; before the first message, wills included."""
        data = self.config.data
        if not self.config.journals:
            return
        if not self._is_persistent:
            raise ConfigError("journals require a data directory; omit --memory", key="journals")
        self._journals = Journals.open(self.config.journals, data.path / "journals", fsync=data.fsync)
        driver.journals = self._journals
        broker.keep_topics(self._journals.topic_filters())
        broker.account.is_tracing |= self._journals.has_trace()

    def _open_flight(self, driver: Driver, access: AccessList, logins: Logins) -> None:
        """Start the Flight service; last, as it serves at once."""
        if not self.config.flight_enabled:
            return
        if not self._is_persistent:
            raise ConfigError("the Flight service requires a data directory; omit --memory", key="flight")
        require("the service for journals", *FOR_TRACES, key="flight")
        from timebound.node.flight.publish import RowPublisher
        from timebound.node.flight.service import FlightService

        self._publishing = RowPublisher(
            self.config.data.path / "flight",
            driver,
            asyncio.get_running_loop(),
            self.config.limits,
            self.config.flight.staged_bytes_max,
        )
        self._flight = FlightService(
            self.config,
            access,
            self._passwords,
            logins,
            self._journals,
            self._publishing,
            driver.note_from_thread,
        )

    def why_not_ready(self) -> str:
        """Return why no client should be sent here; empty if listeners are open and storage is loaded."""
        return self._not_ready

    def flight_url(self) -> str:
        """Return the URL of the Flight service; empty if there is none."""
        if self._flight is None:
            return ""
        flight = self.config.flight
        host = f"[{flight.host}]" if ":" in flight.host else flight.host
        return f"{'grpc+tls' if flight.tls is not None else 'grpc'}://{host}:{self._flight.port}"

    def addresses(self) -> list[tuple[ListenerConfig, str, int]]:
        """Return the real addresses of listeners; the port differs if 0 was configured."""
        found: list[tuple[ListenerConfig, str, int]] = []
        for listener, server in self._listeners:
            for opened in server.sockets:
                address = opened.getsockname()
                found.append((listener, address[0], address[1]))
        return found

    async def stop(self) -> None:
        """Close listeners and connections, then flush and close storage."""
        self._not_ready = "stopping"
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for _, server in self._listeners:
            server.close()
        self._listeners.clear()
        if self._logins is not None:
            self._logins.shutdown()
        if self._flight is not None:
            # Calls that publish wait for the loop, so it keeps running meanwhile.
            await asyncio.to_thread(self._flight.stop)
        if self.driver is not None:
            await self._close_connections(self.driver)
        if self._journals is not None:
            await asyncio.to_thread(self._journals.close)
            # Batches that waited for the journals return to the loop, then go to storage.
            await asyncio.sleep(0)
            if self.driver is not None:
                self.driver.note_offsets()
        if self._metrics is not None:
            self._metrics.close()
        if self._trace is not None:
            await asyncio.to_thread(self._trace.close)
        await asyncio.to_thread(self._storage.close)
        if self._publishing is not None:
            self._publishing.close()

    async def _close_connections(self, driver: Driver) -> None:
        # Every message that waits for a session which ends now would be a notice to every subscriber of drop
        # notices.
        driver.broker.stop_notices()
        until_ns = driver.now_ns() + STOP_CLOSING_NS_MAX
        for connection in list(driver.connections.values()):
            if driver.now_ns() > until_ns:
                break
            try:
                connection.close(ReasonCode.SERVER_SHUTTING_DOWN, "the broker is stopping")
            except Exception as error:
                driver.failed(connection, error)
        driver.turn()
        if driver.connections and driver.now_ns() <= until_ns:
            driver.emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(driver.emptied.wait(), STOP_TIMEOUT_S)
        driver.stop()
        for connection in list(driver.connections.values()):
            connection.abort()

    async def _listen(self, index: int, door: Door) -> None:
        listener = self.config.listeners[index]
        try:
            server = await asyncio.get_running_loop().create_server(
                self._factory(index, door),
                listener.host,
                listener.port,
                backlog=BACKLOG,
                reuse_address=True,
                family=socket.AF_UNSPEC,
            )
        except OSError as error:
            change = f"{'--port, or ' if index == 0 else ''}listeners[{index}].port"
            raise cannot_listen(error, listener.host, listener.port, change) from error
        self._listeners.append((listener, server))

    def _factory(self, index: int, door: Door) -> Callable[[], Any]:
        """Return the factory of protocols: TLS around WebSocket around MQTT, as configured."""
        listener, driver = self.config.listeners[index], self.driver
        assert driver is not None

        def connect() -> Connection:
            return Connection(driver, door)

        inner: Callable[[], Any] = connect
        if listener.kind == "websocket":
            # Imported lazily: costs an eighth of start-up time.
            from timebound.node.clients.websocket import Unframing, WebSocketAdapter

            if self._unframing is None:
                self._unframing = Unframing(asyncio.get_running_loop())
            unframing = self._unframing

            def upgrade() -> WebSocketAdapter:
                return WebSocketAdapter(listener, self.config.limits.packet_size_max, unframing, connect)

            inner = upgrade
        if listener.tls is None:
            return inner

        def encrypt() -> TlsAdapter:
            context = self._contexts[index]  # a reload replaces it
            assert context is not None
            return TlsAdapter(context, driver, listener.label, inner)

        return encrypt

    def reload(self) -> None:
        """Reload access rules, passwords and certificates; with a mistake in any of them, apply nothing.

        A changed password file is applied on its own soon after, by the patrol or the next login.
        """
        assert self.driver is not None
        try:
            access = load_access_list(self.config.security)
            users = self._passwords.read_if_changed() if self._passwords is not None else None
            contexts = _tls_contexts(self.config.listeners)
        except (ConfigError, OSError) as error:
            logger.error("reload failed, the previous access rules and certificates stay: %s", error)
            return
        # All files were read, so nothing below can be refused.
        self._contexts = contexts
        if self._passwords is not None and users is not None:
            self._passwords.apply(users)
        for door in self._doors:
            door.access = access
        if self._flight is not None:
            self._flight.access = access
        self.driver.broker.set_access(access, self.driver.now_ns())
        self.driver.schedule()
        self._log_notices()
        logger.info("reloaded access rules, passwords and certificates")

    def _log_notices(self) -> None:
        """Log what should be changed in the configuration file, though it can be used."""
        for notice in self.config.notices:
            logger.warning("%s", notice)

    async def _patrol(self) -> None:
        assert self.driver is not None
        while True:
            await asyncio.sleep(PATROL_INTERVAL_S)
            self.driver.patrol()
            if self._passwords is not None:
                try:
                    self._passwords.reload_if_changed()
                except ConfigError as error:
                    logger.error("password file has mistakes, the previous users stay: %s", error)

    async def _publish_figures(self, figures: SysTopics) -> None:
        assert self.driver is not None
        self.driver.memory.figures = figures
        while True:
            try:
                figures.publish(self.driver.now_ns())
            except Exception as error:  # they may be published next time
                self.driver.fault("$SYS figures", error)
            self.driver.turn()
            await asyncio.sleep(self.config.sys_interval_s)


def _on_storage_error(error: Exception) -> None:
    logger.error("storage cannot write, acknowledgements wait: %s", error)


def _tls_contexts(listeners: Sequence[ListenerConfig]) -> list[ssl.SSLContext | None]:
    """Make the TLS context of every listener; None without TLS.

    Raises:
        ConfigError: a certificate or key cannot be used; names the listener.
    """
    return [
        None if listener.tls is None else server_context(listener.tls, f"listeners[{index}].tls")
        for index, listener in enumerate(listeners)
    ]


def server_context(tls: TlsConfig, key: str) -> ssl.SSLContext:
    """Return the TLS context of a listener; `key` names its table in mistakes.

    Raises:
        ConfigError: a certificate or key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
            context.verify_mode = ssl.CERT_REQUIRED if tls.require_client_certificate else ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"certificate or key cannot be used: {error}", key=key) from error
    return context


def _raise_file_limit(connections_max: int) -> None:
    """Raise the limit of open files to the number of connections; warn if that is not possible."""
    wanted = connections_max + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        logger.info(
            "connections_max (%d) requires %d open files, the limit is %d: raise the limit with "
            "`ulimit -n %d` or LimitNOFILE=%d in a systemd unit, or lower limits.connections_max to %d",
            connections_max,
            wanted,
            allowed,
            wanted,
            wanted,
            max(allowed - SPARE_FILES, 1),
        )
