"""What a Python worker of Spark need not look through after every task.

Spark has a worker collect garbage when a task ends (`pyspark/daemon.py`). That visits every object there is, and most
of them are modules: pyarrow, numpy, pyspark, ours. It took 40 ms, where a task of a small epoch takes 5. Objects that
are frozen are not visited, by this collection and by those that run while a task does. They are freed as ever when
nothing refers to them; only of cycles among them, if they become garbage, nothing is freed. So it is done a few times
in a worker's life, and just after the collection of the task before: then hardly anything is there but modules.
"""

from __future__ import annotations

import gc
import itertools

# The first task imports most of what there is to import; others import what operators or errors need.
_FROZEN_AT = frozenset({2, 8, 64})
_begun = itertools.count(1)


def task_begins() -> None:
    """Called in a worker at the start of each task."""
    if next(_begun) in _FROZEN_AT:
        gc.freeze()
