"""The task that makes one segment of several, beside the epochs."""

from __future__ import annotations

import dataclasses

from anabranch.state.lineage import Compaction
from anabranch.state.records import SegmentRecord
from anabranch.state.store import StateVersion


@dataclasses.dataclass(frozen=True)
class CompactTask:
    """Compacts segments of one channel of one operator."""

    state: StateVersion

    def __call__(self, wanted: Compaction) -> SegmentRecord:
        operator, channel, records = wanted
        state = self.state(channel)
        return state.compact(operator, records, is_all=len(records) == len(state.visible(operator)))
