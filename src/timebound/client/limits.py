"""What the server said about itself in its CONNACK."""

from __future__ import annotations

from dataclasses import dataclass

from timebound.errors import PublishError
from timebound.wire.packets import Connack


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The server's limits; the defaults are what MQTT means by silence (MQTT 5, 3.2.2.3)."""

    receive_maximum: int = 65_535
    maximum_packet_size: int = 0  # 0 = none
    maximum_qos: int = 2
    retain_available: bool = True
    has_subscription_identifiers: bool = False

    def check_publish(self, topic: str, qos: int, retain: bool, size: int) -> None:
        """Refuse what the server would close the connection over.

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
                f"message on {topic!r} has QoS {qos} and the server takes at most {self.maximum_qos}",
                reason_code=0x9B,
            )
        if retain and not self.retain_available:
            raise PublishError(
                f"message on {topic!r} is to be retained and the server retains none", reason_code=0x9A
            )


def read_limits(connack: Connack, version: int) -> ServerLimits:
    said = connack.properties
    return ServerLimits(
        receive_maximum=said.receive_maximum or 65_535,
        maximum_packet_size=said.maximum_packet_size or 0,
        maximum_qos=2 if said.maximum_qos is None else said.maximum_qos,
        retain_available=said.retain_available is not False,
        has_subscription_identifiers=version == 5 and said.subscription_identifier_available is not False,
    )
