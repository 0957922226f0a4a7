"""What an epoch is, on either side, without pyspark.

sequential.py   the meaning of a program: one tuple after the other
                sequential_wiring.py      who is told what an operator gives out, and when
                sequential_operators.py   what each operator does with a tuple; sequential_keys.py  one with keys
                sequential_time.py        keys that wait, idle streams; sequential_failures.py  calls that fail
                sequential_versions.py    a later program goes on from an earlier one
table_versions.py   which version of a changing table an epoch has
job.py          the tasks of an epoch, as data; claimed_tasks.py   … as the slots of one machine work them off
reports.py      what tasks tell the driver
query_options.py  what the options of a query say, typed
clock.py        the clocks that driver and tasks look at
thread_settings.py   what holds in the thread that starts a query, and so wherever its operators run
worker/         what runs in tasks
driver/         what runs between them: the epoch's course, its commit, adaptation
verifying/      running a sample of keys again, as one thread would
pool/           elastic operators: several calls of a function under way at once
"""
