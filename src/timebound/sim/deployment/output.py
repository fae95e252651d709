"""The output of a client's connection at a simulated broker: answers and messages as bytes, and backpressure.

It does what `node/clients/output.py` does. What comes in is in `served.py`.
"""

from __future__ import annotations

from typing import Final

from timebound.config.listeners import ListenerConfig
from timebound.core.sessions.session import Session
from timebound.outgoing import OutgoingEncoder
from timebound.records import Reason
from timebound.serving.connect import put_first
from timebound.sim.deployment.host import Host
from timebound.sim.deployment.links import Cable, PipeMeter

UNREAD_REPLIES_MAX: Final = 1_000


class ServedOutput:
    """Writes for one client of a broker."""

    def __init__(self, node: Host, number: int, cable: Cable, listener: ListenerConfig) -> None:
        self.node = node
        self.broker = node.broker
        self.number = number
        self.session: Session | None = None
        self.version = 5
        self.is_closed = False
        self._cable = cable
        self._listener = listener
        self.outgoing = OutgoingEncoder(5, 0, 0, True)
        self.request_problem_information = True
        self.connect_expiry_s = 0
        self._connack = b""
        self._is_greeted = False
        self._is_paused = False
        self._is_lost = False
        self._meter: PipeMeter | None = None
        self._is_pacing = False  # a timer goes on with the output
        self._stops = False  # no more is read, since the client or storage is behind
        self._is_full = False  # nor while packets wait outside the input queues
        self._is_unread = False

    @property
    def driver(self) -> Host:
        """The node, as what drives it."""
        return self.node

    def flush(self) -> None:
        """Write what the session has ready, as far as the connection takes it."""
        session = self.session
        if session is None or self.is_closed or self._is_lost or self._is_paused:
            return
        if not self._may_write(session):
            return
        frames = [self.outgoing.encode_reply(reply) for reply in session.replies]
        session.replies.clear()
        is_free = True
        if session.scheduled is None:
            self._encode(session, frames, 2 * self.node.limits.write_buffer_bytes, 0)
        else:
            is_free = self._flush_paced(session, frames)
        self._write(b"".join(frames))
        if is_free and not self._is_paused and session.has_work():
            self.node.broker.put_ready(session)
        self._limit_reading(session)

    def _flush_paced(self, session: Session, frames: list[bytes]) -> bool:
        """Take as much as the link may get now; return False if a timer continues later."""
        if self._is_pacing or not session.has_work():
            return False
        now_ns = self.node.now_ns()
        if self._meter is None:
            self._meter = PipeMeter(self._cable.out)
        meter = self._meter
        allowed = meter.allow(session.queue_bytes, now_ns)
        delay = meter.changed_delay()
        if delay is not None and not self._listener.link_bytes_per_second:
            self.node.broker.set_delay(session, delay, now_ns)
        if allowed:
            self._encode(session, frames, allowed, meter.ahead_ns())
        if session.has_work():
            self._is_pacing = True
            self.node.clock.call_at_ns(max(meter.wake_ns, now_ns + 1_000), self._go_on)
        return False

    def _go_on(self) -> None:
        self._is_pacing = False
        if self.session is not None:
            self.node.broker.put_ready(self.session)
            self.node.clock.schedule()

    def _encode(self, session: Session, frames: list[bytes], bytes_max: int, ahead_ns: int) -> None:
        now_ns = self.node.now_ns()
        for delivery in self.node.broker.take_deliveries(session, bytes_max, now_ns, ahead_ns):
            frame = self.outgoing.encode(delivery, now_ns)
            if frame:
                frames.append(frame)
            else:
                self.node.broker.abandon(session, delivery, Reason.TOO_LARGE, now_ns)

    def _may_write(self, session: Session) -> bool:
        """Whether CONNACK is written, or is now the first of the answers."""
        if not self._is_greeted:
            self._is_greeted = put_first(session.replies, self._connack)
        return self._is_greeted

    def _limit_reading(self, session: Session) -> None:
        """Do not read from a client that does not read its answers, or whose links are full."""
        is_behind = len(session.replies) + session.held > UNREAD_REPLIES_MAX or self.node.is_storage_behind()
        stops = is_behind or len(session.slowed_by) > 0
        if stops != self._stops:
            self._stops = stops
            if stops:
                self.node.count("publisher slowed")
            self._set_reading()

    def _set_reading(self) -> None:
        """Leave the cable unread while anything speaks against reading."""
        is_unread = self._stops or self._is_full
        if is_unread != self._is_unread:
            self._is_unread = is_unread
            if is_unread:
                self._cable.pause_reading()
            else:
                self._cable.resume_reading()

    def _write(self, data: bytes) -> None:
        self.node.broker.counters.bytes_sent += len(data)
        self._cable.write(data)

    def _write_answers(self) -> None:
        session = self.session
        if session is None or session.connection != self.number or self._is_paused:
            return
        if self._may_write(session) and session.replies:
            self._write(b"".join([self.outgoing.encode_reply(reply) for reply in session.replies]))
            session.replies.clear()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self.session is not None:
            self.node.broker.put_ready(self.session)
            self.node.clock.schedule()
