"""One driver at a time: who owns a checkpoint.

    owners/000000000001.json   driver A                 A goes on: owner 2 is there, so A is fenced
    owners/000000000002.json   driver B, the owner now  B creates epochs/…41.json: the epoch is B's, and B's alone

A driver that opens a checkpoint takes the next number by creating its file, which one of several succeeds in. From
then on every driver with a lower number is *fenced*: it looks before it shows anything to the outside (an epoch begun,
output, a manifest) and once more after a manifest, and stops when a higher number is there.

Looking and writing are two steps, and a process may be frozen between them for hours. Two rules make up for it.
What is the same for all drivers is created, never replaced: the time and the input of an epoch (`.begun`) and its
manifest, so the first word is the last. And what is not (staged output, feedback, segments) has names of its own. So
whatever a driver still writes in the epoch it was frozen in is what its successor writes, or nobody reads it.
"""

from __future__ import annotations

import json
import os
import socket
import time

from anabranch.errors import CheckpointError
from anabranch.state.envelope import seal, to_json, unseal
from anabranch.state.files import Files

DIRECTORY = "owners"
# Files of owners that are gone are only for people to look at.
_KEPT = 3


class Ownership:
    """The right to write a checkpoint.

    Parameters
    ----------
    files : Files
        The checkpoint's directory.
    query : str
        The query's id.
    token : int
        The number of this owner: higher than all before it.
    """

    def __init__(self, files: Files, query: str, token: int) -> None:
        self._files = files
        self._query = query
        self.token = token

    @classmethod
    def take(cls, files: Files, query: str, newest: int = 0) -> Ownership:
        """Become the owner. `newest` is the highest number that is known to have been given from elsewhere."""
        who = {"host": socket.gethostname(), "process": os.getpid(), "since_ms": int(time.time() * 1000)}
        while True:
            numbers = _numbers(files)
            token = max([newest, *numbers]) + 1
            data = seal("owner", query, to_json({"owner": token, **who}).encode())
            # A number that was given and whose file is gone again could be created twice, if we were slow; but then
            # there are higher ones.
            if files.create(_name(token), data) and max(_numbers(files), default=token) == token:
                break
        for number in numbers:
            if number <= token - _KEPT:
                files.delete(_name(number))
        return cls(files, query, token)

    def check(self) -> None:
        """Go on only as the owner; CheckpointError if another driver has taken over."""
        numbers = _numbers(self._files)
        newest = max(numbers, default=0)
        if newest > self.token:
            raise CheckpointError(
                f"another driver{self._who(newest)} has taken over the checkpoint {self._files.root}: this one was "
                f"owner {self.token}, now there is owner {newest}. Nothing that this driver did since then counts. "
                "Leave the query to the other, or stop that one and start this one again."
            )
        if self.token not in numbers:
            raise CheckpointError(
                f"{self._files.root}/{_name(self.token)} is gone: somebody removed it, so another driver may believe "
                "that it owns the checkpoint. Make sure that no other runs and start the query again."
            )

    def _who(self, number: int) -> str:
        try:
            data = self._files.read(_name(number))
            found = json.loads(unseal(data or b"", "owner", None, ""))
            return f" (process {found['process']} on {found['host']})"
        except (CheckpointError, ValueError, KeyError, TypeError):
            return ""


def _numbers(files: Files) -> list[int]:
    found = [name.removesuffix(".json") for name in files.names(DIRECTORY) if name.endswith(".json")]
    return [int(name) for name in found if name.isdigit()]


def _name(number: int) -> str:
    return f"{DIRECTORY}/{number:012d}.json"
