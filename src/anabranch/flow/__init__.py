"""Tuples on their way (pure): packets, splitter, channel, merger, punctuations."""
