"""What reading an operator led to, as the analysis uses it: state, key, selectivity, forwarding."""

from __future__ import annotations

import dataclasses
from typing import Any

from anabranch.compiler.reading.facts import Emission, Facts, Kind
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.values import Text
from anabranch.program.graph import Location
from anabranch.program.model import Key, Selectivity


@dataclasses.dataclass
class Inference:
    """What reading an operator found.

    Attributes
    ----------
    facts : Facts
        Everything seen; `blocks` are those that make it sequential.
    key : Key or None
        The partitioning key that was found (case 2 and 3).
    dicts : dict of int to str
        The dicts that are state: identity to field name.
    selectivity : Selectivity
    forwarding : dict of str to str
        Columns of the output that are copies of columns of the input.
    """

    facts: Facts
    blocks: list[Any]
    key: Key | None = None
    key_location: Location | None = None
    dicts: dict[int, str] = dataclasses.field(default_factory=dict)
    #: Index expressions of each dict that is finer than the key: it keeps several entries per key.
    finer: set[int] = dataclasses.field(default_factory=set)
    key_text: Text | None = None
    selectivity: Selectivity = Selectivity.ANY
    selectivity_reason: str = "nothing is known about it"
    selectivity_location: Location | None = None
    forwarding: dict[str, str] = dataclasses.field(default_factory=dict)
    forwarding_reason: str = "no column is proven to be copied"
    #: Columns that are seen not to be copies: what is emitted instead, and where.
    replaced: dict[str, tuple[str, Location]] = dataclasses.field(default_factory=dict)
    emissions: list[Emission] = dataclasses.field(default_factory=list)
    reading: Reading | None = None

    @property
    def writes(self) -> list[Any]:
        return self.facts.of(Kind.WRITE)
