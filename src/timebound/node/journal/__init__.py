"""Journals of messages and trace records: files, logs with offsets, rows for readers."""
