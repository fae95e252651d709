"""The input scheduler under virtual time, and the link layers before it."""
