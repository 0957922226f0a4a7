"""The bound on channels follows the executors."""

import pytest

from anabranch.spark.slots import executor_slots, takes_requests, task_slots


class Context:
    def __init__(self, slots, master="yarn", **settings):
        self.defaultParallelism = slots
        self.master = master
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    def getConf(self):
        return self

    @property
    def _conf(self):
        return self

    def get(self, name, default):
        return self._settings.get(name, default)


DYNAMIC = {"spark_dynamicAllocation_enabled": "true"}


@pytest.mark.parametrize(
    ("context", "slots"),
    [
        (Context(6), 6),
        (Context(6, **DYNAMIC), 12),
        (Context(6, **DYNAMIC, spark_dynamicAllocation_maxExecutors="4", spark_executor_cores="2"), 8),
        (Context(8, **DYNAMIC, spark_dynamicAllocation_maxExecutors="4", spark_executor_cores="2"), 8),
    ],
    ids=["fixed", "dynamic", "up to the limit", "at the limit"],
)
def test_channels_may_outgrow_the_slots_only_where_that_brings_executors(context, slots):
    assert task_slots(context) == slots


CORES = {"spark_executor_cores": "4", "spark_task_cpus": "2"}


@pytest.mark.parametrize(
    ("context", "slots"),
    [
        (Context(3), 5),
        (Context(6, **CORES), 10),
        (Context(4, **CORES), 10),
        (Context(12, **CORES), 12),
        (Context(6, "local[6]"), 6),
        (Context(6, "spark://here:7077"), 12),
        (Context(6, "spark://here:7077", spark_cores_max="8"), 8),
        (Context(6, "spark://here:7077", **CORES, spark_cores_max="16"), 8),
        (Context(6, "spark://here:7077", spark_cores_max="4"), 6),
        (Context(2, "local-cluster[2,1,512]"), 4),
    ],
    ids=[
        "one core each",
        "up to the limit",
        "from anywhere",
        "above it",
        "local",
        "size unknown",
        "cores",
        "both",
        "all cores",
        "local cluster",
    ],
)
def test_channels_may_outgrow_the_slots_where_we_may_ask_for_executors(context, slots):
    assert task_slots(context, executors_max=5) == slots
    assert task_slots(context) == context.defaultParallelism


@pytest.mark.parametrize(
    ("context", "takes", "slots"),
    [
        (Context(6, "local"), False, 1),
        (Context(6, "k8s://there"), True, 1),
        (Context(6, "yarn", **CORES), True, 2),
        (Context(6, "yarn", **DYNAMIC), False, 1),
        (Context(6, "spark://here:7077"), True, None),
    ],
)
def test_who_takes_requests_and_how_large_an_executor_is(context, takes, slots):
    assert (takes_requests(context), executor_slots(context)) == (takes, slots)
