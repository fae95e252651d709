"""Matching: the topic index, retained messages, taps for journals."""
