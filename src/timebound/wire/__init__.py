"""MQTT 5.0 and 3.1.1: bytes to packets and back; no IO, no clock."""
