"""TOML documents as typed values, with line and key of every mistake; no IO."""
