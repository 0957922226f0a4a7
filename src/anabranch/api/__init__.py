"""What the user touches.

session.py     where streams come from             declarations.py   operators with state
stream.py      streams: map, filter, process, running them; every method is listed there
windowed.py    aggregate, sort, deduplicate, top, match  joining.py     union, join, enrich, combine, align
branching.py   split, route, spread, punctuate      building.py    how a method puts an operator behind a stream
concurrency.py what is said of elastic operators   keys.py        what may be given for `by=`
sharing.py     operators with state in common
updating.py    changes: what updates do to a table   harness.py    one operator alone, for tests
selecting.py   select: columns, fields of structs, what is computed
versions.py    what operators were in earlier versions of a program
batching.py    map_batches: functions of whole columns    tables.py     tables given as rows
refreshed_tables.py   ab.table: tables that are read again
accumulating.py sums over all tuples, in blocks
failing.py     on_error, dead_letters
stream_time.py  event_time: what a stream's time is
writer.py      where streams go                     query.py       the handle of what runs
explaining.py  what explain prints
temporary_checkpoint.py   of queries whose output nobody keeps
events.py      what listeners are told              progress.py    how it looks on a terminal
partitions.py  how data is partitioned that needs no first shuffle
"""
