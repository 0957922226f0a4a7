"""What a program is, as frozen data; the bottom of the house: it imports nothing of ours but errors.

graph.py      operators and streams; what each kind of operator holds
schema.py     columns, tuples, and whether values fit          ddl.py   schemas as Spark writes them
fitting.py    what a column holds of a value                misfits.py    what is wrong with those that do not fit
annotations.py   columns from annotations of Python    annotated_rows.py   tuples that are what these say
changing_table.py who reads a table that changes, and a version of it
state_fields.py   what is kept for each key, and its versions
punctuated_streams.py   which streams have punctuations
event_time.py  times as whole numbers, watermarks, the keys that wait for a time
model.py      what an operator does, with the reasons: state, key, selectivity, order
calling.py    the contract with user code: what it may return, how its failure is told, its instances
broadcasting.py  what all keys of an operator see alike
elastic.py    how the calls of an elastic operator are made
hashing.py    the hash of keys, and key groups               key_text.py   texts for computed keys
options.py, option_names.py   every option of a query: name, what it may be, default, meaning; names that look like one
origins.py    sources that need no Spark to be described
object_parts.py   what objects of the user's hold           object_reach.py   what they lead to, code included
object_pieces.py  of the library, kept in one piece         kept_cache.py   cached functions, with their results
set_tables.py     the order of a set, kept                  not_a_number.py   which NaN is which
object_graph.py   such an object, kept whole as data        object_filling.py   objects put together from what was kept
array_parts.py    arrays that show each other's cells       array_types.py   types of arrays, as text
noted_results.py  what cached functions gave, watched
belongings.py     what user code keeps, put back            elsewhere.py   what it names in other modules, watched
whole_copies.py   copies with globals of their own          likeness.py   whether a copy is like its original
table_columns.py  columns of others' tables
travelling.py     a program on its way to workers          source_code.py   the syntax tree of a function
context_variables.py   those that user code names, on their way with it
showing.py        values and errors as text, also those that cannot show themselves
"""
