"""What things take, in virtual seconds: the cost model.

    an epoch   begin_s │ job: plan_s, then for every depth stage_s and its tasks on slots │ sink │ commit_s │ between_s
    a task     task_s + bytes in · byte_s + Σ operators: tuples in · seconds + keys touched · key_s

What an operator takes for a tuple is the user's to say, or to measure. The rest is what Spark and this library take on
a kind of cluster: the defaults were measured on one machine of two cores (`python -m benchmarks simulator` measures
them again, with a program of its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class WorkCosts:
    """Seconds, on a host of speed 1."""

    operators: Mapping[str, float] = field(default_factory=dict)
    """Operator → for a tuple that enters it."""
    tuple_s: float = 5e-6
    """For a tuple that enters any other operator."""
    key_s: float = 5e-6
    """For a key whose state is read and written, in an epoch."""
    byte_s: float = 2e-9
    """For a byte that is shuffled."""
    file_s: float = 0.01
    """For opening a file of the source."""
    task_s: float = 0.02
    """For a task, whatever it does."""
    launch_s: float = 0.004
    """For launching a task; the driver launches one after the other."""
    stage_s: float = 0.03
    """For the tasks of one depth, before the first begins."""
    plan_s: float = 0.1
    """For an epoch's job, before the first stage begins."""
    begin_s: float = 0.005
    """For beginning an epoch, on the driver."""
    sink_s: float = 0.01
    sink_tuple_s: float = 2e-6
    """For writing the output of an epoch, and each tuple of it."""
    commit_s: float = 0.01
    """For writing the manifest."""
    between_s: float = 0.1
    """What Spark does between two epochs."""
    restart_s: float = 5.0
    """From the driver's death to the first epoch of the next one."""
    noticed_s: float = 1.0
    """From the loss of a host to the moment when its tasks are launched anew."""

    def of_operator(self, name: str) -> float:
        """For a tuple that enters an operator."""
        return self.operators.get(name, self.tuple_s)
