"""Running a sample of keys again, as one thread would, and comparing.

plain_operators.py   an operator as its author wrote it, from a given state
plain_instances.py   … with an object for each key
comparing.py         what the tasks of an epoch did beside what one thread does; the first difference
difference_files.py  a difference as a file, to look at and to run again
verifier.py          what the driver does about an epoch
"""
