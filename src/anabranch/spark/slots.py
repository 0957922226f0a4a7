"""How many tasks run at once, or could: what bounds the number of channels that can help.

Where executors can come, channels that never outgrow the slots would never bring any. With dynamic allocation a region
may have twice as many channels as there are slots now (its own limit is infinite by default): then tasks wait, Spark
adds executors, slots grow, and so does the bound. Where we ask for executors (spark/cluster.py) the user has said
how many there may be, and that is the bound. If none come, the controller finds that the channels brought nothing, and
goes back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

_GROWTH = 2


def slots_now(context: Any) -> int:
    """How many tasks of this SparkContext run at once, now."""
    return max(1, int(context.defaultParallelism))


def task_slots(context: Any, executors_max: int | None = None) -> int:
    """How many channels a region of a query on this SparkContext may reasonably have, now.

    Parameters
    ----------
    context : SparkContext
    executors_max : int, optional
        So many executors may be asked for, where that is ours to do.
    """
    now, each, setting = slots_now(context), executor_slots(context), partial(_setting, context)
    if has_dynamic_allocation(context):
        executors_max = setting("spark.dynamicAllocation.maxExecutors", None)
        reachable = [_GROWTH * now]
    elif executors_max is None or not takes_requests(context):
        return now
    else:
        reachable = []
    if executors_max is not None and each is not None:
        reachable.append(int(executors_max) * each)
    cores_max = setting("spark.cores.max", None)
    if cores_max is not None:  # a standalone master gives no more, whatever is asked for
        reachable.append(int(cores_max) // _task_cores(context))
    # Of executors as large as their hosts nobody knows how large those are that come.
    return max(now, min(reachable, default=_GROWTH * now))


def asked_once_if_local(context: Any, ask: Callable[[], int]) -> Callable[[], int]:
    """A number of slots as a function: on one machine nothing changes it, and each question is a call to the JVM."""
    if not is_local(context):
        return ask
    found = ask()
    return lambda: found


def executor_slots(context: Any) -> int | None:
    """Slots of each executor; None where it has as many as its host: on a standalone cluster, if it was not said."""
    default = None if str(context.master).startswith(("spark://", "local-cluster")) else "1"
    cores = _setting(context, "spark.executor.cores", default)
    return None if cores is None else max(1, int(cores) // _task_cores(context))


def has_dynamic_allocation(context: Any) -> bool:
    """Spark itself asks for executors and gives them back."""
    return str(_setting(context, "spark.dynamicAllocation.enabled", "false")).lower() == "true"


def takes_requests(context: Any) -> bool:
    """There are executors, and Spark does not manage their number itself."""
    return not is_local(context) and not has_dynamic_allocation(context)


def is_local(context: Any) -> bool:
    """Tasks run in the driver's JVM: there is no executor that could be lost."""
    master = str(context.master)
    return master.startswith("local") and not master.startswith("local-cluster")


def local_slots(context: Any) -> int:
    """How many tasks run at once on this machine, at most; what `slots_now` is told may be changed by a setting."""
    found = re.match(r"local\[\s*(\d+|\*)", str(context.master))
    if found is None:
        return 1
    return int(context._jvm.Runtime.getRuntime().availableProcessors() if found[1] == "*" else found[1])


def is_encrypted(context: Any) -> bool:
    """What Spark leaves on disks is to be encrypted."""
    return str(_setting(context, "spark.io.encryption.enabled", "false")).lower() == "true"


def _task_cores(context: Any) -> int:
    return max(1, int(_setting(context, "spark.task.cpus", "1")))


def _setting(context: Any, name: str, default: str | None) -> Any:
    # Not `getConf`, which copies all settings, in two calls to the JVM for each: 800 calls an epoch.
    return context._conf.get(name, default)
