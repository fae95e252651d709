"""Requests of clients to the broker itself, published under `$timebound/`."""
