"""What Spark ran for a query, by its own status and by the files that tasks left."""

import os
from collections import Counter

from anabranch.engine.claimed_tasks import ClaimedTasks


class Ran:
    """How many tasks each depth of each epoch had.

    Where tasks read files on this machine, an epoch is a job of one stage, in which slots work the tasks off; else each
    depth is a stage of the epoch's job.
    """

    def __init__(self, monkeypatch, spark):
        self._spark = spark
        self._worked_off = []
        results = ClaimedTasks.results

        def noted(tasks):
            left = Counter(int(name.split("-")[1]) for name in os.listdir(tasks.directory) if name.count("-") == 2)
            group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")  # what is fed back may have none
            self._worked_off.append((group, [left[depth] for depth in sorted(left)]))
            return results(tasks)

        monkeypatch.setattr(ClaimedTasks, "results", noted)

    def epochs(self, query):
        """Those of a query that has ended."""
        slots = self._spark.sparkContext.defaultParallelism
        left = [depths for group, depths in self._worked_off if group == query.runId]
        found = []
        for job in _stages(self._spark, query):
            found.append(left.pop(0) if left and job == [min(slots, max(left[0]))] else job)
        assert not left, "an epoch was worked off in no job of Spark's"
        return found


def _stages(spark, query):
    """The tasks of each stage of each job that a query ran, as Spark's own status has them."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in sorted(tracker.getJobIdsForGroup(query.runId))]
    stages = [[tracker.getStageInfo(number) for number in sorted(job.stageIds)] for job in jobs]
    assert all(stage is not None for job in stages for stage in job), "Spark has forgotten a stage"
    return [[stage.numTasks for stage in job] for job in stages]
