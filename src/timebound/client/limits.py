"""The limits that the server announced in its CONNACK."""

from __future__ import annotations

from dataclasses import dataclass

from timebound.errors import PublishError
from timebound.wire.packets import Connack


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The server's limits; the defaults hold where it announces none (MQTT 5, 3.2.2.3)."""

    receive_maximum: int = 65_535
    maximum_packet_size: int = 0  # 0 = no limit
    maximum_qos: int = 2
    retain_available: bool = True
    has_subscription_identifiers: bool = False

    def check_publish(self, topic: str, qos: int, retain: bool, size: int) -> None:
        """Refuse a message for which the server would close the connection.

        Raises:
            PublishError: with the reason code that the server would use.
        """
        if self.maximum_packet_size and size > self.maximum_packet_size:
            raise PublishError(
                f"message on {topic!r} is too large for the server "
                f"({size} bytes as a packet, at most {self.maximum_packet_size})",
                reason_code=0x95,
            )
        if qos > self.maximum_qos:
            raise PublishError(
                f"message on {topic!r} has QoS {qos}; the server accepts at most QoS {self.maximum_qos}",
                reason_code=0x9B,
            )
        if retain and not self.retain_available:
            raise PublishError(
                f"message on {topic!r} has retain set; the server does not support retained messages",
                reason_code=0x9A,
            )


def read_limits(connack: Connack, version: int) -> ServerLimits:
    announced = connack.properties
    return ServerLimits(
        receive_maximum=announced.receive_maximum or 65_535,
        maximum_packet_size=announced.maximum_packet_size or 0,
        maximum_qos=2 if announced.maximum_qos is None else announced.maximum_qos,
        retain_available=announced.retain_available is not False,
        has_subscription_identifiers=version == 5
        and announced.subscription_identifier_available is not False,
    )
