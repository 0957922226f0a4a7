"""What operators that share state do (`ab.share`): each keeps what it declared and nothing else, as under `by=`."""

from __future__ import annotations

from anabranch.compiler.models.blocks import is_declared, ordered_blocks, told_unfollowed
from anabranch.compiler.models.findings import Inference
from anabranch.compiler.models.inference import infer
from anabranch.compiler.reading.facts import TRUSTED, Kind
from anabranch.compiler.reading.read_operator import Beside
from anabranch.errors import ProgramError
from anabranch.operators.shared_state import Member, Members
from anabranch.operators.timers import TIMER_FIELDS, TimedOperator
from anabranch.program.graph import Keyed, Node, StateField
from anabranch.program.model import Property


def members_sharing_state(
    node: Node, logic: Keyed, found: Members, read: list[Inference]
) -> tuple[tuple[Property, ...], str]:
    """Read them; notes, and what is watched. ProgramError if one keeps anything beside what it declared."""
    methods: list[tuple[Member, Beside]] = []
    # Of all of them: an object that one makes may be read as one that another makes. Who writes what only another one
    # declared is told where it runs.
    declared = logic.fields
    if any(member.timed for member in found.members):
        declared += tuple(StateField(name) for name in TIMER_FIELDS)
    for target, member in zip(found.operators_within(), found.members, strict=True):
        for method in ("process", "on_timer", "on_end"):
            if getattr(member.kind, method) is not getattr(TimedOperator, method, None):
                takes = member.takes if method == "process" else None
                methods.append((member, Beside(target, method, takes, method != "on_end")))
    notes: list[Property] = []
    unfollowed = ""
    for member, each in methods:
        # What one of them leaves in shared state, another finds there.
        others = tuple(other for _, other in methods if other is not each)
        seen = infer(
            *(each.target, each.method, each.schema, member.gives, "process", declared, node.location),
            *(each.takes_tuple, others, True),
        )
        read.append(seen)
        facts = ordered_blocks(seen)
        _refuse(node, f"{member.kind.__name__}.{each.method}()", each, seen)
        trusted = [fact for fact in facts if fact.kind in TRUSTED]
        unfollowed = unfollowed or told_unfollowed(trusted, each.target)
        notes += [Property("note", f"watched where it runs: {fact.text}", fact.location) for fact in trusted]
    return tuple(notes), unfollowed


def _refuse(node: Node, what: str, each: Beside, seen: Inference) -> None:
    kept = seen.facts.of(Kind.WRITE, Kind.WHOLE, Kind.NOT_DATA)
    if kept:
        told = f"{kept[0].text} ({kept[0].location})"
        raise ProgramError(
            f"{node.title}: {what} keeps something beside the state it declared: {told}. Declare it: ab.state(…)"
        )
    chance = seen.facts.of(Kind.CHANCE)
    if chance and not is_declared(each.target):
        raise ProgramError(
            f"{node.title}: {what} {chance[0].text} ({chance[0].location}): no two runs need give the same. Let the "
            "tuple carry what it needs; or, if any value will do, declare it: @ab.model(state=…)"
        )
