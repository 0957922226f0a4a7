"""Spark's own log of a query, beside ours: which input each batch has.

    offsets/7        written before batch 7 runs, once: from where to where each source is read
    sources/0/12     which files a source of files read, in its step 12
    commits/7        written after batch 7 ended

An epoch is passed over, when Spark runs it again, because our manifest has it. That is right only if it is the same
input, so the manifest keeps a digest of the batch's offsets, and the two logs must fit together when a query starts.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from anabranch.errors import CheckpointError
from anabranch.state.files import Files, LocalFiles, sync
from anabranch.state.manifest_facts import ManifestFacts


class BatchLog:
    """What Spark noted of batches.

    Parameters
    ----------
    files : Files
        The query's checkpoint location.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._synced: set[Path] = set()

    def digest(self, number: int) -> str | None:
        """What tells the input of a batch from any other; None if Spark has no note of it.

        Spark writes the file once, with the time at which it planned the batch, so that no two are alike.
        """
        found = self._files.read(f"offsets/{number}")
        if found is not None and isinstance(self._files, LocalFiles) and self._files.durable:
            # Spark leaves it with the operating system; a manifest that outlives its batch's offsets would fit nothing.
            for path in map(self._files.path, _read_at_a_start(number, found)):
                if path not in self._synced and path.exists():
                    sync(str(path))
                    if path.is_file():  # it is never written again
                        self._synced.add(path)
        return None if found is None else hashlib.sha256(found).hexdigest()[:32]

    def check(self, facts: ManifestFacts) -> None:
        """Make sure that the log has what the last manifest was made from; CheckpointError if it has not."""
        number, before = facts.batch, facts.batch_digest
        if before is None:
            return
        name = f"offsets/{number}"
        found = self._files.read(name)
        if found is None:
            raise self._does_not_fit(name, "is missing")
        if self.digest(number) != before:
            raise self._does_not_fit(name, "is another than it was when the last epoch was committed")
        for at, step in _steps_of(found):
            directory = f"sources/{at}"
            names = self._files.names(directory)
            if not {str(step), f"{step}.compact"} & set(names):
                raise self._does_not_fit(f"{directory}/{step}", "is missing")

    def _does_not_fit(self, name: str, how: str) -> CheckpointError:
        return CheckpointError(
            f"{self._files.root}/{name} {how}: Spark would not know what this query has read, and read some of it "
            "again or leave some out. Restore offsets, commits and sources from the same copy as the rest of the "
            "checkpoint, or start anew with another checkpointLocation and output path."
        )


def _read_at_a_start(number: int, offsets: bytes) -> list[str]:
    """What Spark reads when a query goes on behind a batch, as far as it wrote it before: directories behind files.

    Beside each file is one with its checksums, without which Spark does not believe it.
    """
    files = [("", "metadata"), ("offsets/", str(number))]
    files += [(f"sources/{at}/", name) for at, step in _steps_of(offsets) for name in (str(step), f"{step}.compact")]
    found = [each for place, name in files for each in (f"{place}{name}", f"{place}.{name}.crc")]
    return [*found, *dict.fromkeys(place for place, _ in files if place), "sources", ""]


def _steps_of(offsets: bytes) -> list[tuple[int, int]]:
    """The sources of files that a batch's offsets name, and the step of each."""
    steps = ((at, _step_of(line)) for at, line in enumerate(offsets.decode(errors="replace").splitlines()[2:]))
    return [(at, step) for at, step in steps if step is not None]


def _step_of(line: str) -> int | None:
    """The step of a source of files that an offset names; None if it is another source's."""
    try:
        found = json.loads(line)
        return int(found["logOffset"])
    except (ValueError, KeyError, TypeError):
        return None
