"""The protocol between two brokers: packets of a mesh and one open link; no IO."""
