"""HTML reports of sweeps and of batch results."""
