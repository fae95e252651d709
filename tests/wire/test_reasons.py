"""Reason codes: numbers, words, and their shadow in MQTT 3.1.1."""

from __future__ import annotations

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode

from timebound.wire import reasons
from timebound.wire.reasons import ReasonCode, connack_return_code, describe, reason_of_return_code


@pytest.mark.parametrize(
    ("packet_type", "codes"),
    [
        # The standard's table 3-1 has 0x99, for the payload of a will; paho's table lacks it.
        (PacketTypes.CONNACK, reasons.CONNACK_CODES - {0x99}),
        (PacketTypes.PUBACK, reasons.PUBLISH_ANSWER_CODES),
        (PacketTypes.PUBREC, reasons.PUBLISH_ANSWER_CODES),
        (PacketTypes.PUBREL, reasons.RELEASE_CODES),
        (PacketTypes.PUBCOMP, reasons.RELEASE_CODES),
        (PacketTypes.SUBACK, reasons.SUBACK_CODES),
        (PacketTypes.UNSUBACK, reasons.UNSUBACK_CODES),
    ],
)
def test_codes_of_each_packet_are_those_another_implementation_knows(
    packet_type: int, codes: frozenset[int]
) -> None:
    theirs = {code for code in range(256) if _paho_knows(packet_type, code)}

    assert codes == theirs


def _paho_knows(packet_type: int, code: int) -> bool:
    try:
        PahoReasonCode(packet_type, identifier=code)
    except (KeyError, ValueError):
        return False
    return True


def test_every_code_is_carried_by_some_packet() -> None:
    carried = (
        reasons.CONNACK_CODES
        | reasons.PUBLISH_ANSWER_CODES
        | reasons.RELEASE_CODES
        | reasons.SUBACK_CODES
        | reasons.UNSUBACK_CODES
        | reasons.DISCONNECT_CODES_OF_CLIENT
        | reasons.DISCONNECT_CODES_OF_SERVER
        | reasons.AUTH_CODES_OF_CLIENT
        | reasons.AUTH_CODES_OF_SERVER
    )

    assert carried == {int(code) for code in ReasonCode}


def test_describe_uses_the_words_of_the_standard() -> None:
    assert describe(0x87) == "not authorized"
    assert describe(ReasonCode.QOS_NOT_SUPPORTED) == "QoS not supported"
    assert describe(0) == "success"
    assert describe(0xFF) == "unknown reason code 0xff"


@pytest.mark.parametrize(
    ("reason", "return_code"),
    [(0, 0), (0x84, 1), (0x85, 2), (0x88, 3), (0x86, 4), (0x87, 5), (0x8A, 5), (0x97, 3), (0x80, 3)],
)
def test_connect_reasons_have_a_return_code_in_mqtt_3_1_1(reason: int, return_code: int) -> None:
    assert connack_return_code(reason) == return_code


@pytest.mark.parametrize("return_code", range(6))
def test_return_codes_survive_a_round_trip(return_code: int) -> None:
    assert connack_return_code(reason_of_return_code(return_code)) == return_code


@pytest.mark.parametrize("return_code", [-1, 6, 255])
def test_unknown_return_code_has_no_reason(return_code: int) -> None:
    assert reason_of_return_code(return_code) == -1
