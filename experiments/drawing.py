"""Panels to small SVG files: text stays text, the same name has the same colour in all figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

from experiments.reproduction import Panel

COLOURS = {
    "uniform": "#7f7f7f",
    "consistent": "#8c564b",
    "scan": "#2ca02c",
    "redist": "#1f77b4",
    "readj": "#9467bd",
    "readj_tail": "#17becf",
    "ours": "#d62728",
    "elastic": "#d62728",
    "available": "#7f7f7f",
    "handled": "#1f77b4",
    "linear": "#bbbbbb",
}
OTHERS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f")
MARKERS = "osv^D*PXh"
POINTS_WITH_MARKERS = 20
STYLE = {
    "svg.fonttype": "none",  # letters as text, not as outlines: a tenth of the size
    "svg.hashsalt": "anabranch",  # the same drawing gives the same bytes
    "font.size": 8,
    "axes.spines.top": False,
    "path.simplify_threshold": 0.5,
}


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Draw panels side by side, three to a row."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(STYLE):
        figure, axes = pyplot.subplots(rows, columns, figsize=(3.6 * columns, 2.8 * rows), squeeze=False)
        for axis, panel in zip(axes.flat, panels, strict=False):
            _bars(axis, panel) if panel.categories else _lines(axis, panel)
            axis.set_title(panel.title)
            axis.set_ylabel(panel.y)
            axis.set_xlabel(panel.x)
            if panel.y_log:
                axis.set_yscale("log")
            if panel.level is not None:
                axis.axhline(panel.level, color="#bbbbbb", linewidth=0.8, zorder=0)
        for axis in list(axes.flat)[len(panels) :]:
            axis.remove()
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _lines(axis: Any, panel: Panel) -> None:
    right = axis.twinx() if any(line.right for line in panel.lines.values()) else None
    handles = []
    for i, (name, line) in enumerate(panel.lines.items()):
        (handle,) = (right if line.right else axis).plot(
            line.xs,
            line.ys,
            label=name,
            color=COLOURS.get(name, OTHERS[i % len(OTHERS)]),
            linestyle="--" if line.dashed else "-",
            drawstyle="steps-post" if line.stepped else "default",
            marker=MARKERS[i % len(MARKERS)] if len(line.xs) <= POINTS_WITH_MARKERS else None,
            markersize=3,
            linewidth=1,
        )
        handles.append(handle)
    if right is not None:
        right.set_ylabel(panel.y_right)
    if panel.x_log:
        axis.set_xscale("log")
    axis.legend(handles=handles, fontsize=6, frameon=False)


def _bars(axis: Any, panel: Panel) -> None:
    width = 0.8 / len(panel.lines)
    for i, (name, line) in enumerate(panel.lines.items()):
        places = [group + (i - (len(panel.lines) - 1) / 2) * width for group in range(len(panel.categories))]
        axis.bar(places, line.ys, width, label=name, color=COLOURS.get(name, OTHERS[i % len(OTHERS)]))
    axis.set_xticks(range(len(panel.categories)), panel.categories)
    axis.legend(fontsize=6, frameon=False)
