"""The protocol between two brokers: packets of a mesh, one open link, and all links of a broker; no IO."""
