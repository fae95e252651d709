"""Outcomes of deliveries: the account, counters, and the trace log."""
