"""Channels described by a file: reading `channel.toml`, and applying it to a running channel."""
