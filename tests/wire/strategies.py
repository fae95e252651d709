"""Hypothesis strategies for every packet, in both protocol versions.

What a version cannot carry is not drawn, so that a round trip has to give back the very value.
"""

from __future__ import annotations

from hypothesis import strategies as st

from timebound.wire import packet_types as types
from timebound.wire import reasons
from timebound.wire.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
    Will,
    make_publish,
)
from timebound.wire.properties import Properties

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
topic_names = st.text(
    st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=20
)
topic_filters = st.sampled_from(["#", "+", "a/+/b", "$share/group/a/#", "plant/7/temp", "/", "ä/€"])
payloads = st.binary(max_size=200)
packet_ids = st.integers(1, 65_535)
u16 = st.integers(0, 65_535)
u32 = st.integers(0, 4_294_967_295)
flags = st.booleans()
# The standard allows four bytes, but paho, which some tests compare with, only what a packet can be.
maximum_packet_sizes = st.integers(1, 268_435_455)
identifiers = st.integers(1, 268_435_455)
user_properties = st.lists(st.tuples(texts, texts), max_size=4)

_MESSAGE = {
    "payload_format_indicator": st.integers(0, 1),
    "message_expiry_interval": u32,
    "content_type": texts,
    "response_topic": topic_names,
    "correlation_data": st.binary(max_size=30),
    "user_properties": user_properties,
}
_REASON = {"reason_string": texts, "user_properties": user_properties}
PROPERTIES_OF = {
    types.WILL: {**_MESSAGE, "will_delay_interval": u32},
    types.CONNECT: {
        "session_expiry_interval": u32,
        "receive_maximum": st.integers(1, 65_535),
        "maximum_packet_size": maximum_packet_sizes,
        "topic_alias_maximum": u16,
        "request_response_information": flags,
        "request_problem_information": flags,
        "authentication_method": texts,
        "user_properties": user_properties,
    },
    types.CONNACK: {
        **_REASON,
        "session_expiry_interval": u32,
        "receive_maximum": st.integers(1, 65_535),
        "maximum_qos": st.integers(0, 1),
        "retain_available": flags,
        "maximum_packet_size": maximum_packet_sizes,
        "assigned_client_identifier": texts,
        "topic_alias_maximum": u16,
        "wildcard_subscription_available": flags,
        "subscription_identifier_available": flags,
        "shared_subscription_available": flags,
        "server_keep_alive": u16,
        "response_information": texts,
        "server_reference": texts,
        "authentication_method": texts,
    },
    types.PUBLISH: {
        **_MESSAGE,
        "topic_alias": st.integers(1, 65_535),
        "subscription_identifiers": st.lists(identifiers, max_size=3),
    },
    types.SUBSCRIBE: {
        "subscription_identifiers": st.lists(identifiers, max_size=1),
        "user_properties": user_properties,
    },
    types.SUBACK: _REASON,
    types.UNSUBSCRIBE: {"user_properties": user_properties},
    types.UNSUBACK: _REASON,
    types.DISCONNECT: _REASON,
    types.AUTH: {**_REASON, "authentication_data": st.binary(max_size=30)},
}


@st.composite
def properties_for(draw: st.DrawFn, packet_type: int, version: int = 5) -> Properties:
    properties = Properties()
    if version != 5:
        return properties
    drawn = draw(st.fixed_dictionaries({}, optional=PROPERTIES_OF[packet_type]))
    for name, value in drawn.items():
        setattr(properties, name, value)
    if packet_type == types.AUTH:
        properties.authentication_method = draw(texts)
    return properties


@st.composite
def publishes(draw: st.DrawFn, version: int, *, from_server: bool) -> Publish:
    qos = draw(st.integers(0, 2))
    properties = draw(properties_for(types.PUBLISH, version))
    if not from_server:
        properties.subscription_identifiers = []
    topic = draw(topic_names)
    if properties.topic_alias is not None and draw(flags):
        topic = ""
    packet_id = draw(packet_ids) if qos else 0
    packet = make_publish(topic, draw(payloads), qos, draw(flags), packet_id, properties)
    packet.dup = qos > 0 and draw(flags)
    return packet


