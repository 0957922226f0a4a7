"""Changing operators so that they mean the same and run better.

managed_state.py   dicts of the author's that become managed state
watched_dicts.py   dicts that refuse what the proof says does not happen
computed_key.py    keys that are computed become columns
whole_object.py    operators in one channel, taken over whole
doors.py           code that reaches what is not the operator's own
inline.py          methods of keyed operators over columns
returned_tuples.py methods that return tuples as such that yield them
state_slots.py     … and over lists of their state, without instances; slot_folds.py   those that only add up
over_columns.py    functions of a tuple over the columns they read
equal_calls.py     functions that only compute, so that equal values need one call
conditions.py      functions of filters as conditions that columns can be asked
keyed_reads.py     which columns keyed operators read
tuple_reads.py     which columns a method reads of its tuple
column_arguments.py   methods and functions that are called with these columns, not with a tuple
"""
