"""Parquet files of columns that come in runs, written without row-by-row work."""
