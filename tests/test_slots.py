"""The bound on channels follows the executors."""

import pytest

from anabranch.spark.slots import task_slots


class Context:
    def __init__(self, slots, **settings):
        self.defaultParallelism = slots
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    def getConf(self):
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
