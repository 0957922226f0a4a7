"""What the options of a query say, together: read, checked against each other, typed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from anabranch.control.channel_places import StandbySettings
from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.engine.verifying.verifier import VerifySettings
from anabranch.errors import ProgramError
from anabranch.program.options import OVER_COLUMNS, Interval, read_options
from anabranch.state.host_cache import BYTES_MAX, CacheSettings


@dataclasses.dataclass(frozen=True)
class QueryOptions:
    """The options of a query. What they mean is in `program/options`; these are their values."""

    elastic: ElasticOptions = dataclasses.field(default_factory=ElasticOptions)
    balancing: BalancingSettings = dataclasses.field(default_factory=BalancingSettings)
    checkpoint: str | None = None
    allow_state_loss: bool = False
    snapshots: Interval | None = None
    versions_kept: int = 10
    migration_store: str | None = dataclasses.field(default=None, repr=False)  # may hold a password
    order: str = "total"
    mergers: int | None = None
    split_hot_keys: str = "auto"
    spread: str = "auto"
    file_reading: str = "auto"
    durability: str = "process"
    end_of_input: str = "open"
    verify: VerifySettings = dataclasses.field(default_factory=VerifySettings)
    watch: str = "sample"
    columns: frozenset[str] = frozenset(OVER_COLUMNS)
    state_location: str | None = None
    cache: CacheSettings = dataclasses.field(default_factory=CacheSettings)
    placement: str = "auto"
    standbys: StandbySettings = dataclasses.field(default_factory=lambda: StandbySettings())

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> QueryOptions:
        """From texts by name, others than ours passed over. ProgramError says which is wrong, and what is expected."""
        values = read_options(given)
        needless = [
            name for name in ("standbyBandwidth", "standbyLag") if name in values and not values.get("standbys")
        ]
        if needless:
            raise ProgramError(f"option {needless[0]} has no effect without standbys; give both, or neither")
        if "verifyAction" in values and "verify" not in values:
            raise ProgramError("option verifyAction has no effect without verify; give both, or neither")
        return cls(
            ElasticOptions.parse(given),
            BalancingSettings.of_options(given),
            values.get("checkpointLocation"),
            values.get("allowStateLoss", False),
            values.get("snapshotInterval"),
            values.get("versionsKept", 10),
            values.get("migrationStore"),
            values.get("order", "total"),
            values.get("mergers"),
            values.get("splitHotKeys", "auto"),
            values.get("spread", "auto"),
            values.get("fileReading", "auto"),
            values.get("durability", "process"),
            values.get("endOfInput", "open"),
            VerifySettings(values.get("verify", 0.0), values.get("verifyAction", "fail")),
            values.get("watch", "sample"),
            values.get("columns", frozenset(OVER_COLUMNS)),
            values.get("stateLocation"),
            CacheSettings(values.get("segmentCache"), values.get("segmentCacheBytes", BYTES_MAX)),
            values.get("placement", "auto"),
            StandbySettings(
                values.get("standbys", 0),
                values.get("standbyBandwidth", StandbySettings.bytes_per_s),
                values.get("standbyLag", 0),
            ),
        )
