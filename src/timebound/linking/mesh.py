"""The mesh as a shell drives it: open links to neighbour brokers, and the orders of the core.

`Member` (core) decides; its orders are carried out here. Once a turn, copies go to the links that have room,
and advertisements to the neighbours they are for. A link with a configured rate is free again by that rate,
any other when its transport has room. All time comes from the clock passed in, so the same code runs under
virtual time.

Long, since each report of a link and each order of the core is a method here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from timebound.config.mesh import NeighbourConfig
from timebound.config.scheduling import scheduling_of
from timebound.core.broker import Broker
from timebound.core.link.outlet import START_DELAY
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.border import Border
from timebound.core.mesh.flooding import FIGURES, LinkStateAdvertisement
from timebound.core.mesh.member import Member
from timebound.core.mesh.message import Copy
from timebound.core.mesh.options import Send
from timebound.core.values.delay import LinkDelay, link_of_rate
from timebound.core.values.subscription import Subscription
from timebound.linking import codec as mesh_codec
from timebound.linking.greeting import FIGURES_VERSION
from timebound.linking.link import ConnectionMeter, LinkCarrier, NeighbourLink
from timebound.records import Reason
from timebound.toml.setting import MEBIBYTE
from timebound.units import SECOND
from timebound.wire.reasons import ReasonCode

# Interval of delay reports; every 10 s gains nothing.
REPORT_NS: Final = 30 * SECOND
# Unknown things of one neighbour that are logged: a later version has some, a broken one any number.
UNKNOWN_LOGGED_MAX: Final = 16
MISTAKE_LENGTH_MAX: Final = 200  # of what is logged about an advertisement


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """What the mesh needs of its shell: time, timers, turns, and a log."""

    def now_ns(self) -> int: ...

    def call_at_ns(self, when_ns: int, callback: Callable[[], None]) -> TimerHandle: ...

    def schedule(self) -> None:
        """Ask for a turn soon."""

    def fault(self, name: str, error: Exception) -> None:
        """Report an internal error that occurred while serving `name`."""

    def note(self, text: str, *, is_warning: bool) -> None:
        """Log what happened to a link."""


class Mesh:
    """One broker's links to its neighbours."""

    def __init__(
        self,
        member: Member,
        broker: Broker,
        neighbours: tuple[NeighbourConfig, ...],
        clock: Clock,
        packet_size_max: int = MEBIBYTE,
    ) -> None:
        self.member = member
        self.neighbours = {neighbour.name: neighbour for neighbour in neighbours}
        self.links: dict[str, NeighbourLink] = {}
        self.strategies: dict[str, tuple[str, float]] = {}  # of the links, with their mixes
        self._broker = broker
        self._clock = clock
        self._timers: dict[str, TimerHandle] = {}
        self._levels: dict[str, int] = {}  # as last sent to neighbours
        self._packet_size_max = mesh_codec.link_packet_size_max(packet_size_max)
        self._refused = 0  # advertisements that could not be sent or read
        self._unlearnt: list[tuple[NeighbourLink, LinkStateAdvertisement]] = []  # after internal errors
        self._unknown: dict[str, set[str]] = {}  # by neighbour: what was logged; never iterated
        self._reported_ns = clock.now_ns()
        self._told_ns = -SECOND  # when figures of links were advertised last
        for neighbour in neighbours:
            scheduling = scheduling_of(neighbour)
            self.strategies[neighbour.name] = scheduling.name, scheduling.mix
            border = Border(
                neighbour.name,
                exports=neighbour.export,
                imports=neighbour.import_,
                origins=neighbour.origins,
            )
            member.add_neighbour(neighbour.name, _start_delay(neighbour), scheduling, border)
        broker.join_mesh(member)

    def set_strategy(self, name: str, strategy: str, mix: float, now_ns: int) -> None:
        """Change the strategy of the link to a neighbour; a negative mix is the strategy's default.

        Raises:
            ValueError: the strategy is unknown.
        """
        self.member.forwarder.set_strategy(name, strategy_named(strategy, mix=mix), now_ns)
        self.strategies[name] = strategy, mix

    # --- links ------------------------------------------------------------------------

    def admit(self, name: str, user: str, *, is_anonymous: bool) -> str:
        """Return why a broker may not open a link; empty if it may. The caller has authenticated `user`."""
        neighbour = self.neighbours.get(name)
        if neighbour is None:
            return f"broker {name!r} is not a neighbour; add it as [[neighbours]]"
        if not is_anonymous and user != neighbour.accepted_user:
            return f"broker {name!r} must log in as user {neighbour.accepted_user!r}"
        known = self.links.get(name)
        if known is not None and known.is_dialled and self.member.name < name:
            return f"{self.member.name!r} has already opened a link to {name!r}"
        return ""

    def gives_way(self, name: str) -> bool:
        """Whether a connection that this broker opened must close: both sides may open one at the same time.

        The one opened by the broker with the lesser name stays.
        """
        return name in self.links and self.member.name > name

    def make_link(
        self,
        name: str,
        carrier: LinkCarrier,
        connection: int,
        make_meter: Callable[[LinkDelay], ConnectionMeter] | None = None,
        receive_maximum: int = 1_024,
        packet_size_max: int = 0,
        *,
        is_dialled: bool = False,
        version: int = 0,
    ) -> NeighbourLink:
        """Return a link over a connection to a neighbour; call `open` when the handshake is complete.

        `connection` is the number under which the driver flushes what storage has released. `make_meter`
        gives the meter of the connection, from the delay known so far; without it, no rate is measured.
        """
        delay = self.member.forwarder.delay_of(name)
        is_paced = self.neighbours[name].link_bytes_per_second > 0
        return NeighbourLink(
            name,
            carrier,
            self,
            delay,
            self._broker.open_link(name, connection),
            self.member.forwarder.links[name],
            is_paced=is_paced,
            meter=None if is_paced or make_meter is None else make_meter(delay),
            receive_maximum=receive_maximum,
            packet_size_max=packet_size_max,
            is_dialled=is_dialled,
            version=version,
        )

    def open(self, link: NeighbourLink) -> None:
        """Take a link into use after the handshake; it replaces an earlier one to the same neighbour."""
        old = self.links.get(link.name)
        if old is not None:
            old.close(0, "replaced by another connection")
            self.closed(old)
        self.links[link.name] = link
        link.open(self._clock.now_ns())

    def closed(self, link: NeighbourLink) -> None:
        """Note that the connection of a link has ended."""
        if self.links.get(link.name) is not link:
            return
        del self.links[link.name]
        link.end()
        self._broker.close_link(link.session)
        timer = self._timers.pop(link.name, None)
        if timer is not None:
            timer.cancel()
        if link.is_ready:
            count = self.member.link_down(link.name, self._clock.now_ns())
            self._clock.note(f"link to {link.name!r} is down, {count} copies not confirmed", is_warning=True)
            self._clock.schedule()

    # --- reports of links ---------------------------------------------------------------

    def on_ready(self, link: NeighbourLink, now_ns: int) -> None:
        away = f"{link.latency_ns / 1e6:.3f} ms away (mesh protocol {link.version})"
        self._clock.note(f"link to {link.name!r} is up, {away}", is_warning=False)
        self.member.link_up(link.name, now_ns, mesh_codec.message_size_max(link.packet_size_max))
        self.member.report(link.name, link.latency_ns, now_ns)
        if self._levels:
            self._send_control(link, mesh_codec.LEVELS_TOPIC, mesh_codec.encode_levels(self._levels))
        self._clock.schedule()

    def on_copy(self, link: NeighbourLink, copy: Copy, packet_id: int, now_ns: int) -> None:
        try:
            self._broker.receive_copy(copy, link.session, packet_id, now_ns)
        except Exception as error:
            # Drop the copy, not the link: the neighbour would send it again for ever.
            self._clock.fault(f"a copy from broker {link.name!r}", error)

    def on_fault(self, link: NeighbourLink, error: Exception) -> None:
        self._clock.fault(f"a copy from broker {link.name!r}", error)

    def on_advertisements(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None:
        found = mesh_codec.decode_advertisements(payload)
        for advertisement in found.advertisements:
            if not self._learn(link, advertisement):
                self._unlearnt.append((link, advertisement))
        self._refused += len(found.mistakes)
        for mistake in found.mistakes:
            self.on_unknown(link, f"advertisement: {mistake[:MISTAKE_LENGTH_MAX]}")
        for what in found.unknown:
            self.on_unknown(link, what)

    def _learn(self, link: NeighbourLink, advertisement: LinkStateAdvertisement) -> bool:
        """Store an advertisement if its sender may have it; return False after an internal error."""
        try:
            is_allowed = self.member.receive_advertisement(link.name, advertisement)
        except Exception as error:
            # The link stays: the neighbour would send it again for ever.
            self._clock.fault(f"an advertisement from broker {link.name!r}", error)
            return False
        if not is_allowed:
            self._refused += 1
            owner = advertisement.key[1][:MISTAKE_LENGTH_MAX]
            self.on_unknown(link, f"an advertisement of {owner!r}, which is not among its `origins`")
        return True

    def _mend(self) -> None:
        """Do once more what internal errors have left undone."""
        unlearnt, self._unlearnt = self._unlearnt, []
        for link, advertisement in unlearnt:
            self._learn(link, advertisement)
        if self.member.is_behind:
            self.member.catch_up()
            self._clock.schedule()

    def on_unknown(self, link: NeighbourLink, what: str) -> None:
        """Log, once for each neighbour, something it sends that this broker does not know."""
        noted = self._unknown.setdefault(link.name, set())
        if what in noted or len(noted) >= UNKNOWN_LOGGED_MAX:
            return
        noted.add(what)
        text = f"broker {link.name!r} (mesh protocol {link.version}) sent what this broker cannot use: {what}"
        self._clock.note(text, is_warning=True)

    def on_delay_report(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None:
        self.member.forwarder.receive_delay_report(link.name, mesh_codec.decode_delay_report(payload))

    def on_levels(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None:
        levels, unknown = mesh_codec.decode_levels(payload)
        self.member.forwarder.note_levels(link.name, levels)
        for what in unknown:
            self.on_unknown(link, what)

    def on_room(self, link: NeighbourLink, now_ns: int) -> None:
        self._free(link, now_ns)
        self._clock.schedule()

    def _free(self, link: NeighbourLink, now_ns: int) -> None:
        """Have the core order what a link has room for now."""
        link.grant()
        self.member.link_free(link.name, now_ns)

    def on_later(self, link: NeighbourLink) -> None:
        self._await_room(link)

    def on_measured(self, link: NeighbourLink, delay: LinkDelay, now_ns: int) -> None:
        self.member.measured(link.name, delay, now_ns)

    def on_margin(self, link: NeighbourLink, margin_ns: int, now_ns: int) -> None:
        self.member.forwarder.set_margin(link.name, margin_ns, now_ns)

    # --- turns --------------------------------------------------------------------------

    def turn(self) -> None:
        """Carry out the orders of the core."""
        now_ns = self._clock.now_ns()
        self._send_advertisements()
        self.member.forwarder.revive(now_ns)
        used = self._send(now_ns)
        for name in used:
            link = self.links.get(name)
            if link is None:
                continue
            try:
                link.flush(now_ns)
                if not self.member.forwarder.links[name].is_busy:
                    link.rest()
            except Exception as error:
                self._failed(link, error)
        self._note_levels()

    def _failed(self, link: NeighbourLink, error: Exception) -> None:
        """Close a link after an internal error; what it carried goes another way."""
        self._clock.fault(f"the link to broker {link.name!r}", error)
        try:
            link.close(ReasonCode.UNSPECIFIED_ERROR, "internal error")
        finally:
            self.closed(link)

    def patrol(self, now_ns: int) -> None:
        """Run the periodic work, about once a second."""
        self._mend()
        for broker in self.member.wake(now_ns):
            text = f"broker {broker!r} is gone: its links and subscriptions are forgotten (mesh.forget_after)"
            self._clock.note(text, is_warning=True)
        for link in list(self.links.values()):
            try:
                link.patrol(now_ns)
            except Exception as error:
                self._failed(link, error)
        if now_ns - self._reported_ns >= REPORT_NS:
            self._reported_ns = now_ns
            self.send_delay_reports()
            self.report_links(now_ns)

    def report_links(self, now_ns: int) -> None:
        """Advertise how links are doing where that has changed, at most once a second."""
        if now_ns - self._told_ns < SECOND:
            return
        self._told_ns = now_ns
        for name, link in self.links.items():
            if link.is_ready:
                self.member.report(name, link.latency_ns, now_ns)

    def send_delay_reports(self) -> None:
        """Send every neighbour a delay report."""
        self._broadcast(
            mesh_codec.DELAY_REPORT_TOPIC,
            mesh_codec.encode_delay_report(self.member.forwarder.delay_report()),
        )

    def _broadcast(self, topic: str, payload: bytes) -> None:
        for link in list(self.links.values()):
            if link.is_ready:
                self._send_control(link, topic, payload)

    def _note_levels(self) -> None:
        """Resume publishers whose paths have room again, and send neighbours changed levels."""
        levels = self.member.forwarder.levels()
        is_released = self.member.forwarder.take_released()
        if levels is self._levels:
            if is_released:
                self._broker.relieve_publishers()
            return
        has_changed = levels != self._levels
        self._levels = levels
        self._broker.relieve_publishers()
        if has_changed:
            self._broadcast(mesh_codec.LEVELS_TOPIC, mesh_codec.encode_levels(levels))

    def _send(self, now_ns: int) -> dict[str, None]:
        """Put copies on links until none has room or nothing is left; return the links used."""
        member = self.member
        used: dict[str, None] = {}
        while True:
            sends = member.take_sends()
            packing = member.forwarder.take_packing()
            if not sends and not packing:
                return used
            for send in sends:
                name = send.neighbour
                link = self.links.get(name)
                if link is None:  # it has failed since, and the copy goes another way
                    continue
                used[name] = None
                try:
                    self._put(link, send, now_ns)
                except Exception as error:
                    self._failed(link, error)
            for outlet in packing:
                link = self.links.get(outlet.name)
                if link is None:
                    continue
                used[outlet.name] = None
                try:
                    self._send_packs(link, now_ns)
                except Exception as error:
                    self._failed(link, error)

    def _put(self, link: NeighbourLink, send: Send, now_ns: int) -> None:
        try:
            reason = None if link.put(send.copy, send.packet_id, now_ns) else Reason.TOO_LARGE
        except Exception as error:
            # Drop the copy, not the link: it would be sent again for ever.
            self._clock.fault(f"a copy for broker {link.name!r}", error)
            reason = Reason.FAULT
        if reason is not None:
            self.member.forwarder.abandon(send, reason, now_ns)
        self._go_on(link, now_ns)

    def _send_packs(self, link: NeighbourLink, now_ns: int) -> None:
        for copy, reason in link.send_packs(now_ns):
            self.member.forwarder.lose(copy, link.name, now_ns, reason)
        self._go_on(link, now_ns)

    def _go_on(self, link: NeighbourLink, now_ns: int) -> None:
        """Order what the link has room for, now or when it has."""
        if link.has_room(now_ns):
            self._free(link, now_ns)
        else:
            self._await_room(link)

    def _await_room(self, link: NeighbourLink) -> None:
        """Set a timer for when the link may have room, if that depends on the time."""
        when_ns = link.next_room_ns()
        if when_ns and link.name not in self._timers:
            self._timers[link.name] = self._clock.call_at_ns(when_ns, lambda: self._on_time(link))

    def _on_time(self, link: NeighbourLink) -> None:
        if self.links.get(link.name) is not link:
            return
        self._timers.pop(link.name, None)
        try:
            self._use_time(link)
        except Exception as error:
            self._failed(link, error)

    def _use_time(self, link: NeighbourLink) -> None:
        now_ns = self._clock.now_ns()
        if now_ns < link.next_room_ns():
            self._await_room(link)  # event loops round to milliseconds and may call early
        elif link.has_room(now_ns):
            self._free(link, now_ns)
            self.turn()
            if self._broker.has_ready():
                self._clock.schedule()
            if not self.member.forwarder.links[link.name].is_busy:
                link.rest()
        elif now_ns < link.next_room_ns():
            self._await_room(link)  # less was acknowledged than expected by now

    def _send_advertisements(self) -> None:
        by_neighbour: dict[str, list[LinkStateAdvertisement]] = {}
        for send in self.member.take_advertisements():
            link = self.links.get(send.neighbour)
            if send.advertisement.key[0] == FIGURES and (link is None or link.version < FIGURES_VERSION):
                continue
            by_neighbour.setdefault(send.neighbour, []).append(send.advertisement)
        for name, advertisements in by_neighbour.items():
            link = self.links.get(name)
            if link is None:
                continue
            payloads, too_large = self._encode(link, advertisements)
            for payload in payloads:
                self._send_control(link, mesh_codec.ADVERTISEMENTS_TOPIC, payload)
            for advertisement in too_large:
                self._refused += 1
                _, owner, first, second = advertisement.key
                what = f"subscription of {first[:100]!r} to {second[:100]!r} at {owner!r}"
                text = f"{what} cannot be advertised to {name!r}: too large for a packet"
                self._clock.note(text, is_warning=True)

    def _encode(
        self, link: NeighbourLink, advertisements: list[LinkStateAdvertisement]
    ) -> tuple[list[bytes], list[LinkStateAdvertisement]]:
        """Encode advertisements; after an internal error each alone, without those it concerns."""
        try:
            return mesh_codec.encode_advertisements(advertisements, link.packet_size_max)
        except Exception as error:
            if len(advertisements) == 1:
                self._clock.fault(f"an advertisement for broker {link.name!r}", error)
                return [], []
        alone = [self._encode(link, [one]) for one in advertisements]
        return [payload for found, _ in alone for payload in found], [
            one for _, left in alone for one in left
        ]

    def _send_control(self, link: NeighbourLink, topic: str, payload: bytes) -> None:
        try:
            is_sent = link.send_control(topic, payload)
        except Exception as error:
            self._failed(link, error)
            return
        if not is_sent:
            text = f"packet of {len(payload)} bytes on {topic!r} is too large for {link.name!r}"
            self._clock.note(text, is_warning=True)

    def refusal(self, subscription: Subscription) -> str:
        """Return why a subscription cannot be advertised to other brokers; empty if it can."""
        known = [link.packet_size_max for link in self.links.values() if link.packet_size_max]
        limit = min([self._packet_size_max, *known])
        size = mesh_codec.advertised_size(self.member.advertised(subscription))
        if size <= limit:
            return ""
        return f"its advertisement to other brokers has {size} bytes (packet_size_max of a link: {limit})"

    def figures(self) -> dict[str, int]:
        """Return the numbers for `$SYS` and metrics."""
        account = self.member.account
        return {
            "links_up": sum(link.is_ready for link in self.links.values()),
            "neighbours": len(self.neighbours),
            "subscriptions": len(self.member.table),
            "published": account.published,
            "received": self.member.received,
            "waiting": self.member.forwarder.waiting_messages(),
            "dropped": account.dropped_total(),
            "unreachable": account.unreachable,
            "duplicates": account.duplicates,
            "resent": self.member.resent,
            "refused": self._refused,
            "full": len(self._levels),
            "parked": len(self.member.forwarder.parking),
            "gone": len(self.member.absence.gone()),
            "cut_off": len(self.member.absence.cut_off()),
        }


def _start_delay(neighbour: NeighbourConfig) -> LinkDelay:
    rate = neighbour.link_bytes_per_second
    return link_of_rate(rate) if rate else START_DELAY
