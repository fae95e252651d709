"""Lets Spark find the data source `timebound` by its name, with nothing to register.

Spark looks for a module `pyspark_<format>` with a class `DefaultSource`, on the driver and on
executors, so this one has to be light and must be installed there.
"""

from timebound.pipeline.datasource.source import TimeboundDataSource


class DefaultSource(TimeboundDataSource):
    """`spark.read.format("timebound")`."""
