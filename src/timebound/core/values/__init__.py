"""What the core decides about: messages, subscriptions, delays, access rights, limits, storage orders."""
