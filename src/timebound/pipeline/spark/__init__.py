"""The Spark session: find Java, start or connect, show progress."""
