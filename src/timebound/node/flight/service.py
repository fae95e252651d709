"""Journals over Arrow Flight: access rights, and rows by ranges of offsets.

Requests are JSON. Actions: `journals` lists readable journals, `find` selects a journal for a topic
filter, `publish` publishes staged rows (see `publish.py`), `discard` removes them. A ticket names a
journal, the offsets [start, end), and a selection of rows. Ranges that were removed are returned as a
gap row with their number of rows.

The service runs in its own threads and accesses the broker only through the loop.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from timebound.config.addresses import address_text
from timebound.config.storage import FlightConfig
from timebound.config.values import Config
from timebound.core.predicate.predicate import Predicate, parse
from timebound.core.values.access import AccessList, ClientAccess, covers
from timebound.errors import ConfigError
from timebound.node.flight.answers import Answers, Note, entries, number, text
from timebound.node.flight.publish import RowPublisher
from timebound.node.journal.journals import Journal, Journals
from timebound.node.journal.rows import Selection, check_comparison, gap_row, serve_rows
from timebound.node.login.logins import Logins
from timebound.node.login.passwords import PasswordFile
from timebound.topics import check_filter
from timebound.wire.reasons import ReasonCode

logger = logging.getLogger("timebound.flight")

# Client id for access rules; there is a user name, but no MQTT connection.
CLIENT_ID: Final = "flight"
# The right to subscribe to this topic is the right to read journals of the trace.
TRACE_TOPIC: Final = "$timebound/trace"
_LOGIN: Final = "login"
# A request has a few names and numbers; a content filter has its own limit.
REQUEST_BYTES_MAX: Final = 256 * 1024
STOP_TIMEOUT_S: Final = 5.0
NOT_OFFERED: Final = {
    fl.FlightMethod.GET_SCHEMA: "get_schema is not supported; get_flight_info returns the schema",
    fl.FlightMethod.DO_EXCHANGE: "do_exchange is not supported; use do_get to read and do_put to stage rows",
}
ACTIONS: Final = {
    "journals": "list the readable journals",
    "find": "find the journal that keeps the topics of a filter",
    "publish": "publish staged rows, once per batch of a query",
    "discard": "remove staged rows",
}


class FlightService(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves journals and publishes rows; runs from construction to `stop`."""

    def __init__(
        self,
        config: Config,
        access: AccessList,
        passwords: PasswordFile | None,
        logins: Logins,
        journals: Journals | None,
        publishing: RowPublisher,
        note: Note,
    ) -> None:
        """Start to listen.

        Raises:
            OSError: the address cannot be listened on.
            ConfigError: certificate or key cannot be used.
        """
        self._config = config
        self._journals = journals.journals if journals is not None else []
        self._publishing = publishing
        self._answers = Answers(note)
        self.access = access  # replaced when the rules are reloaded
        flight = config.flight
        try:
            super().__init__(
                location=_location(flight),
                middleware={_LOGIN: _LoginMaker(config, passwords, logins, self._answers)},
                **_tls(flight),
            )
        except pa.ArrowException as error:
            where = address_text(flight.host, flight.port)
            raise OSError(f"cannot listen on {where}: {error}; choose another flight.port") from error

    def stop(self) -> None:
        """Stop listening; running calls get some time to finish, then are abandoned."""
        ending = threading.Thread(target=self.shutdown, name="timebound-flight-stop", daemon=True)
        ending.start()
        ending.join(STOP_TIMEOUT_S)

    # --- Flight -----------------------------------------------------------------------

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        with self._answers.to("list_flights", context.peer()):
            yield from [_info(journal) for journal in self._readable(context)]

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._answers.to("get_flight_info", context.peer()):
            return _info(self._named(context, _path_of(descriptor)))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return list(ACTIONS.items())

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        with self._answers.to(f"action {action.type!r}", context.peer()):
            request = _read_request(action.body.to_pybytes() if action.body is not None else b"")
            yield json.dumps(self._act(context, action.type, request)).encode()

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._answers.to("do_get", context.peer()):
            return self._stream(context, _read_request(ticket.ticket))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._answers.to("do_put", context.peer()):
            request = _read_request(descriptor.command or b"")
            user, access = self._login(context)
            self._publishing.stage(text(request, "stage"), user, access, reader)

    # --- requests ---------------------------------------------------------------------

    def _act(self, context: Any, kind: str, request: dict[str, Any]) -> object:
        user, access = self._login(context)
        if kind == "journals":
            return [self._described(journal) for journal in self._readable(context)]
        if kind == "find":
            return self._described(self._found(context, access, request))
        if kind == "publish":
            staged = [str(name) for name in entries(request, "staged")]
            return self._publishing.publish(
                user, text(request, "query"), number(request, "batch"), staged, access
            )
        if kind == "discard":
            return self._publishing.discard(user, [str(name) for name in entries(request, "staged")])
        raise ValueError(f"unknown action {kind!r}; expected one of {', '.join(ACTIONS)}")

    def _described(self, journal: Journal) -> dict[str, object]:
        # The name that trace files have in their path, so that both tell brokers apart in the same way.
        return {**_description(journal), "node": self._config.node_name}

    def _found(self, context: Any, access: ClientAccess, request: dict[str, Any]) -> Journal:
        """Find a journal by name, or else the narrowest one that has all topics of a filter."""
        name = str(request.get("journal", ""))
        topic_filter = str(request.get("topic", "")) or "#"
        wants_trace = request.get("kind") == "trace"
        if name:
            journal = self._named(context, name, topic_filter)
            if journal.config.trace != wants_trace:
                kept = "trace records" if journal.config.trace else "messages"
                raise ValueError(f"journal {name!r} has {kept}")
            return journal
        check_filter(topic_filter)
        known = [journal for journal in self._journals if journal.config.trace == wants_trace]
        for journal in sorted(known, key=lambda one: -len(one.config.filter)):
            if wants_trace or covers(journal.config.filter, topic_filter):
                self._check_readable(access, journal, topic_filter)
                return journal
        what = "the trace" if wants_trace else repr(topic_filter)
        filters = ", ".join(f"{journal.name} ({journal.config.filter})" for journal in known) or "none"
        raise ValueError(f"no journal has all of {what}; journals: {filters}")

    def _stream(self, context: Any, request: dict[str, Any]) -> Any:
        topic_filter = str(request.get("topic", ""))
        journal = self._named(context, text(request, "journal"), topic_filter)
        start, end = number(request, "start"), number(request, "end")
        log = journal.log
        if request.get("identity") not in (None, log.identity):
            raise ValueError(
                f"journal {journal.name!r} was recreated after offset {start} was obtained: "
                "its offsets now mean other rows"
            )
        if not 0 <= start <= end <= log.next_offset:
            raise ValueError(
                f"offsets {start} to {end} are not in journal {journal.name!r}, "
                f"which ends at {log.next_offset}"
            )
        selection = Selection(topic_filter, self._predicate(journal, request), _comparisons(journal, request))
        schema = _projected(journal.schema, request)
        rows = _rows(journal, start, end, selection, schema)
        return fl.GeneratorStream(schema, self._answers.rows("do_get", rows))

    def _predicate(self, journal: Journal, request: dict[str, Any]) -> Predicate | None:
        where = str(request.get("where", ""))
        if not where:
            return None
        if journal.config.trace:
            raise ValueError("a content filter applies to messages; compare trace records by column")
        return parse(where, length_max=self._config.limits.filter_length_max)

    # --- access -----------------------------------------------------------------------

    def _login(self, context: Any) -> tuple[str, ClientAccess]:
        user = context.get_middleware(_LOGIN).user
        return user, self.access.for_client(user, CLIENT_ID)

    def _readable(self, context: Any) -> list[Journal]:
        _, access = self._login(context)
        return [journal for journal in self._journals if access.may_subscribe(_topic_of(journal))]

    def _named(self, context: Any, name: str, topic_filter: str = "") -> Journal:
        for journal in self._journals:
            if journal.name == name:
                self._check_readable(self._login(context)[1], journal, topic_filter)
                return journal
        known = ", ".join(journal.name for journal in self._readable(context)) or "none"
        raise ValueError(f"unknown journal {name!r}; journals: {known}")

    def _check_readable(self, access: ClientAccess, journal: Journal, topic_filter: str) -> None:
        # A request for some topics requires the right to these, not to all topics of the journal.
        if journal.config.trace or topic_filter in ("", "#"):
            topic_filter = _topic_of(journal)
        check_filter(topic_filter)
        if not access.may_subscribe(topic_filter):
            raise fl.FlightUnauthorizedError(
                f"not_authorized: subscribing to {topic_filter!r} is not allowed"
            )


