"""Values of the core: messages, subscriptions, delays, access rights, limits, storage orders."""
