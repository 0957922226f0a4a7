"""A later version of a program goes on from what an earlier one left: part of the definition.

Between the last epoch of one and the first of the other nothing happens but this: an operator has the state of the one
that had its name, or one of the names it had before; a field likewise; and where the version of an operator's state is
higher, its steps are applied to every key. What is in flight, how far watermarks came, and who waits for what go along.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.engine.sequential import SequentialRun
from anabranch.engine.sequential_time import KeptKeys
from anabranch.program.graph import Keyed, Node
from anabranch.program.state_fields import FIRST_VERSION, StateField


def go_on_from(before: SequentialRun, now: SequentialRun) -> None:
    """Let a run that has not begun go on from one that has ended. The latter must not be used any more."""
    names = _renamed((kept.node for kept in now._states.values()), set(before._states))
    names |= _renamed((node for node in now._nodes), {*before._marks, *before._loops})
    for name, kept in before._states.items():
        after = now._states.get(names.get(name, name))
        if after is not None:
            _take_over(kept, after)
            after.timed.go_on_from(kept.timed, names)
    now._marks.update((names.get(name, name), value) for name, value in before._marks.items())
    now._idleness.go_on_from(before._idleness, names)
    for name, (_, rows) in before._loops.items():
        now._loops[names.get(name, name)][1].extend(rows)
    now._number, now.clock_ms = before._number, before.clock_ms


def _renamed(nodes: Iterable[Node], known: set[str]) -> dict[str, str]:
    """Earlier name → name of now."""
    found = {}
    for node in nodes:
        old = next((name for name in node.was if name in known), None)
        if node.name not in known and old is not None:
            found[old] = node.name
    return found


def _take_over(before: KeptKeys, now: KeptKeys) -> None:
    logic = now.node.logic
    assert isinstance(logic, Keyed)
    version = _version(before.node)
    for key, instance in before.by_key.items():
        fields = dict(zip(before.instances.names, before.instances.values(instance), strict=True))
        fields = {field.name: fields.pop(old) for field in logic.fields if (old := _was(field, fields))} | fields
        if logic.history is not None and version < logic.version:
            ours = [field for field in logic.fields if field.name not in logic.history.names]
            held = {field.name: fields.pop(field.name, field.initial()) for field in ours}
            fields = logic.history.migrated(fields, version, now.node.title, key) | held
        values = (fields[field.name] if field.name in fields else field.initial() for field in logic.fields)
        now.by_key[key] = now.instances.restored(tuple(values))
    now.expires.update(before.expires)
    now.waiting.update(before.waiting)


def _was(field: StateField, fields: dict[str, Any]) -> str | None:
    """Under which earlier name a field was kept, if it was under none of now."""
    return None if field.name in fields else next((name for name in field.was if name in fields), None)


def _version(node: Node) -> int:
    return node.logic.version if isinstance(node.logic, Keyed) else FIRST_VERSION
