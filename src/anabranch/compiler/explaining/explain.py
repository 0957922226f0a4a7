"""What runs, and why it is laid out like that: as text, as JSON, as a drawing."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from anabranch.compiler.explaining.drawing import mermaid, svg
from anabranch.compiler.explaining.layout_data import Merged, layout_data
from anabranch.compiler.explaining.running import RunningQuery
from anabranch.compiler.layout.chains import PlannedOperator
from anabranch.compiler.layout.plan_data import PlanData
from anabranch.errors import ProgramError
from anabranch.program.elastic import settings_of
from anabranch.program.graph import Keyed, Location
from anabranch.program.model import Model, Property

_CASES = {
    1: "declared state (case 1)",
    2: "its own dicts, kept for it by the runtime (case 2)",
    3: "managed stores it uses itself (case 3)",
}


def explain(plan: PlanData, form: str = "text", running: RunningQuery | None = None) -> str:
    """Explain what runs.

    Parameters
    ----------
    plan : PlanData
    form : {"text", "json", "mermaid", "svg"}
    running : RunningQuery, optional
        What a query that runs the plan has decided.
    """
    forms = {"text": explain_text, "json": explain_json, "mermaid": mermaid, "svg": svg}
    if form not in forms:
        raise ProgramError(f"explain({form!r}): no such form; valid: {', '.join(map(repr, forms))}")
    return forms[form](plan, running)


# -- text -------------------------------------------------------------------------------------------------


def explain_text(plan: PlanData, running: RunningQuery | None = None) -> str:
    """Every stage, what enters it and why it is there; every operator with its properties, their reasons and lines."""
    data = layout_data(plan, running)
    if data is None:
        lines = [f"{_count(len(plan.operators), 'operator')}; the program cannot run: {plan.refused}", ""]
        for operator in plan.operators:
            lines += [*_operator(operator), ""]
        return "\n".join(lines).rstrip() + "\n"
    lines = [_headline(plan, data), ""]
    shown: dict[str, int] = {}
    for stage in data["stages"]:
        lines += _stage(data, stage)
        for name in stage["operators"]:
            if name in shown:
                lines.append(f"  {name}  as in stage {shown[name]}")
            else:
                lines += _operator(plan.operator(name))
            shown.setdefault(name, stage["number"])
        lines.append("")
    for name in data["no_steps"]:
        lines += ["in no stage: tuples pass by it where they are made", *_operator(plan.operator(name)), ""]
    for each in data["outputs"]:
        lines.append(_output(data, each))
    for each in data["loops"]:
        lines.append(f"{each['operator']} is fed back through {each['loop']} in the next epoch")
    return "\n".join(lines).rstrip() + "\n"


def _headline(plan: PlanData, data: dict[str, Any]) -> str:
    regions = sum(stage["region"] is not None for stage in data["stages"])
    return (
        f"{_count(len(plan.operators), 'operator')} in {_count(len(data['stages']), 'stage')}, "
        f"{regions} of them {'a region' if regions == 1 else 'regions'}; "
        f"{_count(data['shuffles'], 'shuffle')} per epoch"
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


_KINDS = {
    "keyed": "channels by key",
    "spread": "channels that tuples are dealt out to in turn",
    "single": "one channel, in the order of one thread",
}


def _stage(data: dict[str, Any], stage: dict[str, Any]) -> list[str]:
    operators = ", ".join(stage["operators"])
    if stage["region"] is None:
        lines = [f"stage {stage['number']}, depth {stage['depth']}: {operators}"]
        return [*lines, f"  runs in the tasks that read {stage['operators'][0]}"]
    lines = [f"stage {stage['number']}, depth {stage['depth']}, region {stage['region']}: {operators}"]
    if stage["partitioned_by"]:
        lines.append(f"  {_KINDS['keyed']}, one for each partition of the source; {stage['channels']} for ever")
    elif stage["kind"] == "single":
        lines.append(f"  {_KINDS['single']}")
    else:
        number = "their number is decided at the start" if stage["channels"] is None else f"{stage['channels']} now"
        lines.append(f"  {_KINDS[stage['kind']]}; {number}")
    for edge in stage["inputs"]:
        if not stage["shuffled"]:
            columns = ", ".join(stage["partitioned_by"])
            lines.append(
                f"  no shuffle: partitioned by the source, by {columns}; runs where {edge['operator']} (stage "
                f"{edge['from']}) runs, and every key is checked"
            )
            continue
        lines.append(
            f"  shuffle from {edge['operator']} (stage {edge['from']}){_routed(stage, edge)}; {_ordered(edge)}"
            + ("; with punctuations" if edge["punctuated"] else "")
            + (f"; with the watermark of {' and '.join(edge['watermarks'])}" if edge["watermarks"] else "")
        )
    if stage["partitioned_by"] and stage["shuffled"]:
        columns = ", ".join(stage["partitioned_by"])
        lines.append(
            f"  partitioned by the source, by {columns}, and shuffled all the same: {data['shuffled_because']}"
        )
    lines.append(f"  starts here: {stage['reason']}")
    return lines


def _routed(stage: dict[str, Any], edge: dict[str, Any]) -> str:
    if edge["key"]:
        return f" by the hash of {', '.join(edge['key'])}"
    return " in turn" if stage["kind"] == "spread" else ""


def _ordered(edge: dict[str, Any]) -> str:
    if not edge["ordered"]:
        return "in no order: nobody needs one"
    return f"in order by trails of {_count(edge['trail'], 'number')}"


def _output(data: dict[str, Any], found: dict[str, Any]) -> str:
    why = f"; it passes through the driver: {found['through_driver']}" if found["through_driver"] else ""
    if found["merged"] in (Merged.NOT_AT_ALL, Merged.WRITTEN_WHERE_MADE):
        return f"output {found['operator']}: merged {found['merged']}{why}"
    if found["merged"] is Merged.BY_READERS:
        return f"output {found['operator']}: written {found['merged']}, piece by piece"
    trails = " and ".join(str(each) for each in sorted(set(found["trails"])))
    numbers = "number" if trails == "1" else "numbers"
    who = f"by {_count(data['mergers'], 'merger')}" if found["merged"] is Merged.BY_MERGERS else found["merged"]
    return f"output {found['operator']}: merged {who}, by trails of {trails} {numbers}{why}"


def _operator(operator: PlannedOperator) -> list[str]:
    model = operator.model
    lines = [f"  {operator.name}  {operator.node.kind}  {place(operator.node.location)}"]
    if description(operator):
        lines.append(f"    {'does':<12} {description(operator)}")
    for name, found in properties(model):
        lines.append(f"    {name:<12} {value_text(found):<14} {found.reason}  {place(found.location)}".rstrip())
    settings = settings_of(operator.node.logic)
    if settings is not None:
        lines.append(f"    {'elastic':<12} {settings.text}")
    if operator.node.isolated:
        lines.append(f"    {'placed':<12} in a stage of its own: isolate()")
    if operator.node.together:
        lines.append(f"    {'placed':<12} in the stage of {', '.join(map(str, operator.node.together))}: colocate()")
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


def explain_json(plan: PlanData, running: RunningQuery | None = None) -> str:
    """Everything the text says, for programs."""
    return json.dumps(explain_data(plan, running), indent=2, ensure_ascii=False)


def explain_data(plan: PlanData, running: RunningQuery | None = None) -> dict[str, Any]:
    """Everything the text says, as plain data."""
    data = layout_data(plan, running)
    places: dict[str, list[int]] = {}
    for stage in data["stages"] if data is not None else ():
        for name in stage["operators"]:
            places.setdefault(name, []).append(stage["number"])
    return {
        "refused": plan.refused,
        "operators": [_operator_data(operator, places.get(operator.name, [])) for operator in plan.operators],
        "chains": [
            {
                "number": chain.number,
                "operators": list(chain.operators),
                "key": chain.key_text,
                "ends": [
                    {"before": border.before, "reason": border.reason}
                    for border in plan.borders
                    if border.after == chain.operators[-1]
                ],
            }
            for chain in plan.chains
        ],
        **(data or {}),
    }


def _operator_data(operator: PlannedOperator, stages: list[int]) -> dict[str, Any]:
    model = operator.model
    return {
        "name": operator.name,
        "kind": operator.node.kind,
        "description": description(operator),
        "location": str(operator.node.location),
        "inputs": [source.name for source in operator.node.inputs],
        "stages": stages,
        "chain": operator.chain,
        "isolated": operator.node.isolated,
        "elastic": dataclasses.asdict(settings) if (settings := settings_of(operator.node.logic)) is not None else None,
        "together": list(operator.node.together),
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
