"""Journals and publishing over Arrow Flight."""
