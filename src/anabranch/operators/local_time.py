"""Local time: the wall clock of a zone at an instant, as a column more."""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.library_operator import LibraryOperator, configured
from anabranch.program.graph import Map
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema


class LocalTime(LibraryOperator):
    """Adds what the clocks of a zone show at the instant in a column."""

    place: int
    zone: datetime.tzinfo

    def __call__(self, t: Any) -> Any:
        at = tuple.__getitem__(t, self.place)
        return (*t, None if at is None else at.astimezone(self.zone).replace(tzinfo=None, fold=0))


def local_time_logic(schema: Schema, column: str, zone: str, name: str, called: str) -> tuple[Map, Schema]:
    """The operator of `local_time`, and the schema of what it emits."""
    if column not in schema:
        raise SchemaError(f"no column {column!r}; columns: {', '.join(schema.names)}")
    kind = schema.type_of(column)
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        raise SchemaError(f"the column {column!r} is {kind}; only a timestamp is an instant, which zones read")
    if not isinstance(name, str) or name in schema:
        raise SchemaError(f"name={name!r}: choose a name that the stream lacks")
    try:
        found = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError):
        raise ProgramError(
            f"the time zone {zone!r} is not known to Python; name one such as 'Europe/Berlin': zone=…"
        ) from None
    made = configured(
        LocalTime,
        called,
        selectivity=Selectivity.ONE,
        forwards=schema.names,
        description=f"{column} by the clocks of {zone}",
        place=schema.names.index(column),
        zone=found,
    )
    return Map(made), Schema(pa.schema([*schema.arrow, pa.field(name, pa.timestamp("us"))]))
