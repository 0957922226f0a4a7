"""Where state waits on its way from one host to another, if hosts share no files.

    old owner ── donate ──► backing store ── collect ──► new owner
                   │ end of the stage: vertical barrier     │
                   └── end of the epoch: horizontal barrier ┘

On a checkpoint that every process can open nothing travels: new owners map what old owners wrote. Where only Hadoop
reaches the checkpoint, a channel that misses a segment must say so, the driver reads it, and the job runs again. A
backing store spares that: every channel donates what it writes, as it writes it, and whoever owns the keys in the next
epoch collects it. What counts is still the checkpoint alone. A segment becomes state when a manifest names it, so a
crash at any point leaves the old or the new assignment, complete; and a store that fails, or has forgotten, costs time
and nothing else.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Collection
from typing import Any, Protocol

from anabranch.errors import ProgramError

_log = logging.getLogger("anabranch")
_SECRET_LENGTH_MIN = 3


class BackingStore(Protocol):
    """Keeps segments by name for a while. Goes to the tasks with their state, so it must be picklable."""

    def donate(self, name: str, data: memoryview) -> None:
        """Put a segment there. A failure is reported and no error."""

    def collect(self, name: str) -> bytes | None:
        """A segment, or None if the store does not have it, for whatever reason."""

    def release(self, kept: Collection[str]) -> None:
        """Forget every segment but these."""


def open_backing_store(url: str, query: str) -> BackingStore:
    """The store that a URL names, for the segments of one query."""
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresStore(url, query)
    raise ProgramError(
        f"option migrationStore={_without_secrets(url)!r}: expected a PostgreSQL URL: postgresql://user@host/database"
    )


def _without_secrets(url: str) -> str:
    """A URL as it may be shown: what is said before the host and after a question mark is left out."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "…"
    host = re.split(r"[?#]", rest.rpartition("@")[2])[0]
    return f"{scheme}://{'…@' if '@' in rest else ''}{host}"


class PostgresStore:
    """Segments as rows of a table ``anabranch_segments``, which is made if it is not there.

    Parameters
    ----------
    url : str
        As libpq takes it.
    query : str
        Tells the segments of one query from another's.
    """

    def __init__(self, url: str, query: str) -> None:
        self.url = url
        self.query = query

    def donate(self, name: str, data: memoryview) -> None:
        statement = (
            "INSERT INTO anabranch_segments (query, name, data) VALUES (%s, %s, %s) "
            "ON CONFLICT (query, name) DO UPDATE SET data = excluded.data"
        )
        self._execute(statement, (self.query, name, bytes(data)))

    def collect(self, name: str) -> bytes | None:
        statement = "SELECT data FROM anabranch_segments WHERE query = %s AND name = %s"
        found = self._execute(statement, (self.query, name), fetch=True)
        return bytes(found[0][0]) if found else None

    def release(self, kept: Collection[str]) -> None:
        statement = "DELETE FROM anabranch_segments WHERE query = %s AND NOT (name = ANY(%s))"
        self._execute(statement, (self.query, list(kept)))

    def _shown(self, problem: Exception) -> str:
        """What went wrong, unless it repeats what is said before the host or after a question mark.

        What a URL means that is written wrongly nobody knows, so any part of it may be a part of the password.
        """
        text = str(problem).replace(self.url, _without_secrets(self.url)).strip()
        host = self.url.rpartition("@")[2].partition("?")[0]
        hidden = self.url.partition("://")[2].replace(host, " ")
        if any(part in text for part in re.split(r"[\s:@/?&=]+", hidden) if len(part) >= _SECRET_LENGTH_MIN):
            return f"{type(problem).__name__}; what it says is left out, because it repeats a part of the URL"
        return text

    def _execute(self, statement: str, values: tuple[Any, ...], fetch: bool = False) -> list[Any]:
        for attempt in range(2):
            try:
                answer = _connection(self.url).execute(statement, values)
                return answer.fetchall() if fetch else []
            except Exception as problem:
                _connection.cache_clear()  # a server that was restarted is found again by a new connection
                if attempt:
                    _log.warning("the backing store %s: %s", type(self).__name__, self._shown(problem))
        return []


@functools.lru_cache(maxsize=4)
def _connection(url: str) -> Any:
    """A connection of this process. Each statement is a transaction of its own."""
    try:
        import psycopg
    except ImportError:
        raise ProgramError(
            "the option migrationStore needs psycopg: pip install 'anabranch[postgres]', on every host"
        ) from None
    connection = psycopg.connect(url, autocommit=True, connect_timeout=10)
    # Two processes that make the table at once: one of them fails on a race inside PostgreSQL unless they take turns.
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(727001)")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS anabranch_segments (query text, name text, data bytea NOT NULL, "
            "PRIMARY KEY (query, name))"
        )
    return connection
