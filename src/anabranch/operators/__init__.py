"""What the library brings: operators that run in workers, and what they need there.

library_operator.py   what they have in common: models, fields, policies for bad input
agg.py, windows.py    what users name: aggregations and windows
aggregation.py        windows over keys; sliding.py, event_windows.py, shared_windows.py, session_windows.py,
                      window_panes.py, running_windows.py, combining.py are its variants
window_bounds.py      bounds of windows that no column can hold
joins.py, timed_joins.py, aligning.py, sorting.py, pattern_matching.py, routing.py
batch_functions.py    functions of many tuples at once
accumulation.py       sums over all tuples, in blocks
late_tuples.py        late tuples as a stream        key_columns.py   keys that are no columns
chosen_columns.py     which columns a stream has     top_tuples.py    the first of each key, as they change
shared_state.py       operators with state in common
changes.py            updates as changes of a table    local_time.py   the wall clock of a zone
guarding.py           calls that fail: skipped, or dead letters
timers.py             timers of users' operators
epoch_context.py      the epoch that runs: its time, counts of bad input
sketches.py           distinct values and quantiles, about
hot_key_parts.py      keys that several channels work on
"""
