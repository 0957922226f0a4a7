"""The checkpoint as the driver sees it: the program's description and one manifest per epoch.

    <checkpointLocation>/anabranch/program.json            what the state belongs to
                                  /epochs/000000000007.json  manifest of epoch 7: the commit point
                                  /state/<operator>/…        segments

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
from anabranch.state.segment import to_json

FORMAT = 1
_MANIFESTS_KEPT = 3


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What there is after an epoch.

    Attributes
    ----------
    epoch : int
        The epoch that was committed; -1 before the first.
    segments : mapping
        Operator → records of its segments, newest first.
    facts : mapping
        What the epoch was run with (channels, counts), for people and for the next epoch.
    """

    epoch: int
    segments: Mapping[str, Sequence[Mapping[str, Any]]]
    facts: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        body = to_json({"epoch": self.epoch, "segments": self.segments, "facts": self.facts})
        return to_json({"format": FORMAT, "checksum": zlib.crc32(body.encode()), "manifest": body}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Manifest:
        try:
            outer = json.loads(data)
            body = outer["manifest"]
            if outer["format"] != FORMAT:
                raise CheckpointError(f"{name} has the format {outer['format']}; this version reads {FORMAT}")
            if zlib.crc32(body.encode()) != outer["checksum"]:
                raise CheckpointError(f"{name} is damaged: its checksum does not fit")
            fields = json.loads(body)
            return cls(fields["epoch"], fields["segments"], fields["facts"])
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise CheckpointError(f"{name} is damaged: {problem}") from None


class Checkpoint:
    """The checkpoint of one query, read and written by its driver alone."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def check(self, description: Mapping[str, Any]) -> None:
        """Make sure that the checkpoint is new or tied to this program. Writes nothing."""
        found = self.files.read("program.json")
        if found is None:
            return
        try:
            bound = json.loads(found)
            version, program = bound["format"], bound["program"]
        except (ValueError, KeyError, TypeError) as problem:
            raise CheckpointError(f"{self.files.root}/program.json is damaged: {problem}") from None
        if version != FORMAT:
            raise CheckpointError(
                f"the checkpoint {self.files.root} has the format {version}; this version reads {FORMAT}"
            )
        if to_json(program) != to_json(description):
            raise CheckpointError(
                f"the checkpoint {self.files.root} belongs to another program:\n"
                + "\n".join(f"  {line}" for line in differences(program, description))
                + "\nUse another checkpointLocation, or run the program that the checkpoint was written by."
            )

    def bind(self, description: Mapping[str, Any]) -> None:
        """Tie the checkpoint to a program, or make sure it is tied to this one."""
        self.check(description)
        if self.files.read("program.json") is None:
            self.files.write("program.json", to_json({"format": FORMAT, "program": description}).encode())

    def latest(self) -> Manifest:
        """The last committed epoch."""
        names = [name for name in self.files.names("epochs") if name.endswith(".json") and name[0].isdigit()]
        if not names:
            return Manifest(-1, {}, {})
        name = f"epochs/{names[-1]}"
        data = self.files.read(name)
        assert data is not None
        return Manifest.from_bytes(data, f"{self.files.root}/{name}")

    def commit(self, manifest: Manifest) -> None:
        """Publish an epoch, and forget manifests that are too old to be needed."""
        self.files.write(f"epochs/{manifest.epoch:012d}.json", manifest.to_bytes())
        old = manifest.epoch - _MANIFESTS_KEPT
        if old >= 0:
            self.files.delete(f"epochs/{old:012d}.json")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two descriptions of programs, in words."""
    lines = []
    before = {operator["name"]: operator for operator in old.get("operators", ())}
    after = {operator["name"]: operator for operator in new.get("operators", ())}
    for name in before.keys() - after.keys():
        lines.append(f"operator {name} ({before[name]['kind']}) is in the checkpoint and not in the program")
    for name in after.keys() - before.keys():
        lines.append(f"operator {name} ({after[name]['kind']}) is in the program and not in the checkpoint")
    for name in sorted(before.keys() & after.keys()):
        for aspect in ("kind", "key", "state", "input", "output"):
            was, now = before[name].get(aspect), after[name].get(aspect)
            if was != now:
                lines.append(f"operator {name}: its {aspect} was {was} and is now {now}")
    if not lines and list(before) != list(after):
        lines.append(f"the order of the operators was {', '.join(before)} and is now {', '.join(after)}")
    return sorted(lines) or ["the descriptions differ"]
