"""Load and comparison benchmarks; each module is imported by those who need it."""
