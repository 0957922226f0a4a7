"""A later version of a program goes on from what an earlier one left: part of the definition.

Between the last epoch of one and the first of the other nothing happens but this: an operator has the state of the one
that had its name, or one of the names it had before; a field likewise; and where the version of an operator's state is
higher, its steps are applied to every key. What is in flight, how far watermarks came, and who waits for what go along.
"""

from __future__ import annotations

from typing import Any

from anabranch.engine.sequential import SequentialRun
from anabranch.engine.sequential_keys import KeyedOperator
from anabranch.program.graph import Keyed
from anabranch.program.state_fields import StateField


def go_on_from(before: SequentialRun, now: SequentialRun) -> None:
    """Let a run that has not begun go on from one that has ended. The latter must not be used any more."""
    names = _new_names(before, now)
    for name, kept in before._operators.keyed.items():
        after = now._operators.keyed.get(names.get(name, name))
        if after is not None:
            after.go_on_from(kept, _states(kept, after), names)
    wiring, earlier = now._wiring, before._wiring
    wiring.watermarks.update((names.get(name, name), value) for name, value in earlier.watermarks.items())
    wiring.idleness.go_on_from(earlier.idleness, names)
    for name, (_, rows) in before._loops.items():
        now._loops[names.get(name, name)][1].extend(rows)
    now._number, now.clock_ms = before._number, before.clock_ms


def _new_names(before: SequentialRun, now: SequentialRun) -> dict[str, str]:
    """Earlier name → name of now, for operators that have another."""
    known = {node.name for node in before._nodes}
    found = {}
    for node in now._nodes:
        old = next((name for name in node.was if name in known), None)
        if node.name not in known and old is not None:
            found[old] = node.name
    return found


def _states(before: KeyedOperator, now: KeyedOperator) -> dict[Any, tuple[Any, ...]]:
    """The state of each key, as the later program has it."""
    earlier, logic = before.instances.logic, now.instances.logic
    found = {}
    for key, instance in before.by_key.items():
        fields = dict(zip(before.instances.names, before.instances.values(instance), strict=True))
        fields = {field.name: fields.pop(old) for field in logic.fields if (old := _was(field, fields))} | fields
        if logic.history is not None and earlier.version < logic.version:
            fields = _migrated(fields, earlier, logic, now.instances.node.title, key)
        found[key] = tuple(fields[each.name] if each.name in fields else each.initial() for each in logic.fields)
    return found


def _migrated(fields: dict[str, Any], earlier: Keyed, logic: Keyed, title: str, key: Any) -> dict[str, Any]:
    assert logic.history is not None
    ours = [field for field in logic.fields if field.name not in logic.history.names]
    held = {field.name: fields.pop(field.name, field.initial()) for field in ours}
    return logic.history.migrated(fields, earlier.version, title, key) | held


def _was(field: StateField, fields: dict[str, Any]) -> str | None:
    """Under which earlier name a field was kept, if it was under none of now."""
    return None if field.name in fields else next((name for name in field.was if name in fields), None)
