"""Aggregation in two steps, so that a hot key can be worked on by several channels.

    tuples ─ salt ─► (key, part) ─ partial windows ─► (key, partial results) ─ combined windows ─► results

`salt` gives every tuple a part: 0, except for keys that are split. Partial windows have the key (key, part), so parts
of one key are on several channels. They close at a moment that all channels know — a punctuation, or the start of
every epoch — and hand what they have to the combined windows of the key, which close as the window of the user does.

**Why that is exact.** Only aggregations take part whose partial results combine to the very same value: counts, sums
and means of integers, minima and maxima of anything but floats (where NaN and -0.0 depend on the order), the first
value. **Why the order is the same.** Results come in the order in which windows of keys began. Partial windows hand
over in the order in which *they* began, so the first part of a key to arrive is the one with the key's first tuple,
and combined windows begin in the order of the keys' first tuples. Windows of time are handed over at each epoch's
start with the time of the epoch before, so a combined window begins at the time of its first tuple.

Floats are added in another order than by one thread, which changes their last bits: only if the user says
``reassociate=True``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.operators.agg import Aggregation, PartialResults
from anabranch.operators.epoch_context import parts_of as parts_of_keys
from anabranch.operators.library_operator import LibraryOperator, configured
from anabranch.operators.windows import Punctuated, Time, Tumbling
from anabranch.program.graph import Map, Parts
from anabranch.program.hashing import hash_columns
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.operators.aggregation import CodeDraft


class Salt(LibraryOperator):
    """Adds the part of a tuple's key that the tuple belongs to; no state."""

    places: tuple[int, ...]
    types: tuple[pa.DataType, ...]

    def __call__(self, t: Any) -> Any:
        columns = [
            pa.array([tuple.__getitem__(t, place)], kind) for place, kind in zip(self.places, self.types, strict=True)
        ]
        return (*t, int(self.added_column(columns)[0]))

    def added_column(self, columns: Sequence[pa.Array]) -> Any:
        """The part of every tuple of a batch, from the columns of the key."""
        return parts_of_keys(self.operator_name).parts(hash_columns(columns))


def parts_of(draft: CodeDraft, name: str, reassociate: bool) -> Parts | None:
    """The two steps of an aggregation; None if it has to be one."""
    from anabranch.operators.aggregation import CodeDraft, write_tumbling

    policy = draft.window.policy
    if not draft.key or not isinstance(draft.window, Tumbling) or not isinstance(policy, (Time, Punctuated)):
        return None
    combines = [draft.partial_results(aggregation, reassociate) for aggregation in draft.aggregations]
    chosen = [each for each in combines if each is not None]
    if len(chosen) < len(combines):
        return None
    fields = [draft.schema.arrow.field(key) for key in draft.key]
    results: list[str] = []
    codes: list[str] = []
    for combine in chosen:
        combining = combine.code
        for number, (result, kind) in enumerate(combine.columns):
            combining = combining.replace(f"{{p{number}}}", f"c{len(fields)}")
            fields.append(pa.field(_free(f"_{len(fields)}", draft.key), kind))
            results.append(result)
        codes.append(combining)
    anchor = f"c{len(fields)}"
    if isinstance(policy, Time):
        fields.append(pa.field(_free("_began", draft.key), pa.int64()))
    # Regions are routed by the columns of their key in alphabetical order. The part comes last, so that the hash of a
    # part can be computed from that of its key (`program.hashing.with_part`).
    part = _free(f"{max(draft.key)}~part", draft.schema.names)
    salted = Schema(pa.schema([*draft.schema.arrow, pa.field(part, pa.int64())]))
    handed_over = Schema(pa.schema(fields))

    first = CodeDraft(
        salted, draft.key, draft.window, _handing_over(draft.aggregations, chosen, policy), draft.null_key, is_step=True
    )
    if isinstance(policy, Time):
        first.window = Tumbling(dataclasses.replace(policy, size_ms=0))  # at every start of an epoch
    # Not said to be copied: the compiler would route both steps by the key alone, and all parts would meet again.
    first.forwards, first.configuration = (), {"salted": name}
    write_tumbling(first)
    combined = [
        dataclasses.replace(each, attribute=None, add=code)
        for each, code in zip(draft.aggregations, codes, strict=True)
    ]
    second = CodeDraft(handed_over, draft.key, draft.window, combined, "seen", moment=anchor, is_step=True)
    write_tumbling(second)
    keys = sorted(draft.key)
    places = tuple(draft.schema.names.index(key) for key in keys)
    salt = configured(
        Salt, name, selectivity=Selectivity.ONE, places=places, types=tuple(draft.schema.type_of(k) for k in keys)
    )
    return Parts(Map(salt), salted, first.build(name), handed_over, second.build(name))


def _handing_over(
    aggregations: Sequence[Aggregation], combines: Sequence[PartialResults], policy: Time | Punctuated
) -> list[Aggregation]:
    """The aggregations of partial windows: what they give is what combined windows need."""
    first = [
        dataclasses.replace(each, result=", ".join(code for code, _ in combine.columns))
        for each, combine in zip(aggregations, combines, strict=True)
    ]
    if isinstance(policy, Time):
        first.append(Aggregation("began", None, "", "", "self.anchor", lambda _: pa.int64()))
    return first


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name
