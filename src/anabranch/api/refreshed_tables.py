"""Tables that are read again while a query runs: `ab.table`."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.api.tables import is_table, rows_of
from anabranch.errors import InputError, ProgramError, SchemaError
from anabranch.program.changing_table import ChangingTable, TableShape
from anabranch.program.options import seconds_of
from anabranch.program.schema import Schema

FORMATS = ("parquet", "csv", "json", "orc", "arrow")


class RefreshedTable:
    """What `ab.table` gives, for `Stream.enrich`."""

    def __init__(
        self,
        shown: str,
        read: Callable[[], Any],
        fingerprint: Callable[[], Any] | None,
        schema: Any,
        refresh_ms: int | None,
        keeps: bool,
    ) -> None:
        self._shown = shown
        self._read = read
        self._fingerprint = fingerprint
        self._refresh_ms = refresh_ms
        self._keeps = keeps
        self.schema = Schema.of(schema) if schema is not None else self._found_schema()

    def _found_schema(self) -> Schema:
        given = self._read()
        if not is_table(given):
            raise SchemaError(f"the columns of the table {self._shown} are unknown; give schema='…'")
        return rows_of(given, None)[1]

    def followed(self, shape: TableShape) -> ChangingTable:
        """What reads it, for an operator."""

        def rows() -> Any:
            given = self._read()
            if is_table(given):
                return rows_of(given, shape.schema.arrow)[0]
            if isinstance(given, Mapping):
                given = [_of_entry(key, rest, len(shape.keys)) for key, rest in given.items()]
            return [_exact(shape.schema, number, row) for number, row in enumerate(given)]

        return ChangingTable(self._shown, shape, rows, self._fingerprint, self._refresh_ms, self._keeps)


def _of_entry(key: Any, rest: Any, keys: int) -> tuple[Any, ...]:
    parts = key if isinstance(key, tuple) and keys > 1 else (key,)
    return (*parts, *(rest if isinstance(rest, (tuple, list)) else (rest,)))


def _exact(schema: Schema, number: int, row: Any) -> Any:
    try:
        return schema.exact_row(schema.unpack(row))
    except Exception as problem:
        raise SchemaError(f"row {number} of the table does not fit its schema: {problem}") from None


def table(
    source: Any,
    *,
    format: str | None = None,
    schema: Any = None,
    refresh: str | float | datetime.timedelta | None = "1 minute",
    missing: str = "fail",
) -> RefreshedTable:
    """A table that changes slowly, for `Stream.enrich`: it is read again, and an epoch has one version of it.

    At the start of an epoch, if `refresh` has passed by the clock of the epochs since it was last looked at, the table
    is read if it changed. All tuples of the epoch meet that version. It is recorded with the epoch and kept in the
    checkpoint, so that an epoch that runs again meets the same.

    Parameters
    ----------
    source : path, DataFrame, or function
        A file or directory that this process can open; a DataFrame; or a function without arguments that gives rows, a
        dict from keys to the other columns, or a table (of pyarrow, pandas, Spark): it is called by the driver.
    format : "parquet", "csv", "json", "orc" or "arrow"
        Of files; by default what their names end with.
    schema : str or class, optional
        The columns; by default those that the table has, for which it is read once when the program is built.
    refresh : str, seconds or timedelta
        How often it is looked at: ``"30 seconds"``, ``"5 minutes"``; 0: in every epoch; None: only when a query starts.
    missing : "fail" or "keep"
        If the table cannot be read while the query runs: fail, or go on with what was last read, with a warning.

    Examples
    --------
    >>> import anabranch as ab
    >>> prices = ab.table(lambda: {"a": 3, "b": 5}, schema="item string, price long", refresh="5 minutes")
    >>> orders = ab.from_rows([("a", 2), ("c", 1)], "item string, number long")
    >>> orders.enrich(prices, by="item").run_sequential()
    [(item='a', number=2, price=3), (item='c', number=1, price=None)]
    """
    if missing not in ("fail", "keep"):
        raise ProgramError(f"table(missing={missing!r}): expected 'fail' or 'keep'")
    refresh_ms = _milliseconds(refresh)
    if isinstance(source, (str, Path)):
        return _of_path(str(source), format, schema, refresh_ms, missing == "keep")
    if format is not None:
        raise ProgramError(f"table(format={format!r}): a format is that of files; found {type(source).__name__}")
    if is_table(source):
        return RefreshedTable(f"({type(source).__name__})", lambda: source, None, schema, refresh_ms, missing == "keep")
    if callable(source):
        shown = f"{getattr(source, '__name__', type(source).__name__)}()"
        return RefreshedTable(shown, source, None, schema, refresh_ms, missing == "keep")
    raise ProgramError(
        f"table({source!r:.60}): expected a path, a DataFrame, or a function that gives rows. Rows that never change "
        "need no table(…): stream.enrich(rows, …)"
    )


def _milliseconds(refresh: Any) -> int | None:
    if refresh is None:
        return None
    if isinstance(refresh, datetime.timedelta):
        refresh = refresh.total_seconds()
    seconds = seconds_of(refresh) if isinstance(refresh, str) else refresh
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ProgramError(f"table(refresh={refresh!r}): expected a duration such as '1 minute', or seconds")
    return round(seconds * 1000)


def _of_path(path: str, format: str | None, schema: Any, refresh_ms: int | None, keeps: bool) -> RefreshedTable:
    if "://" in path and not path.startswith("file://"):
        raise ProgramError(
            f"table({path!r}): expected a path that this process can open. Let Spark read others: "
            f"ab.table(lambda: spark.read.format('…').load({path!r}), schema='…')"
        )
    path = path.removeprefix("file://")
    chosen = format or _ending(path)
    if chosen not in FORMATS:
        raise ProgramError(f"table({path!r}): give its format: {', '.join(map(repr, FORMATS))}")
    return RefreshedTable(path, lambda: _read(path, chosen), lambda: _files(path), schema, refresh_ms, keeps)


def _ending(path: str) -> str:
    names = [path] if not os.path.isdir(path) else [name for name, _, _ in _files(path)]
    return next((each for name in names for each in FORMATS if name.endswith(f".{each}")), "")


def _files(path: str) -> list[tuple[str, int, int]]:
    """The files of a table, each with what changes when it does; InputError if there are none."""
    found = []
    if os.path.isdir(path):
        for directory, _, names in sorted(os.walk(path)):
            shown = [name for name in sorted(names) if not name.startswith(("_", "."))]
            found += [(os.path.join(directory, name), os.stat(os.path.join(directory, name))) for name in shown]
    elif os.path.exists(path):
        found = [(path, os.stat(path))]
    if not found:
        raise InputError(f"{path} {'has no files' if os.path.isdir(path) else 'does not exist'}")
    return [(name, about.st_size, about.st_mtime_ns) for name, about in found]


def _read(path: str, format: str) -> pa.Table:
    from pyarrow import dataset  # workers import this module, and never read a table

    names = [name for name, _, _ in _files(path)]
    try:
        return dataset.dataset(names, format=format).to_table()
    except (pa.ArrowInvalid, OSError) as problem:
        raise InputError(f"{path} is not {format}: {problem}") from None
