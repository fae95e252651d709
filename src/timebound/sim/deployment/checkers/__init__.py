"""What a deployment has to keep, whatever happens: one small independent checker for each promise."""
