"""What became of every delivery: the account, counters, and the trace log."""
