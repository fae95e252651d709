"""Strategies, which choose the next message of an outgoing queue: one per file."""
