"""Why the plan is what it is: as text, as JSON, as a drawing."""

from __future__ import annotations

import json
from typing import Any

from anabranch.compiler.explaining.drawing import mermaid, svg
from anabranch.compiler.layout.plan import Plan, PlannedOperator, Region
from anabranch.compiler.layout.strategies import Joint
from anabranch.errors import ProgramError
from anabranch.program.graph import Keyed, Location
from anabranch.program.model import Model, Property

_CASES = {
    1: "declared state (case 1)",
    2: "its own dicts, kept for it by the runtime (case 2)",
    3: "managed stores it uses itself (case 3)",
}


def explain(plan: Plan, form: str = "text") -> str:
    """Explain a plan.

    Parameters
    ----------
    plan : Plan
    form : {"text", "json", "mermaid", "svg"}
    """
    forms = {"text": explain_text, "json": explain_json, "mermaid": mermaid, "svg": svg}
    if form not in forms:
        raise ProgramError(f"explain({form!r}): no such form; valid: {', '.join(map(repr, forms))}")
    return forms[form](plan)


# -- text -------------------------------------------------------------------------------------------------


def explain_text(plan: Plan) -> str:
    """Every operator with its properties, their reasons and lines; regions and what parts them."""
    lines = [_headline(plan), ""]
    shown: set[str] = set()
    for operator in plan.operators:
        if operator.name in shown:
            continue
        if operator.region is None:
            lines += _sequential(operator)
            shown.add(operator.name)
        else:
            region = plan.regions[operator.region]
            lines += _region(plan, region)
            shown.update(region.operators)
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _headline(plan: Plan) -> str:
    parallel = sum(operator.region is not None for operator in plan.operators)
    shuffles = sum(region.first is Joint.SHUFFLE for region in plan.regions)
    merges = sum(region.last is Joint.MERGE for region in plan.regions)
    return (
        f"{_count(len(plan.operators), 'operator')}, {parallel} of them parallel in "
        f"{_count(len(plan.regions), 'region')}; {_count(shuffles, 'shuffle')}, {_count(merges, 'merge')}"
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _region(plan: Plan, region: Region) -> list[str]:
    key = f"key {region.key_text}" if region.key_text else "no key"
    lines = [
        f"region {region.number + 1}: {region.first.value} → {', '.join(region.operators)} → {region.last.value}",
        f"  {key}; routed by {region.routing.value}; ordered by {region.ordering.value}; "
        f"{region.flow_selectivity.value}",
        f"  starts here: {region.reason}",
    ]
    for border in plan.borders:
        if border.after == region.operators[-1]:
            following = f" before {border.before}" if border.before else ""
            lines.append(f"  ends{following}: {border.reason}")
    for name in region.operators:
        lines += _operator(plan.operator(name))
    return lines


def _sequential(operator: PlannedOperator) -> list[str]:
    return [f"sequential: {operator.name}", *_operator(operator)]


def _operator(operator: PlannedOperator) -> list[str]:
    model = operator.model
    lines = [f"  {operator.name}  {operator.node.kind}  {place(operator.node.location)}"]
    if description(operator):
        lines.append(f"    {'does':<12} {description(operator)}")
    for name, found in properties(model):
        lines.append(f"    {name:<12} {value_text(found):<14} {found.reason}  {place(found.location)}".rstrip())
    if model.case:
        lines.append(f"    {'kept as':<12} {_CASES[model.case]}")
        if isinstance(model.logic, Keyed):
            lines.append(f"    {'fields':<12} {', '.join(field.name for field in model.logic.fields)}")
    for note in model.notes:
        lines.append(f"    {'note':<12} {note.reason}  {place(note.location)}")
    if operator.blocked:
        lines.append(f"    {'blocked':<12} {operator.blocked}")
        for block in model.blocks[1:]:
            lines.append(f"    {'and':<12} {block.reason}  {place(block.location)}")
        if operator.remedy:
            lines.append(f"    {'to free it':<12} {operator.remedy}")
    return lines


def description(operator: PlannedOperator) -> str:
    """What an operator of the library does, in the words of the program."""
    return str(getattr(getattr(operator.node.logic, "prototype", None), "description", ""))


def properties(model: Model) -> list[tuple[str, Property]]:
    """The properties of a model that say something, by name."""
    found = [("state", model.state)]
    if model.key is not None:
        found.append(("key", Property(model.key.text, model.state.reason, model.state.location)))
    found += [
        ("selectivity", model.selectivity),
        ("forwards", model.forwarding),
        ("ordering", model.ordering),
    ]
    if any(port.value != "oblivious" for port in model.inputs.value):
        found.append(("input", model.inputs))
    if model.output.value.value != "preserves":
        found.append(("output", model.output))
    return found


def value_text(found: Property) -> str:
    value = found.value
    if isinstance(value, dict):
        return ", ".join(out if out == of else f"{out}={of}" for out, of in sorted(value.items())) or "nothing"
    if isinstance(value, tuple):
        return ", ".join(each.value for each in value)
    return found.text


def place(location: Location | None) -> str:
    """A line of the user's source, short."""
    if location is None:
        return ""
    return f"({location.file.rsplit('/', 1)[-1]}:{location.line})"


# -- JSON -------------------------------------------------------------------------------------------------


def explain_json(plan: Plan) -> str:
    """Everything the text says, for programs."""
    return json.dumps(explain_data(plan), indent=2, ensure_ascii=False)


def explain_data(plan: Plan) -> dict[str, Any]:
    """Everything the text says, as plain data."""
    return {
        "fingerprint": plan.fingerprint,
        "operators": [_operator_data(operator) for operator in plan.operators],
        "regions": [
            {
                "number": region.number + 1,
                "operators": list(region.operators),
                "key": region.key_text,
                "first": region.first.value,
                "last": region.last.value,
                "routing": region.routing.value,
                "ordering": region.ordering.value,
                "selectivity": region.flow_selectivity.value,
                "reason": region.reason,
                "ends": [
                    {"before": border.before, "reason": border.reason}
                    for border in plan.borders
                    if border.after == region.operators[-1]
                ],
            }
            for region in plan.regions
        ],
        "processes": [
            {
                "operators": list(process.operators),
                "region": None if process.region is None else process.region + 1,
            }
            for process in plan.processes
        ],
    }


def _operator_data(operator: PlannedOperator) -> dict[str, Any]:
    model = operator.model
    return {
        "name": operator.name,
        "kind": operator.node.kind,
        "description": description(operator),
        "location": str(operator.node.location),
        "inputs": [source.name for source in operator.node.inputs],
        "region": None if operator.region is None else operator.region + 1,
        "process": operator.process,
        "properties": {
            name: {
                "value": found.value if isinstance(found.value, dict) else value_text(found),
                "reason": found.reason,
                "location": str(found.location) if found.location is not None else None,
            }
            for name, found in properties(model)
        },
        "case": model.case,
        "notes": [{"text": note.reason, "location": str(note.location)} for note in model.notes],
        "blocked": operator.blocked,
        "blocks": [{"reason": block.reason, "location": str(block.location)} for block in model.blocks],
        "remedy": operator.remedy,
    }