class _Login(fl.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, user: str) -> None:
        self.user = user


class _LoginMaker(fl.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Authenticates each call by HTTP Basic."""

    def __init__(
        self, config: Config, passwords: PasswordFile | None, logins: Logins, answers: Answers
    ) -> None:
        self._answers = answers
        self._config = config
        self._passwords = passwords
        self._logins = logins

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Login:
        with self._answers.to("a call"):
            # Checked here, since an error of `get_schema` itself would be sent with its traceback.
            if info.method in NOT_OFFERED:
                raise ValueError(NOT_OFFERED[info.method])
            return self._log_in(headers)

    def _log_in(self, headers: dict[str, list[str]]) -> _Login:
        given = headers.get("authorization", [])
        anonymous = self._config.security.anonymous_user
        if not given:
            if not self._config.flight.anonymous_allowed:
                raise fl.FlightUnauthenticatedError("a user name and a password are required")
            return _Login(anonymous)
        user, password = _read_basic(given[0])
        if self._passwords is None:
            if self._config.flight.anonymous_allowed:
                # As on MQTT listeners: the name is not verified, so access rules must not see it.
                return _Login(anonymous)
            raise fl.FlightUnauthenticatedError("no password file is configured")
        if not self._passwords.check_nowait(user, password):
            # The caller's address is not known yet: all calls share one turn.
            code, reason = self._logins.ask_from_thread(CLIENT_ID, self._passwords, user, password)
            if code == ReasonCode.BAD_USER_NAME_OR_PASSWORD:
                raise fl.FlightUnauthenticatedError(reason)
            if code != ReasonCode.SUCCESS:
                raise fl.FlightUnavailableError(reason)
        return _Login(user)


def _read_basic(header: str) -> tuple[str, bytes]:
    scheme, _, encoded = header.partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
        if scheme.lower() == "basic" and colon:
            return user.decode(), password
    except (binascii.Error, UnicodeDecodeError):
        pass
    raise fl.FlightUnauthenticatedError("header authorization is not 'Basic' with user:password in base64")


def _rows(
    journal: Journal, start: int, end: int, selection: Selection, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for first, count, batch in journal.log.read(start, end):
        if batch is None:
            yield gap_row(first, count, journal.schema).select(schema.names)
            continue
        chosen = selection.select(serve_rows(first, batch, journal.schema))
        if chosen.num_rows:
            yield chosen.select(schema.names)


def _projected(schema: pa.Schema, request: dict[str, Any]) -> pa.Schema:
    """Return the requested columns; `offset` and `gap` are always included."""
    if request.get("columns") is None:
        return schema
    names = entries(request, "columns")
    missing = [str(name) for name in names if name not in schema.names]
    if missing:
        raise ValueError(f"unknown column {missing[0]!r}; expected one of {', '.join(schema.names)}")
    return pa.schema([field for field in schema if field.name in ("offset", "gap", *names)])


def _comparisons(journal: Journal, request: dict[str, Any]) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for entry in entries(request, "comparisons"):
        if not isinstance(entry, list) or len(entry) != 3:
            raise ValueError(f"{entry!r} is not a comparison; expected [column, '=', value]")
        name, comparison, value = entry
        check_comparison(journal.schema, str(name), str(comparison), value)
        found.append((str(name), str(comparison), value))
    return found


def _topic_of(journal: Journal) -> str:
    return TRACE_TOPIC if journal.config.trace else journal.config.filter


def _description(journal: Journal) -> dict[str, object]:
    log = journal.log
    next_offset = log.next_offset
    return {
        "journal": journal.name,
        "kind": "trace" if journal.config.trace else "messages",
        "filter": journal.config.filter,
        "identity": log.identity,
        "first": min(log.first_offset, next_offset),
        "next": next_offset,
    }


def _info(journal: Journal) -> Any:
    described = _description(journal)
    ticket = {"journal": journal.name, "start": described["first"], "end": described["next"]}
    endpoint = fl.FlightEndpoint(json.dumps(ticket).encode(), [])
    rows = journal.log.next_offset - journal.log.first_offset
    path = fl.FlightDescriptor.for_path(journal.name)
    return fl.FlightInfo(journal.schema, path, [endpoint], rows, -1)


def _read_request(body: Any) -> dict[str, Any]:
    content = bytes(body)
    if len(content) > REQUEST_BYTES_MAX:
        raise ValueError(f"request has {len(content)} bytes, at most {REQUEST_BYTES_MAX} are allowed")
    try:
        request = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise ValueError("request is not a JSON object")
    return request


def _path_of(descriptor: Any) -> str:
    return b"/".join(descriptor.path or []).decode("utf-8", "replace")


def _location(flight: FlightConfig) -> str:
    host = f"[{flight.host}]" if ":" in flight.host else flight.host
    return f"{'grpc+tls' if flight.tls is not None else 'grpc'}://{host}:{flight.port}"


def _tls(flight: FlightConfig) -> dict[str, Any]:
    tls = flight.tls
    if tls is None:
        return {}
    try:
        options: dict[str, Any] = {
            "tls_certificates": [(tls.certificate.read_bytes(), tls.key.read_bytes())],
        }
        if tls.ca is not None:
            options["root_certificates"] = tls.ca.read_bytes()
            options["verify_client"] = tls.require_client_certificate
    except OSError as error:
        raise ConfigError(f"certificate or key cannot be used: {error}", key="flight.tls") from error
    return options
