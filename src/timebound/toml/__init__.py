"""TOML documents: typed values, each mistake with its line and key; no IO."""
