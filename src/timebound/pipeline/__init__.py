"""Everything measured flows through Spark: source and sink, batch and streaming jobs, sweeps, reports.

Nothing here is imported by the broker, and no module here imports Spark before it is needed.
"""
