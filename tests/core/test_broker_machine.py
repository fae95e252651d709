"""The broker beside its naive model, through anything clients, disks and time may do."""

from __future__ import annotations

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from timebound.core.sessions.session import PUBACK, PUBCOMP, PUBREC
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms

from .broker_doubles import BYTES_MAX, NEVER_S, make_will
from .broker_model import Promise
from .broker_world import Client, Sent, World

CLIENTS = st.sampled_from(["a", "b", "c"])
TOPICS = st.sampled_from(["t/1", "t/2", "u"])
FILTERS = st.sampled_from(["t/1", "t/+", "#", "u", "$share/g/t/+"])
EXPIRIES = st.sampled_from([NEVER_S, 10, 0])
QOS = st.sampled_from([2, 1, 0])


class BrokerMachine(RuleBasedStateMachine):
    @initialize(
        durable=st.sampled_from([True, True, True, False]), receive_maximum=st.sampled_from([10, 2, 1])
    )
    def start(self, durable: bool, receive_maximum: int) -> None:
        """Begin with subscribers, or most runs would be over before a message has arrived."""
        self.world = World(durable)
        for name, topic_filter in (("a", "u"), ("b", "t/+"), ("c", "#")):
            client = self.world.clients[name]
            self.world.connect(client, "u", False, NEVER_S, receive_maximum, None)
            self.world.subscribe(client, Subscription(client_id=name, topic_filter=topic_filter, qos=2))
        self.world.settle()

    def connected(self) -> list[Client]:
        return [client for client in self.world.clients.values() if client.peer is not None]

    def draw_client(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.connected()), label="client")

    # --- connections --------------------------------------------------------------------

    @rule(
        name=CLIENTS,
        user=st.sampled_from(["u", "u", "u", "v"]),
        clean=st.sampled_from([False, False, False, True]),
        expiry_s=EXPIRIES,
        receive_maximum=st.sampled_from([10, 2, 1]),
        will=st.one_of(
            st.none(), st.tuples(TOPICS, QOS, st.sampled_from([0, 5, 20]), st.booleans(), st.booleans())
        ),
    )
    def connect(
        self,
        name: str,
        user: str,
        clean: bool,
        expiry_s: int,
        receive_maximum: int,
        will: tuple[str, int, int, bool, bool] | None,
    ) -> None:
        made = None
        if will is not None:
            topic, qos, delay_s, retain, expires = will
            made = make_will(
                name,
                topic,
                qos=qos,
                delay_s=delay_s,
                retain=retain,
                expiry_s=5 if expires else None,
                tag=self.world.new_tag(),
            )
        self.world.connect(self.world.clients[name], user, clean, expiry_s, receive_maximum, made)

    @precondition(lambda self: self.connected())
    @rule(
        data=st.data(),
        keep_will=st.booleans(),
        expiry_s=st.sampled_from([None, None, None, 0, 3]),
    )
    def disconnect(self, data: st.DataObject, keep_will: bool, expiry_s: int | None) -> None:
        self.world.disconnect(self.draw_client(data), keep_will, expiry_s)

    # --- subscriptions ------------------------------------------------------------------

    @precondition(lambda self: self.connected())
    @rule(
        data=st.data(),
        topic_filter=FILTERS,
        qos=QOS,
        no_local=st.booleans(),
        as_published=st.booleans(),
        handling=st.sampled_from([0, 1, 2]),
        identifier=st.sampled_from([0, 7, 8]),
        name=st.sampled_from(["", "", "n", "m"]),
    )
    def subscribe(
        self,
        data: st.DataObject,
        topic_filter: str,
        qos: int,
        no_local: bool,
        as_published: bool,
        handling: int,
        identifier: int,
        name: str,
    ) -> None:
        client = self.draw_client(data)
        is_shared = topic_filter.startswith("$share")
        no_local = no_local and not is_shared  # 3.8.3-4
        wanted = Subscription(
            client_id=client.name,
            topic_filter=topic_filter,
            qos=qos,
            no_local=no_local,
            retain_as_published=as_published,
            retain_handling=handling,
            identifier=identifier,
            terms=Terms(name="" if is_shared else name),
        )
        self.world.subscribe(client, wanted)

    @precondition(lambda self: self.connected())
    @rule(data=st.data(), topic_filter=FILTERS, name=st.sampled_from([None, None, "", "n"]))
    def unsubscribe(self, data: st.DataObject, topic_filter: str, name: str | None) -> None:
        self.world.unsubscribe(self.draw_client(data), topic_filter, name)

    # --- messages -----------------------------------------------------------------------

    @precondition(lambda self: self.connected())
    @rule(
        data=st.data(),
        topic=TOPICS,
        qos=QOS,
        retain=st.sampled_from([False, False, True]),
        expiry_s=st.sampled_from([None, None, 2, 8]),
        is_empty=st.sampled_from([False, False, True]),
    )
    def publish(
        self, data: st.DataObject, topic: str, qos: int, retain: bool, expiry_s: int | None, is_empty: bool
    ) -> None:
        client = self.draw_client(data)
        assert client.peer is not None
        if not client.peer.is_greeted:
            qos = 0  # before CONNACK it does not know which packet ids are free
        payload = b"" if is_empty and retain else b"x"
        tag = self.world.new_tag()
        self.world.publish(client, Sent(topic, payload, qos, retain, expiry_s, tag, Promise()))

    @precondition(lambda self: any(client.sent for client in self.connected()))
    @rule(data=st.data())
    def publish_again(self, data: st.DataObject) -> None:
        """MQTT 3.1.1 clients may do so on the same connection (its 4.4)."""
        client = data.draw(st.sampled_from([client for client in self.connected() if client.sent]))
        packet_id, sent = data.draw(st.sampled_from(list(client.sent.items())))
        assert client.peer is not None
        if sent.stage == "sent" and client.peer.is_greeted:
            self.world.transmit(client, sent, packet_id)

    @precondition(lambda self: any(client.sent for client in self.connected()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.connected() if client.sent]))
        packet_id, sent = data.draw(st.sampled_from(list(client.sent.items())))
        assert client.peer is not None
        if sent.stage == "received" and client.peer.is_greeted:
            self.world.release(client, packet_id)

    @precondition(lambda self: any(client.outstanding for client in self.connected()))
    @rule(data=st.data(), is_refused=st.sampled_from([False, False, False, True]))
    def acknowledge(self, data: st.DataObject, is_refused: bool) -> None:
        client = data.draw(st.sampled_from([client for client in self.connected() if client.outstanding]))
        packet_id, packet = data.draw(st.sampled_from(list(client.outstanding.items())))
        _, session = self.world.live(client)
        if packet.kind == "PUBLISH" and self.world.in_flight(session, packet_id).state == "released":
            return  # PUBREL is on its way
        # A message that arrived before is not refused when it comes again.
        code = 0x80 if is_refused and packet.kind == "PUBLISH" and not packet.dup else 0
        self.world.acknowledge(client, packet_id, code)

    @precondition(lambda self: self.connected())
    @rule(data=st.data(), kind=st.sampled_from([PUBACK, PUBREC, PUBCOMP]), packet_id=st.integers(1, 4))
    def acknowledge_unknown(self, data: st.DataObject, kind: int, packet_id: int) -> None:
        self.world.acknowledge_unknown(self.draw_client(data), kind, packet_id)

    @precondition(lambda self: any(client.outstanding for client in self.connected()))
    @rule(data=st.data())
    def acknowledge_wrongly(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.connected() if client.outstanding]))
        packet_id, packet = data.draw(st.sampled_from(list(client.outstanding.items())))
        if packet.kind == "PUBLISH":
            self.world.acknowledge_wrongly(client, packet_id)

    # --- the node, the disk, time -------------------------------------------------------

    @rule(name=CLIENTS, bytes_max=st.sampled_from([BYTES_MAX, BYTES_MAX, 1]))
    def flush(self, name: str, bytes_max: int) -> None:
        self.world.flush(self.world.clients[name], bytes_max)

    @rule()
    def turn(self) -> None:
        """As the node does: write to everybody, then hand the orders to storage."""
        for client in self.world.clients.values():
            self.world.flush(client)
        self.world.node.take_batch()

    @rule()
    def take_batch(self) -> None:
        self.world.node.take_batch()

    @rule()
    def commit(self) -> None:
        self.world.node.commit()

    @rule()
    def commit_all(self) -> None:
        while self.world.node.pending:
            self.world.node.commit()

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @rule(duration_s=st.sampled_from([0.5, 2, 5, 12]))
    def advance(self, duration_s: float) -> None:
        self.world.advance(duration_s)

    @precondition(lambda self: self.world.node.is_durable)
    @rule(downtime_s=st.sampled_from([0, 1, 9]))
    def crash(self, downtime_s: int) -> None:
        self.world.crash(downtime_s)

    @invariant()
    def is_as_the_model_says(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check()


BrokerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBroker = BrokerMachine.TestCase


WALK_STEPS = 400


class Walk:
    """A long walk of likely steps: reaches what a machine's short and even choice seldom does."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(durable=True)
        for client in self.world.clients.values():
            self.world.connect(client, "u", False, NEVER_S, self.random.choice([1, 2, 4]), None)
            self.world.subscribe(
                client,
                Subscription(client_id=client.name, topic_filter=self.random.choice(["t/+", "#"]), qos=2),
            )
        self.world.settle()

    def run(self) -> None:
        steps = {
            self.connect: 3,
            self.disconnect: 2,
            self.subscribe: 2,
            self.unsubscribe: 1,
            self.publish: 16,
            self.acknowledge: 16,
            self.release: 6,
            self.flush: 16,
            self.take_batch: 8,
            self.commit: 8,
            self.advance: 2,
            self.settle: 2,
            self.crash: 1,
        }
        for _ in range(WALK_STEPS):
            [step] = self.random.choices(list(steps), list(steps.values()))
            step()
            self.world.check()
        self.world.settle()
        self.world.check()

    def client(self) -> Client | None:
        """A client that is connected and knows it."""
        found = [
            client
            for client in self.world.clients.values()
            if client.peer is not None and client.peer.is_greeted
        ]
        return self.random.choice(found) if found else None

    def connect(self) -> None:
        client = self.random.choice(list(self.world.clients.values()))
        will = None
        if self.random.random() < 0.3:
            will = make_will(
                client.name, "t/1", qos=2, delay_s=self.random.choice([0, 5]), tag=self.world.new_tag()
            )
        clean = self.random.random() < 0.1
        expiry_s = self.random.choice([3, 10]) if self.random.random() < 0.2 else NEVER_S
        self.world.connect(client, "u", clean, expiry_s, self.random.choice([1, 2, 4]), will)

    def disconnect(self) -> None:
        client = self.client()
        if client is not None:
            self.world.disconnect(client, self.random.random() < 0.7, None)

    def subscribe(self) -> None:
        client = self.client()
        if client is not None:
            topic_filter = self.random.choice(["t/1", "t/+", "#", "$share/g/t/+"])
            name = "" if topic_filter.startswith("$share") else self.random.choice(["", "", "n", "m"])
            wanted = Subscription(
                client_id=client.name,
                topic_filter=topic_filter,
                qos=self.random.choice([1, 2, 2, 2]),
                terms=Terms(name=name),
            )
            self.world.subscribe(client, wanted)

    def unsubscribe(self) -> None:
        client = self.client()
        if client is not None and self.random.random() < 0.5:
            name = self.random.choice([None, None, "", "n"])
            self.world.unsubscribe(client, self.random.choice(["t/1", "t/+", "#"]), name)

    def publish(self) -> None:
        client = self.client()
        if client is not None:
            topic = self.random.choice(["t/1", "t/2"])
            qos = self.random.choice([0, 1, 2, 2])
            retain = self.random.random() < 0.2
            expiry_s = self.random.choice([None, None, None, 3])
            tag = self.world.new_tag()
            self.world.publish(client, Sent(topic, b"x", qos, retain, expiry_s, tag, Promise()))

    def acknowledge(self) -> None:
        client = self.client()
        if client is not None and client.outstanding:
            packet_id = self.random.choice(list(client.outstanding))
            _, session = self.world.live(client)
            released = self.world.in_flight(session, packet_id).state == "released"
            if client.outstanding[packet_id].kind == "PUBREL" or not released:
                self.world.acknowledge(client, packet_id, 0)

    def release(self) -> None:
        client = self.client()
        if client is not None:
            ready = [packet_id for packet_id, sent in client.sent.items() if sent.stage == "received"]
            if ready:
                self.world.release(client, self.random.choice(ready))

    def flush(self) -> None:
        self.world.flush(self.random.choice(list(self.world.clients.values())))

    def take_batch(self) -> None:
        self.world.node.take_batch()

    def commit(self) -> None:
        self.world.node.commit()

    def advance(self) -> None:
        self.world.advance(self.random.choice([0.5, 1, 4]))

    def settle(self) -> None:
        self.world.settle()

    def crash(self) -> None:
        """The broker dies; most clients come back at once."""
        self.world.crash(self.random.choice([0, 2]))
        for client in self.world.clients.values():
            if self.random.random() < 0.8:
                self.world.connect(client, "u", False, NEVER_S, self.random.choice([1, 2, 4]), None)
        if self.random.random() < 0.8:
            self.world.settle()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
@example(1577368)  # what a member of a group left went to another one
@example(1149)  # a will for a shared group whose only other member had a full queue
def test_a_long_walk_keeps_every_promise(seed: int) -> None:
    Walk(seed).run()
