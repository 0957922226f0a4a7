"""The regions of *Safe* and *Elastic*; the mergers behind them are those of `papers/merging`.

splitter.py    one stream in, a channel and a wire item out for every tuple
channel.py     runs the operators, keeps the numbers
migration.py   what changes its owner when one partitioning function follows another
"""
