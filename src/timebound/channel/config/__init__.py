"""Channels described by a file: reading `channel.toml`, and following it while the channel runs."""