@st.composite
def acks(draw: st.DrawFn, version: int) -> Ack:
    kind = draw(st.integers(types.PUBACK, types.PUBCOMP))
    packet = Ack(kind, draw(packet_ids))
    if version == 5:
        is_answer = kind in (types.PUBACK, types.PUBREC)
        codes = reasons.PUBLISH_ANSWER_CODES if is_answer else reasons.RELEASE_CODES
        packet.reason_code = draw(st.sampled_from(sorted(codes)))
        packet.reason_string = draw(texts)
        packet.user_properties = tuple(draw(user_properties))
    return packet


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    will = None
    if draw(flags):
        will_properties = draw(properties_for(types.WILL, version))
        will = Will(draw(topic_names), draw(payloads), draw(st.integers(0, 2)), draw(flags), will_properties)
    username = draw(st.none() | texts)
    has_password = draw(flags) and (version == 5 or username is not None)
    return Connect(
        draw(texts),
        5 if version == 5 else draw(st.sampled_from([3, 4])),
        draw(flags),
        draw(u16),
        username,
        draw(payloads) if has_password else None,
        will,
        draw(properties_for(types.CONNECT, version)),
    )


def subscribes(version: int) -> st.SearchStrategy[Packet]:
    shared_or_not = st.builds(
        SubscribeEntry,
        topic_filters,
        st.integers(0, 2),
        st.just(False),
        flags if version == 5 else st.just(False),
        st.integers(0, 2) if version == 5 else st.just(0),
    )
    no_local = st.builds(SubscribeEntry, topic_names, st.integers(0, 2), st.just(True))
    entries = st.lists(shared_or_not | no_local if version == 5 else shared_or_not, min_size=1, max_size=4)
    return st.builds(Subscribe, packet_ids, entries, properties_for(types.SUBSCRIBE, version))


def packets_to_server(version: int) -> st.SearchStrategy[Packet]:
    """Any packet a client may send after its CONNECT."""
    unsubscribes = st.builds(
        Unsubscribe,
        packet_ids,
        st.lists(topic_filters, min_size=1, max_size=4),
        properties_for(types.UNSUBSCRIBE, version),
    )
    common = st.one_of(
        publishes(version, from_server=False),
        acks(version),
        subscribes(version),
        unsubscribes,
        st.builds(Pingreq),
    )
    if version != 5:
        return common | st.builds(Disconnect)
    return st.one_of(
        common,
        st.builds(
            Disconnect,
            st.sampled_from(sorted(reasons.DISCONNECT_CODES_OF_CLIENT)),
            properties_for(types.DISCONNECT),
        ),
        st.builds(Auth, st.sampled_from(sorted(reasons.AUTH_CODES_OF_CLIENT)), properties_for(types.AUTH)),
    )


def packets_to_client(version: int) -> st.SearchStrategy[Packet]:
    """Any packet a server may send."""
    if version != 5:
        return st.one_of(
            publishes(version, from_server=True),
            acks(version),
            st.builds(Suback, packet_ids, _codes(reasons.SUBACK_CODES_V4)),
            st.builds(Unsuback, packet_ids, st.just([])),
            st.builds(Pingresp),
            st.builds(Connack, flags),
            st.builds(Connack, st.just(False), st.sampled_from([0x84, 0x85, 0x86, 0x87, 0x88])),
        )
    refusals = sorted(reasons.CONNACK_CODES - {0})
    return st.one_of(
        publishes(version, from_server=True),
        acks(version),
        st.builds(Suback, packet_ids, _codes(reasons.SUBACK_CODES), properties_for(types.SUBACK)),
        st.builds(Unsuback, packet_ids, _codes(reasons.UNSUBACK_CODES), properties_for(types.UNSUBACK)),
        st.builds(Pingresp),
        st.builds(Connack, flags, st.just(0), properties_for(types.CONNACK)),
        st.builds(Connack, st.just(False), st.sampled_from(refusals), properties_for(types.CONNACK)),
        st.builds(
            Disconnect,
            st.sampled_from(sorted(reasons.DISCONNECT_CODES_OF_SERVER)),
            properties_for(types.DISCONNECT),
        ),
        st.builds(Auth, st.sampled_from(sorted(reasons.AUTH_CODES_OF_SERVER)), properties_for(types.AUTH)),
    )


def _codes(allowed: frozenset[int]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(sorted(allowed)), min_size=1, max_size=5)
