"""Which channel owns which key (pure): hashing, key groups, frequencies, partitioning functions, metrics."""
