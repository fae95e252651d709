"""Which message of an outgoing queue goes next: one strategy per file."""
