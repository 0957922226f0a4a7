"""The tasks of an epoch, as data: what a backend runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anabranch.engine.worker.output_mergers import MergerTask
from anabranch.engine.worker.splitters import FeedbackTask, SplitTask
from anabranch.engine.worker.tasks import ChannelTask


@dataclasses.dataclass(frozen=True)
class Job:
    """The tasks of an epoch.

    Attributes
    ----------
    split : SplitTask
    feedback : FeedbackTask
    fed_back : list
        What was fed back in the epoch before: (loop, number of the first tuple, an Arrow batch).
    depths : list of ChannelTask
    merger : MergerTask, optional
        Puts outputs in order and writes them; None: the driver does.
    """

    split: SplitTask
    feedback: FeedbackTask
    fed_back: list[tuple[int, int, bytes]]
    depths: list[ChannelTask]
    merger: MergerTask | None = None

    @property
    def behind_shuffles(self) -> list[ChannelTask | MergerTask]:
        """The tasks that a shuffle lies before, in their order."""
        return [*self.depths, *([] if self.merger is None else [self.merger])]


# Runs the tasks of an epoch over its input (None: nothing but what was fed back), and gives back the last rows.
Executor = Callable[[Any, Job], pa.Table]
