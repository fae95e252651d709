"""Dependencies between events: expressions, their text form, and the timers they need."""
