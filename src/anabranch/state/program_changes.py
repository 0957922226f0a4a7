"""What changed between two programs, and what that means for the state that the first one left.

A description has what the checkpoint depends on: operators, keys, fields of state and types. Code is not compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class ProgramChange:
    """A difference between two programs, and what it means for the state: fine, loses state, refused."""

    text: str
    effect: str


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[ProgramChange]:
    """What changed between two descriptions of programs."""
    changes = []
    before = {operator["name"]: operator for operator in old.get("operators", ())}
    after = {operator["name"]: operator for operator in new.get("operators", ())}
    for name in sorted(before.keys() - after.keys()):
        text = f"operator {name} ({before[name]['kind']}) is in the checkpoint and not in the program"
        stateful = bool(before[name]["key"])
        changes.append(
            ProgramChange(f"{text}, and its state would be lost", "loses state")
            if stateful
            else ProgramChange(text, "fine")
        )
    for name in sorted(after.keys() - before.keys()):
        text = f"operator {name} ({after[name]['kind']}) is in the program and not in the checkpoint"
        changes.append(ProgramChange(text + (": it begins without state" if after[name]["key"] else ""), "fine"))
    for name in sorted(before.keys() & after.keys()):
        changes += _compare_operator(name, before[name], after[name])
    return changes


def _compare_operator(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[ProgramChange]:
    changes = []
    for aspect in ("kind", "key", "key_types"):
        if was.get(aspect) != now.get(aspect):
            text = f"operator {name}: its {aspect.replace('_', ' ')} was {was.get(aspect)} and is now {now.get(aspect)}"
            changes.append(ProgramChange(text, "refused" if was["key"] or now["key"] else "fine"))
    gone = [field for field in was["state"] if field not in now["state"]]
    added = [field for field in now["state"] if field not in was["state"]]
    if gone:
        changes.append(ProgramChange(f"operator {name}: its state no longer has {', '.join(gone)}", "loses state"))
    if added:
        text = f"operator {name}: its state now has {', '.join(added)}, at first with the default"
        changes.append(ProgramChange(text, "fine"))
    lost = [field for field in was.get("broadcast", ()) if field not in now.get("broadcast", ())]
    if lost:
        text = f"operator {name}: its broadcast state no longer has {', '.join(lost)}"
        changes.append(ProgramChange(text, "loses state"))
    for aspect in ("input", "output"):
        if was.get(aspect) != now.get(aspect):
            text = f"operator {name}: its {aspect} was {was.get(aspect)} and is now {now.get(aspect)}"
            changes.append(ProgramChange(text, "fine"))
    return changes
