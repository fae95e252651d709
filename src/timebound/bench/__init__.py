"""Load and comparison benchmarks; import the modules directly."""
