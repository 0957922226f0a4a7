"""The checkpoint of a query whose output nobody keeps: a directory of this user's, for as long as the process lives.

A query may outlive every handle of it, so nobody knows when its checkpoint can go, but for one moment: when its process
has ended. Whoever makes the next one removes those of the dead.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

_PREFIX = "anabranch-checkpoint-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-\w+")


def temporary_checkpoint() -> str:
    """A new directory, which only this user can read."""
    _remove_those_of_the_dead(Path(tempfile.gettempdir()))
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")


def _remove_those_of_the_dead(place: Path) -> None:
    for path in place.glob(f"{_PREFIX}*"):
        found = _NAME.fullmatch(path.name)
        if found is not None and not _is_alive(int(found[1])) and _is_ours(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return True


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:  # another process was quicker
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
