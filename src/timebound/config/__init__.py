"""The configuration of a broker: checked values, and their reader; no IO."""
