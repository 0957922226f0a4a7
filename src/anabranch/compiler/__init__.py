"""From a graph of operators to a plan (pure): properties with reasons, regions, strategies, explain."""
