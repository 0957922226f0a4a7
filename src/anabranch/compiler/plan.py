"""A compiled program that can be explained: what `stream.plan()` gives, and what a query runs."""

from __future__ import annotations

import dataclasses

from anabranch.compiler.explaining.explain import explain
from anabranch.compiler.explaining.running import RunningQuery
from anabranch.compiler.layout.plan_data import PlanData


@dataclasses.dataclass(frozen=True)
class Plan(PlanData):
    """A compiled program."""

    def explain(self, form: str = "text", running: RunningQuery | None = None) -> str:
        """Explain the plan as "text", "json", "mermaid" or "svg"; of a query that runs also what it has decided."""
        return explain(self, form, running)

    def _repr_html_(self) -> str:
        """The drawing, for notebooks."""
        return self.explain("svg")
