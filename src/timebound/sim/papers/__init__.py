"""The papers' experiments: settings, grids of runs, and the published values beside ours."""
