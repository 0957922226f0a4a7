"""The regions of *Safe* and *Elastic*: splitter, channels, and what moves between channels.

The mergers behind them are those of `engine/merging`.
"""
