"""The broker on a network: listeners, connections, storage, configuration."""
