"""Figures of a running broker: Prometheus metrics and `$SYS` topics."""
