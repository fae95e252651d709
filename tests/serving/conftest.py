"""Brokers in process, as for the tests of the node."""

from __future__ import annotations

from tests.node.conftest import build as build
