"""Connections of clients: handshake, packets in, deliveries out, TLS and WebSocket."""
