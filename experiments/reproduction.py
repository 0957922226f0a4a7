"""What an experiment gives back: statements with verdicts, tables, and a drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.statements import Statement, Verdict, overall

Cell = str | int | float


@dataclass(frozen=True)
class Table:
    """Measured numbers, as they are printed."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(title: str, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
        """Round the numbers to what is worth printing."""
        return Table(title, tuple(head), tuple(tuple(_printed(cell) for cell in row) for row in rows))

    def __str__(self) -> str:
        widths = [max(len(line[i]) for line in (self.head, *self.rows)) for i in range(len(self.head))]
        lines = [
            "  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in (self.head, *self.rows)
        ]
        return "\n".join([self.title, *lines])


@dataclass(frozen=True)
class Line:
    """One series of a panel: points, or with `xs` as names, bars."""

    xs: Sequence[float]
    ys: Sequence[float]
    dashed: bool = False
    stepped: bool = False
    right: bool = False
    """On the right-hand axis."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Line]
    x_log: bool = False
    y_log: bool = False
    level: float | None = None
    """A grey horizontal line: the ideal."""
    categories: Sequence[str] = ()
    """Names of the groups, if the panel shows bars; every line then has one value per group."""
    y_right: str = ""


@dataclass(frozen=True)
class Reproduction:
    """A figure or table of a paper, measured on the system's code."""

    title: str
    """What the paper's figure shows."""
    how: str
    """What was run here to get it: code, size, seeds."""
    statements: tuple[Statement, ...]
    tables: tuple[Table, ...] = ()
    panels: tuple[Panel, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """The verdict over all statements."""
        return overall(self.statements)


Figures = Mapping[str, Callable[[bool], Reproduction]]
"""Experiments by name: functions of whether a coarse grid will do."""


def _printed(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if cell == 0 or 0.01 <= abs(cell) < 1000:
        return f"{cell:.3g}" if abs(cell) < 100 else f"{cell:.0f}"
    return f"{cell:.2e}" if abs(cell) < 0.01 else f"{cell:,.0f}"
