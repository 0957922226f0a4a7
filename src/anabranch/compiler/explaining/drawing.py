"""The plan as a picture: Mermaid for documents, SVG for the dashboard and notebooks."""

from __future__ import annotations

from xml.sax.saxutils import escape

from anabranch.compiler.layout.plan import Plan, PlannedOperator
from anabranch.program.model import State

_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 170, 54, 60, 36, 30


def mermaid(plan: Plan) -> str:
    """The plan as a Mermaid flowchart: regions are boxes around operators, joints are labels of edges."""
    numbers = {operator.name: f"n{place}" for place, operator in enumerate(plan.operators)}
    lines = ["flowchart LR"]
    for region in plan.regions:
        key = f" · key {region.key_text}" if region.key_text else ""
        lines.append(
            f'  subgraph r{region.number}["{_quoted(f"region {region.number + 1}{key} · {region.ordering.value}")}"]'
        )
        for name in region.operators:
            lines.append(f"    {_box(numbers[name], plan.operator(name))}")
        lines.append("  end")
    for operator in plan.operators:
        if operator.region is None:
            lines.append(f"  {_box(numbers[operator.name], operator)}")
    for operator in plan.operators:
        for source in operator.node.inputs:
            label = edge_label(plan, plan.operator(source.name), operator)
            arrow = f"-->|{label}|" if label else "-->"
            lines.append(f"  {numbers[source.name]} {arrow} {numbers[operator.name]}")
    blocked = [numbers[operator.name] for operator in plan.operators if operator.region is None]
    if blocked:
        lines.append("  classDef sequential stroke-dasharray: 4 3")
        lines.append(f"  class {','.join(blocked)} sequential")
    return "\n".join(lines) + "\n"


def _box(number: str, operator: PlannedOperator) -> str:
    text = f"{operator.name}<br/>{caption(operator)}"
    shape = ("[(", ")]") if operator.model.state.value is State.PARTITIONED else ("[", "]")
    return f'{number}{shape[0]}"{_quoted(text)}"{shape[1]}'


def _quoted(text: str) -> str:
    return text.replace('"', "'")


def caption(operator: PlannedOperator) -> str:
    """State and selectivity, short."""
    model = operator.model
    state = f"by {model.key.text}" if model.key is not None else model.state.text
    return f"{state} · {model.selectivity.text}"


def edge_label(plan: Plan, source: PlannedOperator, target: PlannedOperator) -> str:
    """What stands between two operators: a joint, two of them, or nothing."""
    if source.region == target.region:
        return ""
    if source.region is not None and target.region is not None:
        first = plan.regions[target.region].first.value
        return first if first == "shuffle" else f"merge, {first}"
    if source.region is not None:
        return plan.regions[source.region].last.value
    assert target.region is not None
    return plan.regions[target.region].first.value


def svg(plan: Plan) -> str:
    """The plan as an SVG drawing."""
    columns: dict[str, int] = {}
    for operator in plan.operators:
        columns[operator.name] = max((columns[s.name] + 1 for s in operator.node.inputs), default=0)
    taken: dict[int, int] = {}
    spots: dict[str, tuple[int, int]] = {}
    for operator in plan.operators:
        column = columns[operator.name]
        wanted = min((spots[s.name][1] for s in operator.node.inputs), default=0)
        row = max(taken.get(column, 0), wanted)
        taken[column] = row + 1
        spots[operator.name] = (column, row)
    width = 2 * _MARGIN + (max(columns.values(), default=0) + 1) * (_BOX_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + (max((row for _, row in spots.values()), default=0) + 1) * (_BOX_HEIGHT + _GAP_Y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        "<style>.region{fill:#e8f1fb;stroke:#4a86c8;stroke-dasharray:6 4}.box{fill:#fff;stroke:#333}"
        ".blocked{fill:#f4f4f4;stroke:#999}.edge{stroke:#333;fill:none}.small{font-size:10px;fill:#555}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for region in plan.regions:
        corners = [_corner(spots[name]) for name in region.operators]
        left, top = min(x for x, _ in corners) - 10, min(y for _, y in corners) - 18
        right, bottom = (
            max(x for x, _ in corners) + _BOX_WIDTH + 10,
            max(y for _, y in corners) + _BOX_HEIGHT + 8,
        )
        title = f"region {region.number + 1}" + (f" · {region.key_text}" if region.key_text else "")
        parts.append(
            f'<rect class="region" x="{left}" y="{top}" width="{right - left}" '
            f'height="{bottom - top}" rx="10"/>'
            f'<text class="small" x="{left + 8}" y="{top + 12}">{escape(title)}</text>'
        )
    for operator in plan.operators:
        x, y = _corner(spots[operator.name])
        for source in operator.node.inputs:
            from_x, from_y = _corner(spots[source.name])
            label = edge_label(plan, plan.operator(source.name), operator)
            start, end = (from_x + _BOX_WIDTH, from_y + _BOX_HEIGHT // 2), (x, y + _BOX_HEIGHT // 2)
            middle = (start[0] + end[0]) // 2
            parts.append(
                f'<path class="edge" marker-end="url(#tip)" d="M{start[0]} {start[1]}C{middle} {start[1]} '
                f'{middle} {end[1]} {end[0]} {end[1]}"/>'
            )
            if label:
                parts.append(
                    f'<text class="small" text-anchor="middle" x="{middle}" '
                    f'y="{(start[1] + end[1]) // 2 - 5}">'
                    f"{escape(label)}</text>"
                )
    for operator in plan.operators:
        x, y = _corner(spots[operator.name])
        kind = "box" if operator.region is not None else "blocked"
        tip = operator.blocked or operator.model.state.reason
        parts.append(
            f'<g><title>{escape(tip)}</title><rect class="{kind}" x="{x}" y="{y}" width="{_BOX_WIDTH}" '
            f'height="{_BOX_HEIGHT}" rx="5"/><text x="{x + 10}" y="{y + 22}">{escape(operator.name)}</text>'
            f'<text class="small" x="{x + 10}" y="{y + 40}">{escape(caption(operator))}</text></g>'
        )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _corner(spot: tuple[int, int]) -> tuple[int, int]:
    column, row = spot
    return _MARGIN + column * (_BOX_WIDTH + _GAP_X), _MARGIN + row * (_BOX_HEIGHT + _GAP_Y)
