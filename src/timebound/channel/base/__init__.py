"""What every part of a channel uses: events, dependencies, consumers, filtering, scheduling, reports."""
