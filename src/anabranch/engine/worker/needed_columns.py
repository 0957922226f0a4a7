"""Which columns of a source, and which fields within them, anybody reads: the others need not be read from its files,
or need not cross from Spark.

    source ─► filter(lambda t: t.bid is not None) ─► map(lambda t: (t.bid["auction"], t.bid["price"])) ─►
    needed: bid.auction, bid.price

Known where what takes the tuples reads single columns: functions without state (`compiler/rewriting/over_columns`), and
keyed operators behind a shuffle (`compiler/rewriting/keyed_reads`). So it is also known which columns of the tuples
that cross a shuffle need not be sent (`sent_on`).
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from anabranch.compiler.layout.stages import Edge, Layout, Step
from anabranch.compiler.rewriting.conditions import condition_of, reads_of
from anabranch.compiler.rewriting.keyed_reads import keyed_reads
from anabranch.compiler.rewriting.over_columns import Read
from anabranch.engine.worker.column_steps import column_plan
from anabranch.operators.joins import StaticEnrich
from anabranch.program.graph import Filter, Keyed, Map, Node, Watermark
from anabranch.program.schema import Schema


@dataclasses.dataclass(frozen=True)
class Needed:
    """What is read of a source's files.

    Attributes
    ----------
    names : tuple of str
        As Parquet names them: columns, and fields by their path.
    schema : pyarrow.Schema
        All columns, in order. A struct of which some fields are read has these only; what is not read at all keeps its
        type, and is null.
    read : frozenset of str
        The columns of which something is read.
    tested, late : tuple of str
        The names once more, none of a struct: those that conditions are asked of before anything else is read, and the
        others. Empty, if not all that takes the tuples begins with a condition.
    """

    names: tuple[str, ...]
    schema: pa.Schema
    read: frozenset[str]
    tested: tuple[str, ...] = ()
    late: tuple[str, ...] = ()

    def filled(self, given: pa.RecordBatch) -> list[pa.Array]:
        """All columns, if a batch begins with those of which something is read: the others are null."""
        places = iter(range(len(self.read)))
        return [
            given.column(next(places)).cast(field.type) if field.name in self.read else pa.nulls(len(given), field.type)
            for field in self.schema
        ]


def needed_of(layout: Layout, source: Node, further: bool = True, tests: bool = False) -> Needed:
    """What is needed of a source; unless `further`, all of what leaves its stage is. With `tests`, what of it first."""
    (step,) = (step for step in layout.steps if step.node.name == source.name and not step.inputs)
    reads = _needed(layout, step, further)
    found = everything(source.schema) if reads is None else _narrowed(source.schema, reads)
    tested = _tested(layout, step) if tests else None
    return found if not tested else _told_apart(found, tested)


def everything(schema: Schema) -> Needed:
    """All of a source."""
    return Needed(schema.names, schema.arrow, frozenset(schema.names))


def sent_on(layout: Layout, edge: Edge) -> pa.Schema:
    """The columns that travel on an edge to another stage."""
    schema = layout.steps[edge.source].node.schema
    reads = None if edge.target < 0 else _read_behind(layout, edge, schema)
    if reads is None or len(reads) == len(schema.names):
        return schema.arrow
    # Of tuples of which nothing is read it must still be known how many there are.
    return pa.schema([schema.arrow.field(at) for at in sorted(reads or {0})])


def made_for_others(layout: Layout, step: Step) -> frozenset[int]:
    """The columns of what a step makes that anybody reads, or that must not be null."""
    schema = step.node.schema
    reads = _needed(layout, step, further=True)
    if reads is None:
        return frozenset(range(len(schema.names)))
    return frozenset(
        {each.column for each in reads} | {at for at, each in enumerate(schema.arrow) if not each.nullable}
    )


def _read_behind(layout: Layout, edge: Edge, schema: Schema) -> set[int] | None:
    """The columns that whoever is at the other end of an edge reads; None: all."""
    node = layout.steps[edge.target].node
    if not edge.crosses or not node.inputs or not node.inputs[edge.place].schema.arrow.equals(schema.arrow):
        return None
    reads = keyed_reads(node, edge.place)
    return None if reads is None else {*reads, *map(schema.names.index, edge.key)}


def _needed(layout: Layout, step: Step, further: bool) -> set[Read] | None:
    """What is read of the tuples that a step gives; None: all."""
    found: set[Read] = set()
    for number in step.outputs:
        edge = layout.edges[number]
        if edge.target < 0 or (edge.crosses and not further):
            return None
        if edge.crosses:
            behind = _read_behind(layout, edge, step.node.schema)
            if behind is None:
                return None
            found |= {Read(at) for at in behind}
            continue
        reads = _read(layout, edge, step.node.schema, further)
        if reads is None:
            return None
        found |= reads
    return found


def _read(layout: Layout, edge: Edge, schema: Schema, further: bool) -> set[Read] | None:
    """What the step that an edge leads to, and those behind it, read of the tuples it is given."""
    step = layout.steps[edge.target]
    node = step.node
    if not node.inputs or not node.inputs[edge.place].schema.arrow.equals(schema.arrow):
        return None
    if isinstance(node.logic, Keyed):
        found = keyed_reads(node, edge.place)
        return None if found is None else {Read(at) for at in found}
    if isinstance(node.logic, Watermark):
        behind = _needed(layout, step, further)
        return None if behind is None else behind | {Read(schema.names.index(node.logic.attribute))}
    enrich = getattr(node.logic, "function", None)
    if isinstance(enrich, StaticEnrich):
        behind = _needed(layout, step, further)
        passed_on = None if behind is None else {each for each in behind if each.column < len(schema.names)}
        return None if passed_on is None else {*map(Read, enrich.places), *passed_on}
    if not isinstance(node.logic, (Map, Filter)):
        return None
    plan = column_plan(node) or column_plan(node, with_fields=False)
    if plan is None:
        return None
    # Which structs are null must show, also where nobody reads a field of them.
    structs = {dataclasses.replace(each, is_null=True) for each in plan.structs}
    behind = _needed(layout, step, further)
    if isinstance(node.logic, Filter):
        return None if behind is None else {*plan.reads, *structs, *behind}
    if behind is None:
        return {*plan.reads, *structs}
    # Of what it only passes on, what somebody reads, and what must not be null where it arrives. A field that is passed
    # on is taken of every tuple: where a struct is null that fails, whatever is read of the others.
    checked = {Read(at, is_null=True) for at in plan.copied if not node.schema.arrow.field(at).nullable}
    passed = [(plan.copied[each.column], each) for each in behind | checked if each.column in plan.copied]
    return {*plan.called_with, *structs, *(_within(first, each) for first, each in passed)}


def _tested(layout: Layout, step: Step) -> set[Read] | None:
    """What conditions, and watermarks before them, ask of what a step gives; None: somebody asks for more at once."""
    found: set[Read] = set()
    for number in step.outputs:
        edge = layout.edges[number]
        reads = None if edge.target < 0 or edge.crosses else _tested_by(layout, layout.steps[edge.target])
        if reads is None:
            return None
        found |= reads
    return found


def _tested_by(layout: Layout, step: Step) -> set[Read] | None:
    """What a step asks first of its tuples, and those behind it of what they are then."""
    node = step.node
    behind = _tested(layout, step)
    if isinstance(node.logic, Watermark):
        time = Read(node.schema.names.index(node.logic.attribute))
        return None if behind is None else behind | {time}
    if isinstance(node.logic, Filter):
        condition = condition_of(node.logic.function, node.inputs[0].schema)
        return None if isinstance(condition, str) else {*reads_of(condition), *(behind or ())}
    plan = column_plan(node) if isinstance(node.logic, Map) and behind is not None else None
    if plan is None or plan.parts or behind is None:
        return None
    return {_within(plan.copied[each.column], each) for each in behind}


def _told_apart(needed: Needed, tested: set[Read]) -> Needed:
    """What is needed, with what of it is tested."""
    names: list[str] = []
    for name in needed.names:
        names += _leaves(name, _type_of(needed.schema, name))
    first: set[str] = set()
    for read in sorted(tested, key=lambda each: each.is_null):
        whole = ".".join([needed.schema.field(read.column).name, *read.path])
        mine = [name for name in names if f"{name}.".startswith(f"{whole}.")]
        if not read.is_null:
            first.update(mine)
        elif not first & set(mine):  # whether a struct is null shows in any field
            first.add(min(mine, key=lambda name: not pa.types.is_primitive(_type_of(needed.schema, name))))
    late = tuple(name for name in names if name not in first)
    if not first or not late:
        return needed
    return dataclasses.replace(needed, tested=tuple(name for name in names if name in first), late=late)


def _type_of(schema: pa.Schema, name: str) -> pa.DataType:
    """The type of a column, or of a field by its path."""
    column, *path = name.split(".")
    kind = schema.field(column).type
    for inner in path:
        kind = kind.field(inner).type
    return kind


def _leaves(name: str, kind: pa.DataType) -> list[str]:
    """A column or field, or what a struct is made of."""
    if not pa.types.is_struct(kind):
        return [name]
    return [leaf for field in kind for leaf in _leaves(f"{name}.{field.name}", field.type)]


def _within(read: Read, further: Read) -> Read:
    """What is read of something that is read."""
    return Read(read.column, (*read.path, *further.path), further.is_null)


def _narrowed(schema: Schema, reads: set[Read]) -> Needed:
    names: list[str] = []
    fields: list[pa.Field] = []
    read: set[str] = set()
    for at, field in enumerate(schema.arrow):
        mine = [each for each in reads if each.column == at]
        paths = {each.path for each in mine if not each.is_null}
        kind = field.type
        if mine or not field.nullable:  # whether there is a null where there must be none is looked at, too
            read.add(field.name)
            if not mine:
                mine = [Read(at, is_null=True)] if pa.types.is_struct(kind) else [Read(at)]
                paths = {each.path for each in mine if not each.is_null}
            if pa.types.is_struct(kind) and () not in paths:
                for null in sorted((each.path for each in mine if each.is_null), key=len, reverse=True):
                    if not any(path[: len(null)] == null for path in paths):
                        paths.add((*null, *_first_leaf(kind, null)))  # whether a struct is null shows in any field
                names += [".".join([field.name, *path]) for path in sorted(paths)]
                kind = _only(kind, paths)
            else:
                names.append(field.name)
        fields.append(pa.field(field.name, kind, field.nullable))
    if not names:  # nothing but how many there are
        names, read = [schema.names[0]], {schema.names[0]}
    return Needed(tuple(names), pa.schema(fields), frozenset(read))


def _first_leaf(kind: pa.DataType, path: tuple[str, ...]) -> tuple[str, ...]:
    """The path, from there, of a field that is no struct itself."""
    for name in path:
        kind = kind.field(name).type
    if not pa.types.is_struct(kind):
        return ()
    field = kind.field(0)
    return (field.name, *_first_leaf(field.type, ()))


def _only(kind: pa.DataType, paths: set[tuple[str, ...]]) -> pa.DataType:
    """A struct with some of its fields, in its order."""
    fields = []
    for field in kind:
        inner = {path[1:] for path in paths if path[0] == field.name}
        if inner:
            whole = () in inner or not pa.types.is_struct(field.type)
            fields.append(pa.field(field.name, field.type if whole else _only(field.type, inner)))
    return pa.struct(fields)
