"""The configuration of a broker as checked values, and how they are read from text; no IO."""
