"""The layout as a picture: Mermaid for documents, SVG for notebooks.

Boxes are steps, frames are stages, arrows between frames are shuffles unless they say otherwise. A program that cannot
run has boxes and arrows only: its operators as they were written.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from xml.sax.saxutils import escape

from anabranch.compiler.explaining.layout_data import layout_data
from anabranch.compiler.explaining.running import RunningQuery
from anabranch.compiler.layout.chains import PlannedOperator
from anabranch.compiler.layout.plan_data import PlanData
from anabranch.compiler.layout.stages import Layout
from anabranch.program.model import State

_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 170, 54, 90, 30, 30


@dataclasses.dataclass(frozen=True)
class _Box:
    """A step; or, with no operator, where an output leaves."""

    frame: int | None
    title: str
    caption: str
    operator: PlannedOperator | None = None


@dataclasses.dataclass(frozen=True)
class _Picture:
    frames: dict[int, str]
    boxes: list[_Box]
    arrows: list[tuple[int, int, str]]


def _picture(plan: PlanData, running: RunningQuery | None) -> _Picture:
    layout = running.layout if running is not None else plan.laid_out
    data = layout_data(plan, running)
    if layout is None or data is None:
        boxes = [_Box(None, operator.name, caption(operator), operator) for operator in plan.operators]
        numbers = {operator.name: number for number, operator in enumerate(plan.operators)}
        arrows = [(numbers[s.name], numbers[o.name], "") for o in plan.operators for s in o.node.inputs]
        return _Picture({}, boxes, arrows)
    return _laid_out(plan, layout, data)


def _laid_out(plan: PlanData, layout: Layout, data: dict[str, Any]) -> _Picture:
    frames = {stage["number"]: _frame(stage) for stage in data["stages"]}
    boxes = []
    for step in layout.steps:
        operator = plan.operator(step.node.name)
        boxes.append(_Box(step.stage, operator.name, caption(operator), operator))
    arrows = []
    for edge in layout.edges:
        if edge.target >= 0:
            key = f" by {', '.join(edge.key)}" if edge.key else ""
            trail = f", trail {edge.width}" if edge.ordered else ""
            local = layout.stages[layout.steps[edge.target].stage].local
            way = f"no shuffle, partitioned{key}" if local else f"shuffle{key}{trail}"
            arrows.append((edge.source, edge.target, way if edge.crosses else ""))
    for found, shown in zip(layout.exits, [*data["outputs"], *data["loops"]], strict=True):
        if found.loop:
            back = next(step.number for step in layout.steps if step.node.name == found.loop)
            arrows += [(layout.edges[each].source, back, "next epoch") for each in found.edges]
            continue
        boxes.append(_Box(None, f"output {found.node.name}", f"merged {shown['merged']}"))
        arrows += [(layout.edges[each].source, len(boxes) - 1, "") for each in found.edges]
    return _Picture(frames, boxes, arrows)


def _frame(stage: dict[str, Any]) -> str:
    if stage["region"] is None:
        return f"stage {stage['number']} · depth {stage['depth']} · where {stage['operators'][0]} is read"
    keys = sorted({", ".join(edge["key"]) for edge in stage["inputs"] if edge["key"]})
    kind = f"by {' | '.join(keys)}" if keys else {"single": "one channel"}.get(stage["kind"], stage["kind"])
    channels = "" if stage["channels"] is None or stage["kind"] == "single" else f" · {stage['channels']} channels"
    return f"stage {stage['number']} · depth {stage['depth']} · region {stage['region']} · {kind}{channels}"


def caption(operator: PlannedOperator) -> str:
    """State and selectivity, short."""
    model = operator.model
    state = f"by {model.key.text}" if model.key is not None else model.state.text
    return f"{state} · {model.selectivity.text}"


# -- Mermaid ----------------------------------------------------------------------------------------------


def mermaid(plan: PlanData, running: RunningQuery | None = None) -> str:
    """The layout as a Mermaid flowchart."""
    picture = _picture(plan, running)
    lines = ["flowchart LR"]
    for frame, title in picture.frames.items():
        lines.append(f'  subgraph s{frame}["{_quoted(title)}"]')
        lines += [f"    {_shape(at, box)}" for at, box in enumerate(picture.boxes) if box.frame == frame]
        lines.append("  end")
    lines += [f"  {_shape(at, box)}" for at, box in enumerate(picture.boxes) if box.frame is None]
    for source, target, label in picture.arrows:
        lines.append(f"  n{source} {f'-->|{_quoted(label)}|' if label else '-->'} n{target}")
    single = [f"n{at}" for at, box in enumerate(picture.boxes) if box.operator is not None and box.operator.blocked]
    if single:
        lines.append("  classDef sequential stroke-dasharray: 4 3")
        lines.append(f"  class {','.join(single)} sequential")
    return "\n".join(lines) + "\n"


def _shape(at: int, box: _Box) -> str:
    text = _quoted(f"{box.title}<br/>{box.caption}")
    if box.operator is None:
        return f'n{at}(["{text}"])'
    left, right = ("[(", ")]") if box.operator.model.state.value is State.PARTITIONED else ("[", "]")
    return f'n{at}{left}"{text}"{right}'


def _quoted(text: str) -> str:
    return text.replace('"', "'")


# -- SVG --------------------------------------------------------------------------------------------------


def svg(plan: PlanData, running: RunningQuery | None = None) -> str:
    """The layout as an SVG drawing: a band for each stage, so that frames never overlap."""
    picture = _picture(plan, running)
    spots = _spots(picture)
    columns = max((column for column, _ in spots), default=0) + 1
    rows = max((row for _, row in spots), default=0) + 1
    width = 2 * _MARGIN + columns * (_BOX_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + rows * (_BOX_HEIGHT + _GAP_Y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        "<style>.stage{fill:#e8f1fb;stroke:#4a86c8;stroke-dasharray:6 4}.box{fill:#fff;stroke:#333}"
        ".blocked{fill:#f4f4f4;stroke:#999}.edge{stroke:#333;fill:none}.small{font-size:10px;fill:#555}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for frame, title in picture.frames.items():
        parts += _drawn_frame([_corner(spots[at]) for at, box in enumerate(picture.boxes) if box.frame == frame], title)
    for source, target, label in picture.arrows:
        parts += _drawn_arrow(_corner(spots[source]), _corner(spots[target]), label)
    for at, box in enumerate(picture.boxes):
        parts.append(_drawn_box(_corner(spots[at]), box))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _spots(picture: _Picture) -> list[tuple[int, int]]:
    """The column and the row of each box: columns by the longest way from a source, rows by stage."""
    columns = [0] * len(picture.boxes)
    for source, target, _ in sorted(picture.arrows, key=lambda arrow: arrow[1]):
        if source < target:  # all but what is fed back
            columns[target] = max(columns[target], columns[source] + 1)
    spots: dict[int, tuple[int, int]] = {}
    first = 0
    for frame in [*picture.frames, None]:
        taken: dict[int, int] = {}
        for at, box in enumerate(picture.boxes):
            if box.frame == frame:
                row = taken.get(columns[at], 0)
                taken[columns[at]] = row + 1
                spots[at] = (columns[at], first + row)
        first += max(taken.values(), default=0)
    return [spots[at] for at in range(len(picture.boxes))]


def _drawn_frame(corners: list[tuple[int, int]], title: str) -> list[str]:
    left, top = min(x for x, _ in corners) - 10, min(y for _, y in corners) - 18
    right, bottom = max(x for x, _ in corners) + _BOX_WIDTH + 10, max(y for _, y in corners) + _BOX_HEIGHT + 6
    return [
        f'<rect class="stage" x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" rx="10"/>',
        f'<text class="small" x="{left + 8}" y="{top + 12}">{escape(title)}</text>',
    ]


def _drawn_arrow(source: tuple[int, int], target: tuple[int, int], label: str) -> list[str]:
    start, end = (source[0] + _BOX_WIDTH, source[1] + _BOX_HEIGHT // 2), (target[0], target[1] + _BOX_HEIGHT // 2)
    middle = (start[0] + end[0]) // 2
    drawn = [
        f'<path class="edge" marker-end="url(#tip)" d="M{start[0]} {start[1]}C{middle} {start[1]} '
        f'{middle} {end[1]} {end[0]} {end[1]}"/>'
    ]
    if label:
        at = f'x="{middle}" y="{(start[1] + end[1]) // 2 - 5}"'
        drawn.append(f'<text class="small" text-anchor="middle" {at}>{escape(label)}</text>')
    return drawn


def _drawn_box(corner: tuple[int, int], box: _Box) -> str:
    x, y = corner
    operator = box.operator
    tip = box.caption if operator is None else operator.blocked or operator.model.state.reason
    kind = "blocked" if operator is None or operator.blocked else "box"
    return (
        f'<g><title>{escape(tip)}</title><rect class="{kind}" x="{x}" y="{y}" width="{_BOX_WIDTH}" '
        f'height="{_BOX_HEIGHT}" rx="5"/><text x="{x + 10}" y="{y + 22}">{escape(box.title)}</text>'
        f'<text class="small" x="{x + 10}" y="{y + 40}">{escape(box.caption)}</text></g>'
    )


def _corner(spot: tuple[int, int]) -> tuple[int, int]:
    column, row = spot
    return _MARGIN + column * (_BOX_WIDTH + _GAP_X), _MARGIN + row * (_BOX_HEIGHT + _GAP_Y)
