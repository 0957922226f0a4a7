"""The partitioning key, from the expressions with which an operator indexes its state.

All dicts must be indexed with one and the same expression of the tuple's columns, or with tuples of columns
that have some in common, each dict at the same places of its tuples: those are the key then.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any

from anabranch.compiler.models.findings import Inference
from anabranch.compiler.reading.facts import BLOCKING, Access, Kind
from anabranch.compiler.reading.values import NoneType, Text, column_text
from anabranch.program.model import Key

#: Types whose equality as dict keys is the equality of the values: no NaN, no 1 == 1.0 == True.
_KEY_TYPES = {bool, int, str, bytes, datetime.datetime, datetime.date, decimal.Decimal}


def find_key(found: Inference) -> None:
    """Find the key of the dicts that are state; a fact that blocks the operator if there is none."""
    accesses = sorted(
        found.facts.accesses.values(), key=lambda each: (each.location.file, each.location.line, each.path)
    )
    if not accesses:
        if any(fact.kind is Kind.WHOLE for fact in found.blocks):
            return
        found.dicts = {}
        return
    for access in accesses:
        problem = _problem_with(access)
        if problem is not None:
            found.facts.add(Kind.INDEX, problem, access.location)
            found.blocks = found.facts.of(*BLOCKING)
            return
    found.key_location = accesses[0].location
    texts = {access.key for access in accesses}
    first = accesses[0].key
    if len(texts) == 1 and first is not None:
        found.key_text = first
        found.key = _as_key(accesses[0])
        return
    common = _common_columns(accesses)
    if not common:
        other = next(access for access in accesses if access.key != first)
        text = (
            f"indexes {accesses[0].path} with {first.source if first else '?'} (line "
            f"{accesses[0].location.line}) and "
            f"{other.path} with {other.key.source if other.key else '?'}: no column is in both{_at_one_place(accesses)}"
        )
        found.facts.add(Kind.INDEX, text, other.location)
        found.blocks = found.facts.of(*BLOCKING)
        return
    if any(found.facts.objects[i] for i in found.dicts):
        found.facts.add(
            Kind.INDEX,
            "its dicts are filled at the start and indexed in different ways",
            accesses[0].location,
        )
        found.blocks = found.facts.of(*BLOCKING)
        return
    found.key = Key(tuple(common))
    # Entries of one dict under a coarser key: several per key, kept together.
    found.finer = set(found.dicts)
    source = column_text(common[0]) if len(common) == 1 else "(" + ", ".join(map(column_text, common)) + ")"
    found.key_text = Text(source, frozenset(common))


def _at_one_place(accesses: list[Access]) -> str:
    columns = [set(_columns_of(access) or ()) for access in accesses]
    return " at the same place" if set.intersection(*columns) else ""


def _problem_with(access: Access) -> str | None:
    if access.key is None:
        return f"indexes {access.path} with something that is not an expression of the tuple's columns"
    if not access.key.columns:
        return f"indexes {access.path} with {access.key.source}: all tuples share that entry"
    for text, kinds in access.parts:
        if text is not None and not text.columns:
            continue
        real = None if kinds is None else kinds - {NoneType}
        if real is None or len(real) != 1 or not real <= _KEY_TYPES:
            name = ", ".join(sorted(kind.__name__ for kind in real)) if real else "an unknown type"
            return f"indexes {access.path} with {access.key.source}, which is {name}: its equality is not that of a key"
    return None


def _columns_of(access: Access) -> list[str] | None:
    columns = []
    for text, _ in access.parts:
        if text is None or text.column is None:
            return None
        columns.append(text.column)
    return columns


def _as_key(access: Access) -> Key | None:
    columns = _columns_of(access)
    if columns is not None:
        return Key(tuple(dict.fromkeys(columns)))
    text = access.key
    assert text is not None
    return Key(tuple(sorted(text.columns)), text.source, expression_function(text))


def _common_columns(accesses: list[Access]) -> list[str]:
    """The columns that decide every entry any access uses.

    Two tuples may use one entry of a dict only if they agree on the key. They use one entry if their indexes are equal,
    part by part; so within one dict a column counts only where it stands at the same place in all indexes: d[a, b] and
    d[b, a] share entries though they have no column in common at any place. Of different dicts no entry is shared, so
    there only the names count.
    """
    placed: dict[int, set[tuple[int, str]]] = {}
    named: list[str] | None = None
    for access in accesses:
        columns = _columns_of(access)
        if columns is None:
            return []
        here = set(enumerate(columns))
        placed[access.identity] = placed.get(access.identity, here) & here
        named = columns if named is None else [name for name in named if name in columns]
    for pairs in placed.values():
        fixed = {name for _, name in pairs}
        named = [name for name in named or [] if name in fixed]
    return list(dict.fromkeys(named or []))


def expression_function(text: Text) -> Any:
    """The function of a tuple that computes an expression."""
    space: dict[str, Any] = {**dict(text.names), "__name__": "anabranch_key"}
    # A tuple whose key cannot be computed never reaches the state (its operator would raise, too): any
    # channel may have it.
    body = f"def key(t):\n    try:\n        return {text.source}\n    except Exception:\n        return None\n"
    exec(compile(body, "<anabranch key>", "exec"), space)
    return space["key"]
