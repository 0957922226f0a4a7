"""The only place that imports pyspark at run time: session, sources, epoch runner, sinks."""
