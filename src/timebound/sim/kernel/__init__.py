"""Virtual time, distributions, and named streams of random numbers."""
