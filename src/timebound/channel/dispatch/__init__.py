"""In whose thread, and in which order, consumers are called: at once, in lanes, or on an event loop."""
