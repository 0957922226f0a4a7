"""What changed between two programs, and what that means for the state that the first one left.

What is compared are descriptions (described_program.py); code is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from anabranch.state.described_program import DescribedOperator, DescribedProgram


@dataclasses.dataclass(frozen=True)
class ProgramChange:
    """A difference between two programs, and what it means for the state: fine, loses state, refused."""

    text: str
    effect: str


def compare(old: DescribedProgram, new: DescribedProgram) -> list[ProgramChange]:
    """What changed between two descriptions of programs."""
    changes = []
    before = {operator.name: operator for operator in old.operators}
    after = {operator.name: operator for operator in new.operators}
    for name in sorted(before.keys() - after.keys()):
        text = f"operator {name} ({before[name].kind}) is in the checkpoint and not in the program"
        stateful = bool(before[name].key)
        changes.append(
            ProgramChange(f"{text}, and its state would be lost", "loses state")
            if stateful
            else ProgramChange(text, "fine")
        )
    for name in sorted(after.keys() - before.keys()):
        text = f"operator {name} ({after[name].kind}) is in the program and not in the checkpoint"
        changes.append(ProgramChange(text + (": it begins without state" if after[name].key else ""), "fine"))
    for name in sorted(before.keys() & after.keys()):
        changes += _compare_operator(name, before[name], after[name])
    return changes + _compare_sources(old, new)


def _compare_sources(old: DescribedProgram, new: DescribedProgram) -> list[ProgramChange]:
    """Spark notes what it has read by the number of a source: under another's number it would skip or repeat input."""
    before, after = ([each.name for each in program.operators if each.kind == "source"] for program in (old, new))
    if not before or before == after:
        return []
    text = f"its sources were {', '.join(before)} and are now {', '.join(after)}: declare the same ones, in that order"
    return [ProgramChange(text, "refused")]


def _compare_operator(name: str, was: DescribedOperator, now: DescribedOperator) -> list[ProgramChange]:
    changes = []
    for aspect in ("kind", "key", "key_types"):
        if getattr(was, aspect) != getattr(now, aspect):
            text = _changed(name, aspect, was, now)
            changes.append(ProgramChange(text, "refused" if was.key or now.key else "fine"))
    before, after = was.version, now.version
    if after < before:
        text = (
            f"operator {name}: its state has version {before}, and the program has version {after}: run the program "
            f"that has version {before}, or a later one"
        )
        return [*changes, ProgramChange(text, "refused")]
    if after > before:
        changes.append(ProgramChange(f"operator {name}: its state goes from version {before} to {after}", "fine"))
    renamed = {
        field: next((each for each in were if each in was.state and field not in was.state), None)
        for field, were in now.were.items()
    }
    for field, old in renamed.items():
        if old is not None:
            changes.append(ProgramChange(f"operator {name}: its state {old} is now called {field}", "fine"))
    kept = {old for old in renamed.values() if old is not None}
    gone = [field for field in was.state if field not in now.state and field not in kept and after == before]
    added = [field for field in now.state if field not in was.state and renamed.get(field) is None]
    if gone:
        changes.append(ProgramChange(f"operator {name}: its state no longer has {', '.join(gone)}", "loses state"))
    if added:
        text = f"operator {name}: its state now has {', '.join(added)}, at first with the default"
        changes.append(ProgramChange(text, "fine"))
    lost = [field for field in was.broadcast or () if field not in (now.broadcast or ())]
    if lost:
        text = f"operator {name}: its broadcast state no longer has {', '.join(lost)}"
        changes.append(ProgramChange(text, "loses state"))
    for aspect in ("input", "output"):
        if getattr(was, aspect) != getattr(now, aspect):
            changes.append(ProgramChange(_changed(name, aspect, was, now), "fine"))
    return changes


def _changed(name: str, aspect: str, was: DescribedOperator, now: DescribedOperator) -> str:
    before, after = (_shown(getattr(each, aspect)) for each in (was, now))
    return f"operator {name}: its {aspect.replace('_', ' ')} was {before} and is now {after}"


def _shown(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def new_names(operators: Iterable[DescribedOperator], known: Iterable[str]) -> dict[str, str]:
    """Name in the checkpoint → name in the program, for operators that say what they were; see `describe_program`."""
    described, before = list(operators), set(known)
    taken = {operator.name for operator in described}
    found: dict[str, str] = {}
    for operator in described:
        if operator.name not in before:
            old = next((name for name in operator.was if name in before - taken - found.keys()), None)
            if old is not None:
                found[old] = operator.name
    return found
