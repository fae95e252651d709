"""One broker among several: forwarding, flooding, the overlay, and interest of other brokers."""
