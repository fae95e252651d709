"""Random deployments by seed: drawn, run, counted, and shrunk when one fails."""
