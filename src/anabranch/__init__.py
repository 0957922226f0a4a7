"""Stream programs written for one thread, run on Spark in parallel, with the output one thread would give."""
