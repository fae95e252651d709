"""From TOML to configuration values; every mistake is reported with line and key.

The reader does not stop at a mistake: it notes it, uses the default instead, and returns both the
values and the mistakes. Only the text is checked here; `node/config.py` checks the files that it
names.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from timebound.config.addresses import address_text, hosts_meet
from timebound.config.input import InputConfig, WeightEntry
from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.mesh import MeshConfig, NeighbourConfig
from timebound.config.names import key_text, suggestion, tables_under
from timebound.config.overrides import Override, lay_over, overridden_under
from timebound.config.renames import RENAMED, ConfigNotice
from timebound.config.scheduling import scheduling_of
from timebound.config.security import TO_LOG_IN, AclEntry, SecurityConfig
from timebound.config.storage import DataConfig, FlightConfig, JournalConfig, TraceConfig
from timebound.config.telemetry import LogConfig, MetricsConfig
from timebound.config.tls import NeighbourTlsConfig, TlsConfig
from timebound.config.values import TABLES, Config
from timebound.core.link.scheduling import parse_share
from timebound.core.values.access import ANONYMOUS, ANYONE, AccessRule
from timebound.errors import ConfigError, FilterError
from timebound.toml.lines import KeyPath, key_lines
from timebound.toml.reader import WrongValue, read_value, shown
from timebound.toml.renames import occurrences, rename
from timebound.toml.setting import KeySpec, format_size, settings_of
from timebound.topics import check_filter
from timebound.units import SECOND, format_duration

_NODE_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")
EMPTY_HOST: Final = 'is empty; "0.0.0.0" or "::" listens on every address'
_TOML_PLACE: Final = re.compile(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$")


class ConfigReader:
    """Reads one document into `config` and `mistakes`."""

    def __init__(self, text: str, path: Path | None, overrides: Sequence[Override] = ()) -> None:
        self.mistakes: list[ConfigError] = []
        self.config = Config()
        # Every path in the document by its key, also in tables with other mistakes.
        self.paths: dict[KeyPath, Path] = {}
        # Without a file there are only defaults and what is set outside it.
        self._file = "" if path is None else str(path)
        self._folder = Path() if path is None else path.parent
        self._overrides = overrides
        self._lines: dict[KeyPath, int] = {}
        self._noted: list[KeyPath] = []
        self._notices: list[ConfigNotice] = []
        document = self._parse(text)
        self.is_toml = document is not None  # else `config` has only defaults
        if document is not None:
            self._rename(document)
            self.mistakes += lay_over(document, overrides)
            self._check_names(document)
            self.config = self._read(document)
            self._check_listeners()
            self._check_flight()
            self._check_neighbours()
            self._check_limits()
            self._check_ports()

    def note(self, at: KeyPath, message: str) -> None:
        """Note a mistake at a key, or at the nearest enclosing table in the document."""
        self._noted.append(at)
        self.mistakes.append(self._mistake(at, message))

    def _mistake(self, at: KeyPath, message: str) -> ConfigError:
        for override in self._overrides:
            if override.at == at:
                return ConfigError(message, key=override.name)
        nearest = at
        while nearest and nearest not in self._lines:
            names = overridden_under(self._overrides, nearest)
            if names:
                return ConfigError(f"{message} (with {', '.join(names)})", key=key_text(at))
            nearest = nearest[:-1]
        line = self._lines.get(nearest, 1)
        return ConfigError(message, path=self._file, line=line, key=key_text(at))

    def notice(self, at: KeyPath, message: str) -> ConfigNotice:
        """Return a notice about a key, or the nearest enclosing table in the document."""
        placed = self._mistake(at, message)
        return ConfigNotice(message, placed.path, placed.line, placed.key)

    def is_noted(self, *at: str | int) -> bool:
        """Whether a mistake is noted there; the default used instead must not be checked."""
        return any(noted[: len(at)] == at for noted in self._noted)

    def _parse(self, text: str) -> dict[str, Any] | None:
        # tomllib reads \r\n as one line end; the scanner must see the same lines.
        text = text.replace("\r\n", "\n")
        try:
            document = tomllib.loads(text)
            self._lines = key_lines(text)
            return document
        except RecursionError:
            self.note((), "values are nested too deeply")
        except ValueError as exc:
            place = _TOML_PLACE.search(str(exc))
            line = int(place[1]) if place and place[1] else text.count("\n") + 1 if place else 1
            message = _TOML_PLACE.sub("", str(exc))
            self.mistakes.append(
                ConfigError(f"not valid TOML: {message[:1].lower()}{message[1:]}", path=self._file, line=line)
            )
        return None

    def _rename(self, document: dict[str, Any]) -> None:
        """Read old names of keys as the new ones; both at once are a mistake."""
        for one in rename(document, self._lines, RENAMED):
            if one.is_double:
                self.note(one.at, one.message)
            else:
                line = self._lines.get(one.at, 1)
                notice = ConfigNotice(one.message, self._file, line, key_text(one.at))
                self._notices.append(notice)

    def _read(self, document: dict[str, Any]) -> Config:
        values = self._table(Config, document, ())
        return Config(
            **values,
            data=self._data(document),
            listeners=self._listeners(document),
            security=self._security(document),
            limits=Limits(**self._table(Limits, document.get("limits", {}), ("limits",))),
            input=self._input(document),
            trace=self._trace(document),
            journals=self._journals(document),
            flight=self._flight(document),
            neighbours=self._neighbours(document),
            mesh=MeshConfig(**self._table(MeshConfig, document.get("mesh", {}), ("mesh",))),
            metrics=MetricsConfig(**self._table(MetricsConfig, document.get("metrics", {}), ("metrics",))),
            log=LogConfig(**self._table(LogConfig, document.get("log", {}), ("log",))),
            notices=tuple(self._notices),
        )

    def _data(self, document: dict[str, Any]) -> DataConfig:
        values = self._table(DataConfig, document.get("data", {}), ("data",))
        # Data lies beside the file, wherever the broker is started.
        values.setdefault("path", self._folder / DataConfig().path)
        return DataConfig(**values)

    def _input(self, document: dict[str, Any]) -> InputConfig:
        values = self._table(InputConfig, document.get("input", {}), ("input",))
        weights: list[WeightEntry] = []
        for raw, at in self._tables(document, "weights"):
            entry = self._table(WeightEntry, raw, at)
            for key in ("topic", "weight"):
                if key not in raw:
                    self.note((*at, key), "is required")
            if "topic" in entry:
                weights.append(WeightEntry(**{"weight": 1, **entry}))
                self._check_weight(weights, at)
        if values.get("turn_s") == 0:
            usual = format_duration(int(InputConfig().turn_s * SECOND))
            self.note(("input", "turn"), f'is zero; "{usual}" is the default')
        return InputConfig(**values, weights=tuple(weights))

    def _check_weight(self, weights: list[WeightEntry], at: KeyPath) -> None:
        topic = weights[-1].topic
        try:
            check_filter(topic)
        except FilterError as exc:
            self.note((*at, "topic"), str(exc))
        if topic.startswith("$share/"):
            self.note((*at, "topic"), "messages are published to topics, not to shared subscriptions")
        if any(entry.topic == topic for entry in weights[:-1]):
            self.note((*at, "topic"), f"{topic!r} already has a weight above")

    def _trace(self, document: dict[str, Any]) -> TraceConfig:
        values = self._table(TraceConfig, document.get("trace", {}), ("trace",))
        values.setdefault("path", self._folder / TraceConfig().path)
        return TraceConfig(**values)

    def _journals(self, document: dict[str, Any]) -> tuple[JournalConfig, ...]:
        found: list[JournalConfig] = []
        for raw, at in self._tables(document, "journals"):
            values = self._table(JournalConfig, raw, at)
            if "name" not in raw:
                self.note((*at, "name"), "is required")
            journal = JournalConfig(**{"name": "", **values})
            self._check_journal(journal, found, at)
            if journal.trace and "filter" in raw:
                self.note((*at, "filter"), "is for messages; a journal of the trace keeps all records")
            found.append(journal)
        return tuple(found)

    def _check_journal(self, journal: JournalConfig, others: list[JournalConfig], at: KeyPath) -> None:
        is_named = not self.is_noted(*at, "name")
        if is_named and (not _NODE_NAME.fullmatch(journal.name) or journal.name.startswith(".")):
            text = f"must be 1 to 64 of A-Z a-z 0-9 . _ - and not begin with '.', not {shown(journal.name)}"
            self.note((*at, "name"), text)
        if is_named and any(other.name == journal.name for other in others):
            self.note((*at, "name"), f"a journal above is already named {journal.name!r}")
        try:
            check_filter(journal.filter)
        except FilterError as exc:
            self.note((*at, "filter"), str(exc))
        if journal.filter.startswith("$share/"):
            self.note((*at, "filter"), "messages are published to topics, not to shared subscriptions")

    def _flight(self, document: dict[str, Any]) -> FlightConfig:
        raw = document.get("flight", {})
        values = self._table(FlightConfig, raw, ("flight",))
        has_tls = isinstance(raw, dict) and "tls" in raw
        tls = self._tls(raw["tls"], ("flight", "tls")) if has_tls else None
        if tls is not None and tls.identity != "none":
            self.note(("flight", "tls", "identity"), "is for listeners; here users log in with a password")
        return FlightConfig(**values, tls=tls)

    def _check_flight(self) -> None:
        flight = self.config.flight
        if not self.config.flight_enabled:
            return
        if flight.host == "":
            self.note(("flight", "host"), EMPTY_HOST)
        elif self._is_login_noted("flight"):
            return
        elif not flight.anonymous_allowed and not self.config.security.password_file:
            self.note(
                ("flight",), "nobody could log in: set security.password_file, or allow_anonymous = true"
            )

    def _neighbours(self, document: dict[str, Any]) -> tuple[NeighbourConfig, ...]:
        found: list[NeighbourConfig] = []
        for raw, at in self._tables(document, "neighbours"):
            values = self._table(NeighbourConfig, raw, at)
            if "name" not in raw:
                self.note((*at, "name"), "is required; it is the neighbour's node_name")
            tls = self._neighbour_tls(raw["tls"], (*at, "tls")) if "tls" in raw else None
            found.append(NeighbourConfig(**{"name": "", **values}, tls=tls))
            if not values.get("host"):
                for key in ("port", "user", "password_file", "tls"):
                    if key in raw:
                        self.note((*at, key), "is for a link that this broker opens; set `host` too")
            elif "password_file" in values and not values.get("user"):
                self.note((*at, "password_file"), "needs `user`, which is not set")
        return tuple(found)

    def _neighbour_tls(self, raw: object, at: KeyPath) -> NeighbourTlsConfig | None:
        values = self._table(NeighbourTlsConfig, raw, at)
        if isinstance(raw, dict) and "ca" not in raw:
            self.note((*at, "ca"), "is required; give the path of a PEM file")
        if ("certificate" in values) != ("key" in values):
            self.note(at, "`certificate` and `key` belong together")
        return NeighbourTlsConfig(**values) if "ca" in values else None

    def _check_shares(self, config: ListenerConfig | NeighbourConfig, at: KeyPath) -> None:
        for share in config.shares:
            try:
                parse_share(share)
            except (ValueError, FilterError) as exc:
                self.note((*at, "shares"), str(exc))
        if self.is_noted(*at, "shares"):
            return
        try:
            scheduling_of(config)
        except (ValueError, FilterError) as exc:
            self.note((*at, "shares"), str(exc))

    def _check_neighbours(self) -> None:
        names = [self.config.node_name]
        for index, neighbour in enumerate(self.config.neighbours):
            self._check_shares(neighbour, ("neighbours", index))
            self._check_border(neighbour, ("neighbours", index))
            at = ("neighbours", index, "name")
            if self.is_noted(*at):
                continue
            if not _NODE_NAME.fullmatch(neighbour.name):
                self.note(at, f"must be 1 to 64 of A-Z a-z 0-9 . _ -, not {shown(neighbour.name)}")
            elif neighbour.name in names:
                whose = "this broker itself" if neighbour.name == names[0] else "a neighbour above"
                self.note(at, f"{neighbour.name!r} is {whose}; every broker needs its own node_name")
            names.append(neighbour.name)

    def _check_border(self, neighbour: NeighbourConfig, at: KeyPath) -> None:
        for key, filters in (("export", neighbour.export), ("import", neighbour.import_)):
            for topic_filter in filters:
                try:
                    check_filter(topic_filter)
                except FilterError as exc:
                    self.note((*at, key), str(exc))
                if topic_filter.startswith("$share/"):
                    self.note((*at, key), f"{topic_filter!r} is a shared subscription; give topic filters")
        for origin in neighbour.origins:
            if not _NODE_NAME.fullmatch(origin):
                self.note((*at, "origins"), f"{shown(origin)} is not a node_name (A-Z a-z 0-9 . _ -)")

    def _table(self, table: type, raw: object, at: KeyPath) -> dict[str, Any]:
        """Read the keys of one table; invalid ones are noted and left out."""
        values: dict[str, Any] = {}
        if not isinstance(raw, dict):
            self.note(at, f"must be a table, not {shown(raw)}; write its keys under [{key_text(at)}]")
            return values
        for key, (known, described) in settings_of(table).items():
            if key not in raw:
                continue
            if described.kind == "texts" and isinstance(raw[key], list):
                values[known.name] = self._texts(raw[key], described, (*at, key))
                continue
            try:
                values[known.name] = read_value(raw[key], described, self._folder)
            except WrongValue as exc:
                self.note((*at, key), str(exc))
            else:
                if described.kind == "path":
                    self.paths[(*at, key)] = values[known.name]
        return values

    def _texts(self, raw: list[object], described: KeySpec, at: KeyPath) -> tuple[str, ...]:
        """Read a list element by element, so that every invalid one is noted."""
        found: list[str] = []
        for element in raw:
            try:
                read = read_value([element], described, self._folder)
            except WrongValue as exc:
                self.note(at, str(exc))
            else:
                assert isinstance(read, tuple), "a list is read as a tuple"
                found += read
        return tuple(found)

    def _tables(self, document: dict[str, Any], name: str) -> list[tuple[dict[str, Any], KeyPath]]:
        raw = document.get(name, [])
        if not isinstance(raw, list) or not all(isinstance(entry, dict) for entry in raw):
            self.note((name,), f"must be a list of tables; write [[{name}]] above the keys of each")
            return []
        return [(entry, (name, index)) for index, entry in enumerate(raw)]

    def _listeners(self, document: dict[str, Any]) -> tuple[ListenerConfig, ...]:
        if "listeners" not in document:
            return Config().listeners
        found: list[ListenerConfig] = []
        for raw, at in self._tables(document, "listeners"):
            tls = self._tls(raw["tls"], (*at, "tls")) if "tls" in raw else None
            listener = ListenerConfig(**self._table(ListenerConfig, raw, at), tls=tls)
            if listener.kind == "tcp":
                for key in ("path", "origins"):
                    if key in raw:
                        self.note((*at, key), 'is only for kind = "websocket"')
            found.append(listener)
        if document["listeners"] == []:
            self.note(("listeners",), "is empty, so nobody could connect; leave the key out")
        return tuple(found)

    def _tls(self, raw: object, at: KeyPath) -> TlsConfig | None:
        values = self._table(TlsConfig, raw, at)
        complete = isinstance(raw, dict)
        for key in ("certificate", "key"):
            if isinstance(raw, dict) and key not in raw:
                self.note((*at, key), "is required; give the path of a PEM file")
            complete = complete and key in values
        if "ca" not in values:
            if values.get("require_client_certificate"):
                self.note((*at, "require_client_certificate"), "needs `ca`, the certificates to trust")
            if values.get("identity", "none") != "none":
                self.note((*at, "identity"), "needs `ca`, the certificates to trust")
        return TlsConfig(**values) if complete else None

    def _security(self, document: dict[str, Any]) -> SecurityConfig:
        values = self._table(SecurityConfig, document.get("security", {}), ("security",))
        rules: list[AccessRule] = []
        for raw, at in self._tables(document, "acl"):
            rule = self._rule(raw, at)
            if rule is not None:
                rules.append(rule)
        if document.get("acl") and values.get("acl_file"):
            self.note(
                ("security", "acl_file"),
                "cannot be used together with [[acl]]; the order of rules would be unclear",
            )
        if values.get("anonymous_user") == ANYONE:
            self.note(
                ("security", "anonymous_user"), "'*' stands for every user in rules; choose another name"
            )
        if values.get("anonymous_user") and any(rule.user == ANONYMOUS for rule in rules):
            self.note(
                ("security", "anonymous_user"),
                'conflicts with rules for user "", which are for the same clients',
            )
        return SecurityConfig(**values, rules=tuple(rules))

    def _rule(self, raw: dict[str, Any], at: KeyPath) -> AccessRule | None:
        values = self._table(AclEntry, raw, at)
        for key in ("user", "filter"):
            if key not in raw:
                self.note((*at, key), "is required")
        if "filter" not in values:
            return None
        entry = AclEntry(**{"user": ANYONE, **values})
        try:
            return AccessRule(entry.user, entry.action, entry.filter, entry.allow)
        except FilterError as exc:
            self.note((*at, "filter"), str(exc))
            return None

    def _check_names(self, document: dict[str, Any]) -> None:
        """Note every unknown key, with the key that was probably meant."""
        for name, table in TABLES:
            known = [*settings_of(table), *tables_under(name)]
            for raw, at in occurrences(document, name):
                for key in raw:
                    if key not in known:
                        self.note((*at, key), f"unknown key{suggestion(key, known, name)}")

    def _check_listeners(self) -> None:
        for index, listener in enumerate(self.config.listeners):
            self._check_listener(listener, ("listeners", index))
            for other_index, other in enumerate(self.config.listeners[:index]):
                if listener.name and listener.name == other.name:
                    self.note(
                        ("listeners", index, "name"),
                        f"listener {other_index} is also named {other.name!r}",
                    )

    def _check_listener(self, listener: ListenerConfig, at: KeyPath) -> None:
        if listener.host == "":
            self.note((*at, "host"), EMPTY_HOST)
        if not listener.path.startswith("/"):
            self.note((*at, "path"), f"must begin with '/', not {shown(listener.path)}")
        for origin in listener.origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                self.note(
                    (*at, "origins"), f'{shown(origin)} is not an origin; write it like "https://a.example"'
                )
        self._check_shares(listener, at)
        if self._is_login_noted(*at) or self.config.lets_somebody_in(listener):
            return
        is_set_outside = any(override.at == (*at, "host") for override in self._overrides)
        where = (*at, "host") if is_set_outside else at
        self.note(where, f"nobody could log in at {listener.host!r}: {TO_LOG_IN}")

    def _is_login_noted(self, *at: str | int) -> bool:
        """Whether a key is wrong that decides who may log in at this address."""
        keys = ("host", "allow_anonymous", "tls")
        return self.is_noted("security", "password_file") or any(self.is_noted(*at, key) for key in keys)

    def _check_limits(self) -> None:
        limits = self.config.limits
        if not _NODE_NAME.fullmatch(self.config.node_name):
            self.note(
                ("node_name",), f"must be 1 to 64 of A-Z a-z 0-9 . _ -, not {shown(self.config.node_name)}"
            )
        self._check_order("packet_size_max", limits.packet_size_max, "queue_bytes_per_client_max")
        self._check_order(
            "queue_bytes_per_client_max", limits.queue_bytes_per_client_max, "queue_bytes_total_max"
        )

    def _check_order(self, smaller: str, value: int, larger: str) -> None:
        """Note a limit that is smaller than what must fit within it."""
        if self.is_noted("limits", smaller) or self.is_noted("limits", larger):
            return
        if value > getattr(self.config.limits, larger):
            self.note(
                ("limits", larger),
                f"is smaller than {smaller} ({format_size(value)}), which must fit within it",
            )

    def _check_ports(self) -> None:
        """Note every address that two parts of the broker would use."""
        taken: list[tuple[str, str, int]] = []
        for what, at, host, port in self.addresses():
            for other, other_host, other_port in taken:
                if port == other_port and hosts_meet(host, other_host):
                    self.note((*at, "port"), f"{address_text(host, port)} is used by {other}")
                    break
            taken.append((what, host, port))

    def addresses(self) -> list[tuple[str, KeyPath, str, int]]:
        """Return every fixed address that this broker listens on: what for, its table, host and port."""
        config = self.config
        asked: list[tuple[str, KeyPath, str, int]] = [
            (f"listener {index}", ("listeners", index), listener.host, listener.port)
            for index, listener in enumerate(config.listeners)
        ]
        if config.flight_enabled:
            asked.append(("the service for journals", ("flight",), config.flight.host, config.flight.port))
        asked.append(("metrics", ("metrics",), config.metrics.host, config.metrics.port))
        # Port 0 picks a free one, or turns metrics off.
        return [
            one
            for one in asked
            if one[3] and not self.is_noted(*one[1], "host") and not self.is_noted(*one[1], "port")
        ]
