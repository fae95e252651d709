"""Scenario files, variations of them for sweeps, and replay of observed load."""
