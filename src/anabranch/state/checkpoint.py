"""The checkpoint as the driver sees it: the program's description and one manifest per epoch.

    <checkpointLocation>/anabranch/program.json               what the state belongs to
                                  /epochs/000000000007.begun  the time of epoch 7, recorded when it began
                                  /epochs/000000000007.json   manifest of epoch 7: the commit point
                                  /state/<operator>/…         segments

A manifest lists all the segments that make up the state after its epoch. It is written last and appears
whole, so an epoch either happened or did not.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.errors import CheckpointError
from anabranch.state.files import Files
from anabranch.state.lineage import files_of
from anabranch.state.manifest_facts import ManifestFacts
from anabranch.state.records import SegmentRecord
from anabranch.state.segment import to_json

FORMAT = 1
MANIFEST_FORMAT = 2


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What there is after an epoch.

    Attributes
    ----------
    epoch : int
        The epoch that was committed; -1 before the first.
    segments : mapping
        Operator → records of its segments, newest first.
    facts : ManifestFacts
        What the epoch was run with, and what the next one needs.
    """

    epoch: int
    segments: Mapping[str, Sequence[SegmentRecord]]
    facts: ManifestFacts = dataclasses.field(default_factory=ManifestFacts)

    def to_bytes(self) -> bytes:
        segments = {operator: [record.to_fields() for record in records] for operator, records in self.segments.items()}
        body = to_json({"epoch": self.epoch, "segments": segments, "facts": self.facts.to_fields()})
        return to_json({"format": MANIFEST_FORMAT, "checksum": zlib.crc32(body.encode()), "manifest": body}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Manifest:
        try:
            outer = json.loads(data)
            body = outer["manifest"]
            if outer["format"] != MANIFEST_FORMAT:
                raise CheckpointError(f"{name} has the format {outer['format']}; this version reads {MANIFEST_FORMAT}")
            if zlib.crc32(body.encode()) != outer["checksum"]:
                raise CheckpointError(f"{name} is damaged: its checksum does not fit")
            fields = json.loads(body)
            segments = {
                operator: [SegmentRecord.of_fields(each) for each in records]
                for operator, records in fields["segments"].items()
            }
            return cls(fields["epoch"], segments, ManifestFacts.of_fields(fields["facts"]))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise CheckpointError(f"{name} is damaged: {problem}") from None


class Checkpoint:
    """The checkpoint of one query, read and written by its driver alone.

    Parameters
    ----------
    files : Files
        The checkpoint's directory.
    kept : int
        How many manifests are kept, and with them the segments they name: so far back a damaged merge can be
        replaced by what it was made of.
    """

    def __init__(self, files: Files, kept: int = 10) -> None:
        self.files = files
        self.kept = max(2, kept)
        # Segments that manifests stopped naming, by the epoch in which they did.
        self._retired: dict[int, set[str]] = {}
        self._named: set[str] = set()

    # -- the program ----------------------------------------------------------------------------------------

    def check(self, description: Mapping[str, Any], allow_state_loss: bool = False) -> list[str]:
        """Make sure that the checkpoint is new, or that the program can go on from it. Writes nothing.

        Returns what changed, in words, if it can; raises CheckpointError if it cannot.
        """
        found = self.files.read("program.json")
        if found is None:
            return []
        try:
            bound = json.loads(found)
            version, before = bound["format"], bound["program"]
        except (ValueError, KeyError, TypeError) as problem:
            raise CheckpointError(f"{self.files.root}/program.json is damaged: {problem}") from None
        if version != FORMAT:
            raise CheckpointError(
                f"the checkpoint {self.files.root} has the format {version}; this version reads {FORMAT}"
            )
        changes = compare(before, description)
        bad = {"refused"} if allow_state_loss else {"refused", "loses state"}
        refused = [change.text for change in changes if change.effect in bad]
        if refused:
            hint = "Use another checkpointLocation, or run the program that the checkpoint was written by."
            if all(change.effect != "refused" for change in changes):
                hint += " To go on without that state, set .option('allowStateLoss', True)."
            raise CheckpointError(
                f"the checkpoint {self.files.root} belongs to another program:\n"
                + "\n".join(f"  {line}" for line in refused)
                + f"\n{hint}"
            )
        return [change.text for change in changes]

    def bind(self, description: Mapping[str, Any], allow_state_loss: bool = False) -> list[str]:
        """Tie the checkpoint to a program; returns and raises as `check` does."""
        changes = self.check(description, allow_state_loss)
        data = to_json({"format": FORMAT, "program": description}).encode()
        if self.files.read("program.json") != data:
            self.files.write("program.json", data)
        return changes

    def operators(self) -> set[str]:
        """The names of the operators of the program that the checkpoint is tied to; none if it is new."""
        found = self.files.read("program.json")
        try:
            return set() if found is None else {each["name"] for each in json.loads(found)["program"]["operators"]}
        except (ValueError, KeyError, TypeError):
            return set()  # `check` says what is wrong with it

    # -- epochs ---------------------------------------------------------------------------------------------

    def latest(self) -> Manifest:
        """The last committed epoch whose manifest can be read.

        If the newest is damaged the one before it is taken: the epoch then runs again, from the same input and
        the same state, and gives the same. Should Spark have gone on already, the runner notices the gap.
        """
        problem: CheckpointError | None = None
        for name in reversed(self._manifests()):
            try:
                manifest = self._read(name)
                self._named = files_of(manifest.segments)
                return manifest
            except CheckpointError as damage:
                problem = problem or damage
        if problem is not None:
            raise problem
        return Manifest(-1, {})

    def _manifests(self) -> list[str]:
        return [name for name in self.files.names("epochs") if name.endswith(".json") and name[0].isdigit()]

    def _read(self, name: str) -> Manifest:
        data = self.files.read(f"epochs/{name}")
        if data is None:
            raise CheckpointError(f"{self.files.root}/epochs/{name} is missing")
        return Manifest.from_bytes(data, f"{self.files.root}/epochs/{name}")

    def begun(self, epoch: int) -> dict[str, Any] | None:
        """What was recorded when an epoch first began: its time, and if it had no input but what was fed back."""
        found = self.files.read(f"epochs/{epoch:012d}.begun")
        try:
            return None if found is None else json.loads(found)
        except ValueError:
            return None  # written in part: nothing can have depended on it

    def begin(self, epoch: int, clock_ms: int, drain: bool = False) -> int:
        """The time of an epoch: what was recorded when it first began, else this time, which is recorded now.

        An epoch that runs again must see the time it saw before, or what expires would differ.
        """
        found = self.begun(epoch)
        if found is not None:
            return int(found["clock_ms"])
        self.files.write(f"epochs/{epoch:012d}.begun", to_json({"clock_ms": clock_ms, "drain": drain}).encode())
        return clock_ms

    def commit(self, manifest: Manifest) -> None:
        """Publish an epoch; then remove what is too old to be needed."""
        self.files.write(f"epochs/{manifest.epoch:012d}.json", manifest.to_bytes())
        named = files_of(manifest.segments)
        self._retired[manifest.epoch] = self._named - named
        self._named = named
        old = manifest.epoch - self.kept
        for epoch in [each for each in self._retired if each <= old]:
            for name in self._retired.pop(epoch):
                self.files.delete(f"state/{name}")
        if old >= 0:
            self.files.delete(f"epochs/{old:012d}.json")
            self.files.delete(f"epochs/{old:012d}.begun")

    def clean(self) -> int:
        """Remove segments that no manifest names, left by crashes; how many there were.

        Segments of the epoch that comes next are left alone: a task of a driver that was killed a moment ago
        may still be writing. They are removed by a later start.
        """
        manifests = []
        for name in self._manifests():
            try:
                manifests.append(self._read(name))
            except CheckpointError:  # it may name segments we do not know of: remove nothing
                return 0
        known = {name for manifest in manifests for name in files_of(manifest.segments)}
        newest = max((manifest.epoch for manifest in manifests), default=-1)
        removed = 0
        for operator in self.files.names("state"):
            for name in self.files.names(f"state/{operator}"):
                full = f"{operator}/{name}"
                epoch = name.split("-")[0]
                if full not in known and epoch.isdigit() and int(epoch) <= newest:
                    self.files.delete(f"state/{full}")
                    removed += 1
        return removed


@dataclasses.dataclass(frozen=True)
class Change:
    """A difference between two programs, and what it means for the state: fine, loses state, refused."""

    text: str
    effect: str


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What changed between two descriptions of programs."""
    changes = []
    before = {operator["name"]: operator for operator in old.get("operators", ())}
    after = {operator["name"]: operator for operator in new.get("operators", ())}
    for name in sorted(before.keys() - after.keys()):
        text = f"operator {name} ({before[name]['kind']}) is in the checkpoint and not in the program"
        stateful = bool(before[name]["key"])
        changes.append(
            Change(f"{text}, and its state would be lost", "loses state") if stateful else Change(text, "fine")
        )
    for name in sorted(after.keys() - before.keys()):
        text = f"operator {name} ({after[name]['kind']}) is in the program and not in the checkpoint"
        changes.append(Change(text + (": it begins without state" if after[name]["key"] else ""), "fine"))
    for name in sorted(before.keys() & after.keys()):
        changes += _compare_operator(name, before[name], after[name])
    return changes


def _compare_operator(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    changes = []
    for aspect in ("kind", "key", "key_types"):
        if was.get(aspect) != now.get(aspect):
            text = f"operator {name}: its {aspect.replace('_', ' ')} was {was.get(aspect)} and is now {now.get(aspect)}"
            changes.append(Change(text, "refused" if was["key"] or now["key"] else "fine"))
    gone = [field for field in was["state"] if field not in now["state"]]
    added = [field for field in now["state"] if field not in was["state"]]
    if gone:
        changes.append(Change(f"operator {name}: its state no longer has {', '.join(gone)}", "loses state"))
    if added:
        text = f"operator {name}: its state now has {', '.join(added)}, at first with the default"
        changes.append(Change(text, "fine"))
    for aspect in ("input", "output"):
        if was.get(aspect) != now.get(aspect):
            text = f"operator {name}: its {aspect} was {was.get(aspect)} and is now {now.get(aspect)}"
            changes.append(Change(text, "fine"))
    return changes
