"""Many content filters at once: which of them match a message."""
