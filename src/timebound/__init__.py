"""Publish/subscribe in which lateness counts."""
