"""Elastic operators: several calls of a function under way at once, as many as pay off (*Operators*).

    rows ─► dispatch ─► work queue ─► crew of workers ─► outcomes ─► in the order of the rows
               ▲                          ▲
               │ rate of a period         │ level
             metering ──────────────► controller (control/)

elastic_call.py      an elastic function called by one thread: what the calls mean
work.py              a chunk of calls on its way through a pool
thread_crew.py       workers that are threads: created, suspended, woken, never destroyed
process_crew.py      workers that are processes, for code that holds the interpreter's lock
companion.py         such a process: begun, asked, let go, killed
process_worker.py    what runs in it
loop_crew.py         calls in flight on one event loop
level_controller.py  what a pool asks of whoever decides on its level
metering.py          periods that mean something, the rate of each, how long calls take
pool_time.py         the clock and the waiting, real or simulated
neighbours.py        other pools of the host, and what this one does to them
pool_run.py          rows on their way through a pool: handed out, taken back, made again, in order or as they come
dispatch.py          the pool: runs rows through its crew, adapts the level
"""
