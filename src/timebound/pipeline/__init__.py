"""Analysis of measurements with Spark: source and sink, batch and streaming jobs, sweeps, reports.

The broker imports nothing of it, and no module here imports Spark before it is needed.
"""
