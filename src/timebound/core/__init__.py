"""Every decision of a broker; no IO, no clock, no randomness of its own."""
