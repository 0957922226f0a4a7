"""Output in directories by the values of columns, as Spark and Hive name them: ``day=2024-01-01/hour=7/part-…``.

The rows of an epoch are taken apart by these values; each part keeps the order of the stream, so that in each directory
the files, in the order of their names, are the tuples with its values in the order of one thread. The columns are in
the names of directories only, and whoever reads the path gets them back.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import SinkError
from anabranch.program.schema import Schema, to_values

NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""How the directory of null (and, in this convention, of the empty text) is called."""
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32))))


class OutputPartitions:
    """Takes tables apart by the values of columns.

    Parameters
    ----------
    schema : Schema
    columns : sequence of str
    zone : str
        The time zone in which timestamps are written.
    """

    def __init__(self, schema: Schema, columns: Sequence[str], zone: str = "UTC") -> None:
        self.columns = tuple(columns)
        self._zone = _zone_of(zone)
        for name in self.columns:
            if name not in schema:
                raise SinkError(f"partitionBy({name!r}): no such column; columns: {', '.join(schema.names)}")
            if not _can_be_named(schema.type_of(name)):
                raise SinkError(
                    f"partitionBy({name!r}): the column has the type {schema.type_of(name)}, which is no name of a "
                    "directory; expected a string, whole number, boolean, date, timestamp or decimal"
                )
        if len(set(self.columns)) < len(self.columns):
            raise SinkError(f"partitionBy({', '.join(self.columns)}): a column twice")
        kept = [field for field in schema.arrow if field.name not in self.columns]
        if not kept:
            raise SinkError("partitionBy: all columns are in the names of directories, and none is left for the files")
        self.schema = Schema(pa.schema(kept))

    def __str__(self) -> str:
        return ", ".join(self.columns)

    def apart(self, table: pa.Table) -> list[tuple[str, np.ndarray]]:
        """Directory → the places of its rows, in order; directories in the order of their first rows."""
        if not table.num_rows:
            return []
        codes, names = np.zeros(table.num_rows, dtype=np.int64), [""]
        for column in self.columns:
            own, texts = self._texts(column, table.column(column))
            found = pa.array(codes * len(texts) + own).dictionary_encode()  # by first rows
            above, below = np.divmod(found.dictionary.to_numpy(), len(texts))
            codes = found.indices.to_numpy().astype(np.int64)
            names = [f"{names[at]}/{texts[to]}" for at, to in zip(above.tolist(), below.tolist(), strict=True)]
        # Numbers of 16 bits are sorted in time that is linear.
        order = np.argsort(codes.astype(np.uint16) if len(names) <= 1 << 16 else codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        places = np.split(order, ends[:-1])
        return [(name[1:], rows) for name, rows in zip(names, places, strict=True)]

    def _texts(self, name: str, column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
        """For each row which of some parts of a path it has: values that are written alike have one."""
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        parts = [f"{_escaped(name)}={self._text(value)}" for value in to_values(encoded.dictionary)]
        numbers = {part: at for at, part in enumerate(dict.fromkeys(parts))}
        of = np.array([numbers[part] for part in parts], dtype=np.int64)
        return of[encoded.indices.to_numpy()], list(numbers)

    def kept(self, table: pa.Table) -> pa.Table:
        """The table with the columns that files have."""
        return table.select(list(self.schema.names))

    def parts(self, table: pa.Table) -> dict[str, pa.Table]:
        """Directory → its rows, with the columns that files have."""
        kept = self.kept(table).combine_chunks()
        return {folder: _taken(kept, places) for folder, places in self.apart(table)}

    def _text(self, value: Any) -> str:
        if value is None or value == "":
            return NOTHING
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, datetime.datetime):
            local = value if value.tzinfo is None else value.astimezone(self._zone)
            text = local.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
            return _escaped(text + (f".{local.microsecond:06d}".rstrip("0") if local.microsecond else ""))
        return _escaped(str(value))


def _taken(table: pa.Table, places: np.ndarray) -> pa.Table:
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == len(places):  # one behind the other: nothing is copied
        return table.slice(first, len(places))
    return table.take(pa.array(places))


def _zone_of(name: str) -> datetime.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError):  # no such key, or a name that is none
        raise SinkError(
            f"partitionBy: the session's time zone {name!r} is not known to Python; set spark.sql.session.timeZone to "
            "a name such as 'Europe/Paris' or 'UTC'"
        ) from None


def _can_be_named(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp)
    return any(test(kind) for test in (*tests, pa.types.is_decimal))


def _escaped(text: str) -> str:
    """A text as a part of a path; what Spark and Hive escape is escaped as there."""
    if "\0" in text:
        raise SinkError(
            f"partitionBy: {text!r} cannot be the name of a directory, because no path may hold a zero byte"
        )
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in text)
