"""Experiments to watch: what happens when a link cannot carry everything."""
