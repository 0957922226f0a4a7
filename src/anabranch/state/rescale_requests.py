"""Rescalings that a user asked for by hand, kept until a manifest has them.

    rescale("Totals", 12) ─► rescale.json ─► taken after the epoch under way ─► manifest of the epoch after it
                              written here                                       removed here

A new number of channels becomes durable with the first epoch that runs with it. If none follows (no input came, or
the driver died) this file is all that remembers what was asked; a driver that starts finds it and begins with it.
"""

from __future__ import annotations

import json
import logging
import threading

from anabranch.errors import CheckpointError
from anabranch.state.envelope import seal, to_json, unseal
from anabranch.state.files import Files

NAME = "rescale.json"

_log = logging.getLogger("anabranch")


class RescaleRequests:
    """What was asked for by hand and is in no manifest yet. May be used from any thread.

    Parameters
    ----------
    files : Files, optional
        The checkpoint's directory; None: nothing outlives the process.
    query : str
        The query's id.
    """

    def __init__(self, files: Files | None = None, query: str = "") -> None:
        self._files = files
        self._query = query
        self._lock = threading.Lock()
        self._waiting: dict[str, int] = {}
        # Taken into the owners of the driver, and not committed with any epoch.
        self._taken = self._read()

    @property
    def taken(self) -> dict[str, int]:
        """Region → channels that the next epoch runs with; at first what an earlier driver was asked for."""
        with self._lock:
            return dict(self._taken)

    @property
    def waiting(self) -> dict[str, int]:
        """Region → channels that were asked for and that nobody has taken."""
        with self._lock:
            return dict(self._waiting)

    def ask(self, region: str, channels: int) -> None:
        """Keep a request, in place of an earlier one for the same region."""
        with self._lock:
            # Written first: who is told that it was asked for can rely on it.
            self._write({**self._taken, **self._waiting, region: channels})
            self._waiting[region] = channels

    def take(self) -> dict[str, int]:
        """What waits. It is kept until an epoch is committed."""
        with self._lock:
            found, self._waiting = self._waiting, {}
            self._taken.update(found)
            return found

    def committed(self) -> None:
        """A manifest has what was taken."""
        with self._lock:
            if self._taken:
                self._write(self._waiting)
                self._taken = {}

    def _write(self, requests: dict[str, int]) -> None:
        if self._files is None:
            return
        if requests:
            self._files.write(NAME, seal("rescaling", self._query, to_json(requests).encode()))
        else:
            self._files.delete(NAME)

    def _read(self) -> dict[str, int]:
        if self._files is None:
            return {}
        try:
            data = self._files.read(NAME)
            found = {} if data is None else json.loads(unseal(data, "rescaling", self._query, NAME))
            return {str(region): max(1, int(channels)) for region, channels in found.items()}
        except (ValueError, TypeError, AttributeError, CheckpointError) as problem:
            # A wish, not state: a query that can run must not fail for it.
            _log.warning("%s/%s cannot be read and is ignored: %s", self._files.root, NAME, problem)
            return {}
