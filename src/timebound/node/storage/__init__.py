"""Durable state in SQLite: schema, load at start, batched commits."""
