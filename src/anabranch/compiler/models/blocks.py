"""Facts that keep an operator from running in channels, as its model tells them: reasons, remedies, what is watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.compiler.models.findings import Inference
from anabranch.compiler.reading.facts import KEEPING, Fact, Kind
from anabranch.program.graph import Keyed, Node
from anabranch.program.model import Block, State, declaration_of

_CLEAREST_FIRST = (
    *(Kind.WRITE, Kind.WHOLE, Kind.NOT_DATA, Kind.ALIAS, Kind.TUPLE, Kind.INDEX),
    *(Kind.CHANCE, Kind.IMPURE, Kind.UNKNOWN),
)


def ordered_blocks(found: Inference) -> list[Any]:
    """What blocks an operator, the clearest reason first."""
    return sorted(found.blocks, key=lambda fact: _CLEAREST_FIRST.index(fact.kind))


def block_of(fact: Fact, before: str = "") -> Block:
    """A fact that keeps an operator sequential, as its model tells it."""
    written = fact.path if fact.kind is Kind.WRITE else ""
    return Block(State.UNKNOWN, before + fact.text, fact.location, keeps=fact.kind in KEEPING, written=written)


def remedy_of(node: Node, found: Inference) -> str:
    """The smallest change that would free a sequential operator."""
    blocks = ordered_blocks(found)
    if not blocks:
        return ""
    first = blocks[0]
    if first.kind is Kind.WRITE:
        name = first.path or "it"
        if name in found.facts.cached:
            return f"compute {name} where the operator is made, in __init__(), or make it a property"
        if isinstance(node.logic, Keyed) and node.key:
            otherwise = "" if node.logic.fields else "; or leave out by=…, and what is kept is found in its code"
            return f"declare {name}: ab.state(…) is kept for each key{otherwise}"
        return f"keep {name} for each key: declare it with ab.state(…) in an ab.Operator and name the key with by=…"
    if first.kind is Kind.WHOLE:
        return f"use {first.path} only as {first.path}[key], with the same key of the tuple everywhere"
    if first.kind is Kind.NOT_DATA:
        return "keep data only: numbers, strings and containers of them"
    if first.kind is Kind.ALIAS:
        return "keep each object in one place only, or a copy of it in the other"
    if first.kind is Kind.TUPLE:
        return "make a changed copy: t.but(column=…)"
    if first.kind in (Kind.CHANCE, Kind.IMPURE):
        return "let the tuple carry what it needs, or declare it with @ab.model(state=…) if any value will do"
    if first.kind is Kind.INDEX:
        return "index its dicts with the same columns of the tuple everywhere"
    return "declare what it does: @ab.model(state=…, selectivity=…)"


def told_unfollowed(facts: Sequence[Fact], target: Any) -> str:
    """What of an operator's code could not be followed, and where; empty if its author declared what it does."""
    found = next((fact for fact in facts if fact.kind in (Kind.UNKNOWN, Kind.IMPURE)), None)
    return "" if found is None or is_declared(target) else f"{found.text} ({found.location})"


def is_declared(target: Any) -> bool:
    """Whether its author said what it keeps."""
    declared = declaration_of(target)
    return declared is not None and declared.state is not None
