"""Channels joined to each other: in one process, over sockets, and through a broker."""
