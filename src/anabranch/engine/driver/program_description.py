"""What of a program its checkpoint depends on, and whether the program can read the state that it finds there."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.engine.worker.tasks import Program
from anabranch.errors import CheckpointError
from anabranch.program.graph import Keyed, Node
from anabranch.program.state_fields import FIRST_VERSION
from anabranch.state.checkpoint import Checkpoint, Manifest
from anabranch.state.described_program import DescribedOperator, DescribedProgram
from anabranch.state.records import SegmentRecord, Shape
from anabranch.state.renaming import renamed_manifest
from anabranch.state.user_objects import UserClasses


def describe_program(program: Program) -> DescribedProgram:
    """What of a program its checkpoint depends on: not its code, but its operators, keys, state and types."""
    operators = {step.node.name: _described(step.node) for step in program.layout.steps}
    return DescribedProgram(tuple(operators.values()))


def _described(node: Node) -> DescribedOperator:
    keyed = node.logic if isinstance(node.logic, Keyed) else None
    fields = keyed.fields if keyed is not None else ()
    shared = keyed.broadcast if keyed is not None else None
    return DescribedOperator(
        name=node.name,
        kind=node.kind,
        key=tuple(node.key),
        key_types=tuple(str(node.inputs[0].schema.type_of(name)) for name in node.key),
        state=tuple(field.name for field in fields),
        input=tuple(str(each.schema) for each in node.inputs),
        output=str(node.schema),
        was=tuple(node.was),
        were={field.name: tuple(field.was) for field in fields if field.was},
        version=keyed.version if keyed is not None else FIRST_VERSION,
        broadcast=tuple(field.name for field in shared.fields) if shared is not None else None,
    )


def checked_description(program: Program, held: Checkpoint, allow_state_loss: bool) -> DescribedProgram:
    """The description of a program that can go on from a checkpoint; CheckpointError if it cannot. Writes nothing."""
    description = describe_program(program)
    held.check(description, allow_state_loss)
    _check_state(program, held.latest(), held.files.root)
    return description


def _check_state(program: Program, manifest: Manifest, where: str) -> None:
    """Make sure that the program can read all the state that a manifest names; CheckpointError if it cannot.

    Records say of which versions and which classes state is, so nothing of it has to be read for that.
    """
    known = renamed_manifest(manifest, describe_program(program).operators).segments
    problems = [
        problem for _, node in program.layout.stateful() for problem in _problems(node, known.get(node.name, ()))
    ]
    if problems:
        raise CheckpointError(
            f"the program cannot read the state in the checkpoint {where}:\n"
            + "\n".join(f"  {each}" for each in dict.fromkeys(problems))
        )


def _problems(node: Node, records: Iterable[SegmentRecord]) -> list[str]:
    assert isinstance(node.logic, Keyed)
    history, now = node.logic.history, node.logic.version
    found: list[str] = []
    shapes: set[Shape] = set()
    for record in _with_parts(records):
        versions = record.versions or (FIRST_VERSION,)
        if versions == (now,):
            shapes.update(record.classes)
        for version in versions:
            if version > now:
                found.append(
                    f"operator {node.title}: keys have version {version} of its state, and the program has version "
                    f"{now}: run the program that has version {version}, or a later one"
                )
            elif history is not None and (missing := history.missing_step(version)) is not None:
                found.append(
                    f"operator {node.title}: keys have version {version} of its state, the program has version {now}, "
                    f"and nothing leads from {missing} to {missing + 1}: add migrate={{{missing}: function}}"
                )
    classes = UserClasses(node)
    reasons = (classes.refusal(shape) for shape in sorted(shapes))
    return found + [f"operator {node.title}: {reason}" for reason in reasons if reason is not None]


def _with_parts(records: Iterable[SegmentRecord]) -> list[SegmentRecord]:
    """Records, and those that a damaged compaction would be replaced by."""
    return [each for record in records for each in (record, *record.parts)]
