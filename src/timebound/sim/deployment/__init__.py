"""Whole brokers under virtual time, with clients, links, storage and faults, and real packets."""
