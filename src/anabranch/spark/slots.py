"""How many tasks run at once, or could: what bounds the number of channels that can help.

With dynamic allocation Spark adds executors only while tasks wait for a slot. Channels that never outgrow the slots
would never make any wait, so there a region may have twice as many channels as there are slots now: then tasks wait,
executors come, slots grow, and so does the bound. If none come, the controller finds that the channels brought nothing,
and goes back. Idle executors are given back by Spark itself.
"""

from __future__ import annotations

from typing import Any

_GROWTH = 2


def task_slots(context: Any) -> int:
    """How many channels a region of a query on this SparkContext may reasonably have, now."""
    now = max(1, int(context.defaultParallelism))
    setting = context.getConf().get
    if str(setting("spark.dynamicAllocation.enabled", "false")).lower() != "true":
        return now
    cores = max(1, int(setting("spark.executor.cores", "1")) // max(1, int(setting("spark.task.cpus", "1"))))
    executors = setting("spark.dynamicAllocation.maxExecutors", None)
    most = int(executors) * cores if executors is not None else _GROWTH * now
    return max(now, min(_GROWTH * now, most))
