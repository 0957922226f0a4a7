"""`aggregate` as a keyed operator: a class generated for the window and the aggregations.

The generated method unpacks the tuple once and keeps one open window per key, as plain state fields:

    (c0, c1, c2) = t
    fresh = not self.open
    …close the window if this tuple is beyond it…
    …begin a window if none is open…
    …add the tuple…
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.api.agg import Aggregation
from anabranch.api.windows import Count, Delta, Tumbling
from anabranch.compiler.graph import Keyed, StateField
from anabranch.errors import ProgramError, SchemaError
from anabranch.flow.schema import Schema


def aggregate_logic(
    schema: Schema, key: Sequence[str], window: Tumbling, aggregations: Mapping[str, Aggregation]
) -> tuple[Keyed, Schema]:
    """The keyed operator of an aggregation, and the schema of its results: the key, then the aggregates."""
    output = [schema.arrow.field(name) for name in key]
    for name, aggregation in aggregations.items():
        if not isinstance(aggregation, Aggregation):
            raise ProgramError(f"aggregate({name}={aggregation!r}): expected an aggregation such as agg.sum({name!r})")
        if name in key:
            raise ProgramError(f"aggregate({name}=…): {name!r} is a column of the key already; choose another name")
        if aggregation.attribute is not None and aggregation.attribute not in schema:
            raise SchemaError(
                f"aggregate({name}=agg.{aggregation}): no column {aggregation.attribute!r}; "
                f"columns: {', '.join(schema.names)}"
            )
        found = None if aggregation.attribute is None else schema.type_of(aggregation.attribute)
        output.append(pa.field(name, aggregation.output_type(found)))
    names: dict[str, Any] = {"SIZE": _size(schema, window)}
    source, fields = _source(schema, key, window, list(aggregations.values()))
    exec(compile(source, f"<aggregate by {', '.join(key)}>", "exec"), names)
    kind = type("Aggregate", (), {"process": names["process"], "source": source})
    return Keyed(kind(), "process", tuple(StateField(name, default) for name, default in fields)), Schema(
        pa.schema(output)
    )


def _size(schema: Schema, window: Tumbling) -> Any:
    policy = window.policy
    if isinstance(policy, Count):
        return policy.size
    if policy.attribute not in schema:
        raise SchemaError(f"{window}: no column {policy.attribute!r}; columns: {', '.join(schema.names)}")
    kind = schema.type_of(policy.attribute)
    number = not isinstance(policy.size, datetime.timedelta)
    if pa.types.is_timestamp(kind):
        return datetime.timedelta(seconds=policy.size) if number else policy.size
    if pa.types.is_date(kind):
        return datetime.timedelta(days=policy.size) if number else policy.size
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise SchemaError(f"{window}: expected a number, date or timestamp, found a column of {kind}")
    if not number:
        raise SchemaError(f"{window}: {policy.attribute!r} is {kind}, so the size must be a number")
    return policy.size


def _source(
    schema: Schema, key: Sequence[str], window: Tumbling, aggregations: Sequence[Aggregation]
) -> tuple[str, list[tuple[str, Any]]]:
    place = {name: f"c{at}" for at, name in enumerate(schema.names)}
    fields: list[tuple[str, Any]] = [("open", False)]
    begin, add, results = [], [], [place[name] for name in key]
    for at, aggregation in enumerate(aggregations):
        names = {"s": f"a{at}", "u": f"b{at}", "v": place.get(aggregation.attribute or "", "None")}
        begin += aggregation.begin.format(**names).splitlines()
        add += aggregation.add.format(**names).splitlines()
        results.append(aggregation.result.format(**names))
        fields += [(names[s], None) for s in ("s", "u") if f"{{{s}}}" in aggregation.begin]
    emit = "(" + ", ".join(results) + ",)"
    policy = window.policy
    lines = [f"({', '.join(place.values())},) = t"]
    if isinstance(policy, Delta):
        fields.append(("anchor", None))
        value = place[policy.attribute]
        lines += [
            f"if {value} is None:",
            f"    raise ValueError({f'the window attribute {policy.attribute!r} is null'!r})",
            "closed = None",
            f"if self.open and {value} - self.anchor > SIZE:",
            f"    closed = {emit}",
            "    self.open = False",
        ]
    lines += [
        "fresh = not self.open",
        "if fresh:",
        "    self.open = True",
        *(f"    {line}" for line in begin),
    ]
    if isinstance(policy, Delta):
        lines += [f"    self.anchor = {value}", *add, "return closed"]
    else:
        fields.append(("size", 0))
        lines += ["    self.size = 0", *add, "self.size += 1"]
        lines += ["if self.size == SIZE:", "    self.open = False", f"    return {emit}", "return None"]
    return "def process(self, t):\n" + "".join(f"    {line}\n" for line in lines), fields
