"""Selectivity: how many tuples an operator emits for one, over all paths of its code."""

from __future__ import annotations

import dataclasses

from anabranch.compiler.models.findings import Inference
from anabranch.compiler.reading.emitting import count_elements
from anabranch.compiler.reading.facts import Emission
from anabranch.compiler.reading.kinds import is_record
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.values import Callback, Iterator, NoneType, Value
from anabranch.program.model import Selectivity
from anabranch.program.schema import Row


def find_selectivity(found: Inference, reading: Reading, mode: str) -> None:
    """Count what the operator emits, and note where."""
    if mode in ("map", "filter"):
        found.selectivity = Selectivity.ONE if mode == "map" else Selectivity.AT_MOST_ONE
        found.selectivity_reason = f"a {mode} emits {'one tuple' if mode == 'map' else 'the tuple or nothing'}"
        found.emissions = list(reading.returns.get(id(reading.tree), []))
        return
    least, most, emissions, how = _counted(reading, mode)
    callback = reading.facts.emissions
    found.emissions = [*emissions, *callback]
    if callback:
        least, most = min(2, least + reading.flow.least), min(2, most + reading.flow.most)
        how = f"calls emit {_times(least, most)}"
        if reading.emits_from_generator:
            least, most = 0, 2
    places = [each.location for each in found.emissions]
    found.selectivity_location = places[0] if places else None
    if (least, most) == (1, 1):
        found.selectivity = Selectivity.ONE
    elif most <= 1:
        found.selectivity = Selectivity.AT_MOST_ONE
    found.selectivity_reason = how
    found.facts.emitted = (least, most)


def _times(least: int, most: int) -> str:
    if (least, most) == (1, 1):
        return "once on every path"
    if most <= 1:
        return "at most once on every path"
    return "any number of times"


def _counted(reading: Reading, mode: str) -> tuple[int, int, list[Emission], str]:
    value = reading.result
    if value.types is not None and Iterator in value.types:
        least, most, yielded = count_elements(reading, value, reading.tree)[0]
        return least, most, yielded, f"yields {_times(least, most)}"
    returned = reading.returns.get(id(reading.tree)) or [Emission(value, reading.place(reading.tree))]
    least, most = 2, 0
    emissions: list[Emission] = []
    for each in returned:
        low, high, inner = _count_returned(reading, each, mode)
        least, most = min(least, low), max(most, high)
        emissions.extend(inner)
    if reading.takes_emit:
        least, most, emissions = 0, 0, []
    return least, most, emissions, f"returns {_times(least, most).replace('once', 'one tuple')}"


def _count_returned(reading: Reading, returned: Emission, mode: str) -> tuple[int, int, list[Emission]]:
    """How many tuples a returned value stands for."""
    value = returned.value
    if value.is_nothing:
        return 2, 0, []
    if value.types == frozenset({NoneType}):
        return 0, 0, []
    if value.types is not None and mode == "process":
        present = value.types - {NoneType}
        absent = NoneType in value.types
        records = present == {Row} or present == {dict} or all(_is_record(reading, kind) for kind in present)
        parts = reading.heap.parts(value)
        flat = present == {tuple} and parts is not None and bool(parts) and all(p.is_scalar for p in parts.values())
        if records or flat:
            return (0 if absent else 1), 1, [returned]
    if value.types == frozenset({list}):
        counts = []
        for each in value.objects:
            one = Value(types=value.types, objects=frozenset({each}))
            counts.extend(count_elements(reading, one, reading.tree))
        if counts:
            emissions = [dataclasses.replace(e, location=returned.location) for _, _, inner in counts for e in inner]
            return min(low for low, _, _ in counts), max(high for _, high, _ in counts), emissions
    return 0, 2, [dataclasses.replace(returned, many=True)]


def _is_record(reading: Reading, kind: type) -> bool:
    return (
        isinstance(kind, type)
        and kind not in (Callback, Iterator)
        and kind is not Row
        and (is_record(kind) if hasattr(kind, "__mro__") and kind.__module__ != "builtins" else False)
    )
