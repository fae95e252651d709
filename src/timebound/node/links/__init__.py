"""Measure what a TCP connection carries, and pace what is written to it."""
