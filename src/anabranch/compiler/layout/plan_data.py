"""A compiled program, frozen: what is believed of each operator, and the layout that runs.

Only data: what users hold, and can have explained, is the `Plan` of compiler/plan.py.
"""

from __future__ import annotations

import dataclasses
import functools

from anabranch.compiler.layout.chains import Border, Chain, PlannedOperator
from anabranch.compiler.layout.stages import Layout
from anabranch.errors import ProgramError


@dataclasses.dataclass(frozen=True)
class PlanData:
    """A compiled program.

    Attributes
    ----------
    operators : tuple of PlannedOperator
        In an order in which every operator comes after those it reads.
    chains : tuple of Chain
        Which of them may run in parallel together.
    borders : tuple of Border
        Why each chain ends where it ends.
    outputs : tuple of str
        The operators whose streams leave the program.
    laid_out : Layout or None
        What runs; None if the program cannot run.
    refused : str
        … and why it cannot.
    """

    operators: tuple[PlannedOperator, ...]
    chains: tuple[Chain, ...]
    borders: tuple[Border, ...]
    outputs: tuple[str, ...]
    laid_out: Layout | None = None
    refused: str = ""

    @property
    def layout(self) -> Layout:
        """What runs.

        Raises
        ------
        ProgramError
            If the program cannot run.
        """
        if self.laid_out is None:
            raise ProgramError(self.refused)
        return self.laid_out

    def operator(self, name: str) -> PlannedOperator:
        found = self._by_name.get(name)
        if found is None:
            raise KeyError(f"no operator {name!r}; operators: {', '.join(self._by_name)}")
        return found

    @functools.cached_property
    def _by_name(self) -> dict[str, PlannedOperator]:
        return {each.name: each for each in self.operators}
