"""Nexmark: an auction house, the benchmark that stream processors are compared by.

events.py    what happens there: persons, auctions and bids as one stream, always the same for a seed
queries.py   the queries, each a function of the streams it names
lines.py     how long they are, beside those of Flink SQL and Spark

    python -m examples.nexmark.queries q5 --events 20000 --channels 4

Queries, schema, proportions and the shape of the data are those of the public benchmark
(https://github.com/nexmark/nexmark, Apache License 2.0); all code here is our own.
"""
