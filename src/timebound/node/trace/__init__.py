"""The trace of a broker, packed on the event loop and written by a process of its own."""
