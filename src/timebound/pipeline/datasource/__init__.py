"""The data source `timebound`: read journals, publish rows, over Arrow Flight."""
