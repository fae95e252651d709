"""The input scheduler between sockets and the core: publishers, flows, quanta."""
