"""What cannot work in a mesh, found in the configurations of its brokers before one is started.

A `MeshPlan` joins the readers of all files. It notes mistakes with the reader of the file they are in, so
that each has its line and key, and collects notices: what works, but hardly as meant. It compares texts;
`commands/_mesh_logins.py` tries passwords and certificates, for which files have to be read.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable

from timebound.config.addresses import address_text, hosts_meet, is_address, is_loopback
from timebound.config.listeners import ListenerConfig
from timebound.config.mesh import NeighbourConfig
from timebound.config.reader import ConfigReader
from timebound.config.renames import ConfigNotice
from timebound.config.values import Config
from timebound.toml.lines import KeyPath


class PlannedBroker:
    """One broker by its file."""

    def __init__(self, file: str, reader: ConfigReader) -> None:
        self.file = file
        self.reader = reader
        self.config: Config = reader.config
        self.name = reader.config.node_name
        self.neighbours = {neighbour.name: index for index, neighbour in enumerate(self.config.neighbours)}

    def entry(self, name: str) -> NeighbourConfig:
        """Return the `[[neighbours]]` entry for a broker."""
        return self.config.neighbours[self.neighbours[name]]

    def key(self, name: str, *keys: str) -> KeyPath:
        """Return the place of a key of the entry for a broker."""
        return ("neighbours", self.neighbours[name], *keys)


class PlannedLink:
    """A link as one side opens it, with the listener of the other side that answers."""

    def __init__(self, caller: PlannedBroker, answerer: PlannedBroker, listener: int) -> None:
        self.caller = caller
        self.answerer = answerer
        self.listener_index = listener

    @property
    def listener(self) -> ListenerConfig:
        return self.answerer.config.listeners[self.listener_index]

    @property
    def entry(self) -> NeighbourConfig:
        """The caller's `[[neighbours]]` entry."""
        return self.caller.entry(self.answerer.name)

    def note(self, key: str, message: str) -> None:
        """Note a mistake at a key of the caller's entry."""
        self.caller.reader.note(self.caller.key(self.answerer.name, key), message)


