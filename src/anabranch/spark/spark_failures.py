"""Why Spark's own part of a query failed, where that was another driver or the disk: as an error of ours.

Spark fences nobody. It creates the files of its log (`metadata`, `offsets/7`, `sources/0/7`, `commits/7`) each once, so
of two drivers the one that comes second to a file fails, in words that depend on the file, the file system and the
moment. A driver that was frozen fails in other ways still: its workers gave up waiting. Who may go on is not for
Spark's words to say but for the ownership of the checkpoint, which each driver takes before Spark opens its log.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from anabranch.errors import CheckpointError, StorageError
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.files import cannot_write, storage_problem

# Whatever they are about, they are said of a log that two write.
_RACES = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")
# Said of files of Spark's log: another driver made them at the same moment.
_OF_FILES = ("FileAlreadyExistsException", "Rename", "rename")
_LOGS = ("metadata", "offsets", "commits", "sources")
_STARTS = 3
_SHOWN = 500


def start_query(writer: Any, held: Checkpoint, location: str) -> Any:
    """Start Spark's query; again, if a driver that was fenced made a file in the same moment."""
    for remaining in reversed(range(_STARTS)):
        try:
            return writer.start()
        except Exception as problem:
            explained = explain_failure(problem, held, location)
            if explained is problem:
                raise
            if not remaining or not _is_race(problem, location) or not _is_owner(held):
                raise explained from None
            time.sleep(0.2)  # the other one has made its file, or is about to fail
    raise AssertionError("the last attempt raises or returns")


def explain_failure(problem: Exception, held: Checkpoint, location: str) -> Exception:
    """The error of ours that tells why Spark failed; the problem itself if neither a driver nor the disk is why."""
    said = _first_line(problem)
    try:
        held.owner.check()
    except StorageError:  # nobody knows who owns it
        pass
    except CheckpointError as fenced:
        return CheckpointError(f"{fenced}\nSpark's own part of this one ended with: {said}")
    except Exception:
        return problem  # the JVM has died, say, and with it the way to the files
    if _is_race(problem, location):
        return CheckpointError(
            f"another driver, which this one has taken over from, wrote to {location} in the same moment, so Spark "
            "gave up. What is committed is right. Make sure that the other has ended, and start the query again. "
            "(Should this be said at every start, a file of Spark's was removed there, and the hidden .crc file of "
            "the same name was not: remove it.)\n"
            f"Spark said: {said}"
        )
    why = storage_problem(Exception(_text(problem)))
    return cannot_write(f"what Spark notes in {location}", why) if why and location in _text(problem) else problem


def _is_owner(held: Checkpoint) -> bool:
    try:
        held.owner.check()
    except CheckpointError:
        return False
    return True


def _is_race(problem: Exception, location: str) -> bool:
    text = _text(problem)
    if any(each in text for each in _RACES):
        return True
    return any(each in text for each in _OF_FILES) and any(f"{location}/{name}" in text for name in _LOGS)


def _text(problem: BaseException | None) -> str:
    """What it says, and what those say that caused it: Spark's own tell less than these."""
    found: list[str] = []
    # The texts of Spark's exceptions are asked for in the JVM, which may have ended.
    with contextlib.suppress(Exception):
        while problem is not None and len(found) < 10:
            found.append(str(problem))
            problem = getattr(problem, "_cause", None)
    return "\nCaused by: ".join(found)


def _first_line(problem: Exception) -> str:
    """What it says, or rather the exception of Java's at the bottom of it."""
    lines = [line.strip() for line in _text(problem).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes[-1] if causes else lines[0] if lines else type(problem).__name__)[:_SHOWN]
