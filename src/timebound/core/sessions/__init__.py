"""Sessions of clients: life cycle, durability, outbound deliveries, correlations."""