class MeshPlan:
    """All brokers of a mesh as their files describe it; the constructor notes what is wrong."""

    def __init__(self, files: Iterable[tuple[str, ConfigReader]], *, is_complete: bool = True) -> None:
        """Check the brokers of these files; `is_complete`: no further file belongs to the mesh."""
        self.notices: list[ConfigNotice] = []
        self.links: list[PlannedLink] = []  # those that a listener answers
        self._files = [PlannedBroker(file, reader) for file, reader in files]
        # Of what cannot be read nothing is known, not even the name.
        self._is_complete = is_complete and all(
            broker.reader.is_toml and not broker.reader.is_noted("node_name") for broker in self._files
        )
        self.brokers: dict[str, PlannedBroker] = {}
        for broker in self._files:
            self.notices += broker.reader.config.notices
            if broker.reader.is_toml and not broker.reader.is_noted("node_name"):
                self._add(broker)
        for broker in self.brokers.values():
            for name in broker.neighbours:
                self._check_neighbour(broker, name)
        self._check_machines()
        self._check_parts()
        self._check_settings()

    def pairs(self) -> list[tuple[str, str]]:
        """Return the brokers that are to be linked: one of them lists the other; the lesser name first."""
        found = {
            (min(name, other), max(name, other)): None
            for name, broker in self.brokers.items()
            for other in broker.neighbours
            if other in self.brokers
        }
        return sorted(found)

    def _add(self, broker: PlannedBroker) -> None:
        known = self.brokers.get(broker.name)
        if known is None:
            self.brokers[broker.name] = broker
            return
        text = f"{broker.name!r} is also the node_name of {known.file}; every broker needs its own"
        broker.reader.note(("node_name",), text)

    # --- links ------------------------------------------------------------------------

    def _check_neighbour(self, broker: PlannedBroker, name: str) -> None:
        at = broker.key(name, "name")
        if broker.reader.is_noted(*at):
            return
        other = self.brokers.get(name)
        if other is None:
            if self._is_complete:
                broker.reader.note(at, self._unknown(broker, name))
            return
        if broker.name not in other.neighbours:
            text = (
                f"{name!r} does not list {broker.name!r}; add [[neighbours]] with that name to {other.file}"
            )
            broker.reader.note(at, text)
        else:
            self._check_who_opens(broker, other)
        if broker.entry(name).host and not broker.reader.is_noted(*broker.key(name, "host")):
            self._find_listener(broker, other)

    def _unknown(self, broker: PlannedBroker, name: str) -> str:
        entry = broker.entry(name)
        others = [other for other in self.brokers.values() if other is not broker]
        here = [
            other.name
            for other in others
            if entry.host and is_address(entry.host)
            if any(_answers(listener, entry) for listener in other.config.listeners)
        ]
        close = here or difflib.get_close_matches(name, [other.name for other in others], n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "; check the files of all brokers together"
        return f"no file given has node_name {name!r}{hint}"

    def _check_who_opens(self, broker: PlannedBroker, other: PlannedBroker) -> None:
        """Note, once for both sides, that neither opens their link; notice that both do."""
        if broker.name > other.name:
            return
        opening = [one for one, peer in ((broker, other), (other, broker)) if one.entry(peer.name).host]
        if not opening:
            text = f"neither side opens the link to {other.name!r}: set `host` here or in {other.file}"
            broker.reader.note(broker.key(other.name, "host"), text)
        elif len(opening) == 2:
            text = f"both sides open this link, and that of {broker.name!r} stays; `host` here is not needed"
            self.notices.append(other.reader.notice(other.key(broker.name, "host"), text))

    def _find_listener(self, broker: PlannedBroker, other: PlannedBroker) -> None:
        """Find the listener that answers a link; note the mistake if none does, or not such a link."""
        entry = broker.entry(other.name)
        reader = other.reader
        if reader.is_noted("listeners") or broker.reader.is_noted(*broker.key(other.name, "port")):
            return
        answering = [
            index for index, listener in enumerate(other.config.listeners) if _answers(listener, entry)
        ]
        if not answering:
            here = ", ".join(address_text(one.host, one.port) for one in other.config.listeners)
            text = (
                f"{address_text(entry.host, entry.port)} is no listener of {other.name!r}, "
                f"which listens at {here} ({other.file})"
            )
            broker.reader.note(broker.key(other.name, "port"), text)
            return
        link = PlannedLink(broker, other, answering[0])
        if self._fits(link):
            self.links.append(link)

    def _fits(self, link: PlannedLink) -> bool:
        listener = link.listener
        is_encrypted = link.entry.tls is not None
        where = f"listeners[{link.listener_index}] of {link.answerer.file}"
        if listener.kind != "tcp":
            link.note("port", f"{where} is for WebSocket; links need a listener of kind tcp")
        elif is_encrypted and listener.tls is None:
            link.note("tls", f"{where} has no TLS")
        elif not is_encrypted and listener.tls is not None:
            link.note("tls", f"{where} requires TLS; add [neighbours.tls] with its `ca`")
        else:
            return True
        return False

    # --- machines ---------------------------------------------------------------------

    def _check_machines(self) -> None:
        """Note what brokers on one machine both use: those whose links go over loopback addresses."""
        near = [(link.caller.name, link.answerer.name) for link in self.links if is_loopback(link.entry.host)]
        for names in _parts(self.brokers, near):
            machine = [self.brokers[name] for name in names]
            for index, broker in enumerate(machine):
                for other in machine[:index]:
                    self._check_shared(broker, other)

    def _check_shared(self, broker: PlannedBroker, other: PlannedBroker) -> None:
        for _, at, host, port in broker.reader.addresses():
            for what, _, other_host, other_port in other.reader.addresses():
                if port == other_port and hosts_meet(host, other_host):
                    text = f"{address_text(host, port)} is used by {what} of {other.file} on the same machine"
                    broker.reader.note((*at, "port"), text)
        folder = broker.config.data.path
        if folder == other.config.data.path:
            text = f"{str(folder)!r} is also the data folder of {other.file}, on the same machine"
            broker.reader.note(("data", "path"), text)

    # --- the whole --------------------------------------------------------------------

    def _check_parts(self) -> None:
        """Note brokers that no links join with the rest."""
        if not self._is_complete:
            return
        parts = sorted(_parts(self.brokers, self.pairs()), key=len, reverse=True)
        for part in parts[1:]:
            broker = self.brokers[part[0]]
            names = ", ".join(map(repr, part))
            others = ", ".join(map(repr, parts[0]))
            text = f"no links lead from {names} to {others}: these are two meshes"
            broker.reader.note(("neighbours",), text)

    def _check_settings(self) -> None:
        """Notice settings that differ between brokers, where they decide about the same message."""
        self._compare(
            ("mesh", "routing"),
            lambda config: config.mesh.routing,
            "the brokers of one path would choose its links by different rules",
        )
        self._compare(
            ("mesh", "epsilon"),
            lambda config: config.mesh.epsilon,
            "what one broker sends on, the next one drops as hopeless",
        )
        self._compare(
            ("limits", "packet_size_max"),
            lambda config: config.limits.packet_size_max,
            "larger messages of other brokers end on their way",
        )
        usual = _most([entry.strategy for one in self.brokers.values() for entry in one.config.neighbours])
        for broker in self.brokers.values():
            for name in broker.neighbours:
                strategy = broker.entry(name).strategy
                if strategy != usual:
                    text = f"this link orders messages by {strategy!r}, others by {usual!r}"
                    at = broker.key(name, "strategy")
                    self.notices.append(broker.reader.notice(at, text))

    def _compare(self, at: KeyPath, value_of: Callable[[Config], object], effect: str) -> None:
        values = {
            name: value_of(broker.config)
            for name, broker in self.brokers.items()
            if broker.neighbours and not broker.reader.is_noted(*at)
        }
        usual = _most(list(values.values()))
        for name, value in values.items():
            if value != usual:
                other = next(other for other in values if values[other] == usual)
                text = f"is {value!r} here and {usual!r} at {other!r}: {effect}"
                self.notices.append(self.brokers[name].reader.notice(at, text))


def _most(values: list[object] | list[str]) -> object:
    """Return the most frequent value, of several the first; None if there is none."""
    return Counter(values).most_common(1)[0][0] if values else None


def _answers(listener: ListenerConfig, entry: NeighbourConfig) -> bool:
    """Whether a listener may be what a neighbour's address leads to; names are not resolved."""
    host = entry.host
    if listener.port != entry.port:
        return False
    if hosts_meet(listener.host, host):
        return True
    # A name may stand for any address that others can reach.
    return not is_address(host) and not is_loopback(listener.host)


def _parts(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the connected parts of a graph, each with its names in order."""
    part_of = {name: [name] for name in names}
    for one, other in pairs:
        first, second = part_of[one], part_of[other]
        if first is not second:
            first += second
            for name in second:
                part_of[name] = first
    parts = {id(part): sorted(part) for part in part_of.values()}
    return list(parts.values())
