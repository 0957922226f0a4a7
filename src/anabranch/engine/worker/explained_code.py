"""What tasks really run for each operator, for people: the generated code, what is read of sources, what is sent on.

    explain(extended=True) ─► for each stage: columns read, for each operator its code over columns or why there is none

All of it is asked of what the tasks themselves use: `batches` and what makes the steps there, `timed_calls`,
`needed_columns`. Code is shown as Python
has it before it is compiled: columns are `c0`, `c1`, …, appends to output columns `o0`, `o1`, ….
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from anabranch.compiler.layout.stages import Layout, Stage, Step
from anabranch.compiler.rewriting.column_arguments import ColumnArguments, with_column_arguments
from anabranch.compiler.rewriting.conditions import condition_of, reads_of
from anabranch.compiler.rewriting.inline import Inlined, inlined
from anabranch.compiler.rewriting.over_columns import Read
from anabranch.compiler.rewriting.slot_folds import fold_of
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import Keeper
from anabranch.engine.worker.clock_columns import clock_columns
from anabranch.engine.worker.column_steps import ColumnPlan, column_plan
from anabranch.engine.worker.enrich_columns import enrich_step
from anabranch.engine.worker.guarded_steps import as_written
from anabranch.engine.worker.latest_columns import latest_step
from anabranch.engine.worker.needed_columns import needed_of, sent_on
from anabranch.engine.worker.running_columns import running_step
from anabranch.engine.worker.seen_columns import seen_step
from anabranch.engine.worker.slot_columns import slot_call, slot_code
from anabranch.engine.worker.timed_calls import AT_ONCE, column_arguments
from anabranch.engine.worker.top_columns import top_step
from anabranch.operators.batch_functions import BatchFunction
from anabranch.operators.combining import Salt
from anabranch.operators.guarding import GuardedFunction, OnlyTuples
from anabranch.operators.joins import StaticEnrich
from anabranch.program.elastic import settings_of
from anabranch.program.graph import Filter, FlatMap, Keyed, Map, Node, Source
from anabranch.program.options import OVER_COLUMNS
from anabranch.program.schema import Schema


@dataclasses.dataclass(frozen=True)
class OperatorCode:
    """How an operator runs in a stage."""

    operator: str
    stage: int
    how: str
    """In a sentence."""
    code: tuple[str, ...] = ()
    """The generated functions, if there are any."""


@dataclasses.dataclass(frozen=True)
class StageColumns:
    """Which columns a stage gets: of its source, or of what another stage sends it."""

    stage: int
    origin: str
    read: tuple[str, ...]
    left_out: tuple[str, ...]
    first: tuple[str, ...] = ()
    """What conditions are asked of. The others are read where they leave a tuple, if tasks read the source's files."""


@dataclasses.dataclass(frozen=True)
class ExplainedCode:
    """What the tasks of a program run."""

    operators: tuple[OperatorCode, ...]
    columns: tuple[StageColumns, ...]

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return {"code": [vars(each) for each in self.operators], "columns": [vars(each) for each in self.columns]}

    def to_text(self) -> str:
        """As lines, stage by stage."""
        lines: list[str] = []
        for stage in sorted({each.stage for each in self.operators}):
            lines.append(f"code of stage {stage}")
            for columns in (each for each in self.columns if each.stage == stage):
                left_out = f"; left out, because nobody reads it: {', '.join(columns.left_out)}"
                lines.append(f"  {columns.origin}: {', '.join(columns.read)}{left_out if columns.left_out else ''}")
                if columns.first:
                    lines.append(f"  of files, first: {', '.join(columns.first)}; the others where a tuple is left")
            for operator in (each for each in self.operators if each.stage == stage):
                lines.append(f"  {operator.operator}  {operator.how}")
                lines += [textwrap.indent(code, "    | ") for code in operator.code]
            lines.append("")
        return "\n".join(lines).rstrip() + "\n"


def explained_code(layout: Layout, columns: Collection[str] = OVER_COLUMNS) -> ExplainedCode:
    """What the tasks of a program run; `columns` is the option."""
    operators = [
        OperatorCode(layout.steps[at].node.name, stage.number, *_code(layout.steps[at], columns))
        for stage in layout.stages
        for at in stage.steps
    ]
    return ExplainedCode(
        tuple(operators), tuple(each for stage in layout.stages for each in _columns(layout, stage, columns))
    )


# -- columns ----------------------------------------------------------------------------------------------------


def _columns(layout: Layout, stage: Stage, columns: Collection[str]) -> Iterator[StageColumns]:
    entry = layout.steps[stage.steps[0]].node
    if isinstance(entry.logic, Source):
        needed = needed_of(layout, entry, "needed" in columns, "filters" in columns)
        left_out = [name for name in _leaves(entry.schema) if not _is_among(name, needed.names)]
        yield StageColumns(stage.number, "read of its rows", needed.names, tuple(left_out), needed.tested)
    for edge in layout.inputs_of(stage):
        source = layout.steps[edge.source].node
        sent = sent_on(layout, edge).names if "needed" in columns and edge.crosses else list(source.schema.names)
        left_out = [name for name in source.schema.names if name not in sent]
        yield StageColumns(stage.number, f"sent by {source.name}", tuple(sent), tuple(left_out))


def _leaves(schema: Schema) -> list[str]:
    """Columns, and the fields of those that are structs."""
    found: list[str] = []
    for field in schema.arrow:
        names = [inner.name for inner in field.type] if str(field.type).startswith("struct<") else []
        found += [f"{field.name}.{name}" for name in names] or [field.name]
    return found


def _is_among(name: str, read: Sequence[str]) -> bool:
    """Whether a column, or something of it, or what it is a field of, is read."""
    return any(name == each or each.startswith(f"{name}.") or name.startswith(f"{each}.") for each in read)


# -- code -------------------------------------------------------------------------------------------------------

_ONE_BY_ONE = "called as it is, tuple by tuple"
_KINDS_AT_ONCE = (
    ("top", top_step),
    ("top", seen_step),
    ("running", running_step),
    ("running", latest_step),
)
_AT_ONCE = "of the library: all keys of a batch at once, where keys and values allow it"


def _as_it_is(batch: Batch, node: Node) -> Batch:
    """What a step over columns is asked with: if it gives this back, it is none."""
    raise AssertionError("nothing is run to be explained")


def _code(step: Step, columns: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """How an operator runs, and its generated functions."""
    logic = step.node.logic
    if isinstance(logic, Source):
        return "is read, nothing is called", ()
    if settings_of(logic) is not None:
        return "elastic: called as it is, several calls at once", ()
    if isinstance(logic, (Map, Filter, FlatMap)):
        return _stateless(step.node, logic, columns)
    if isinstance(logic, Keyed):
        return _keyed(step, logic, columns)
    return "runs without a call of user code over columns", ()


def _stateless(node: Node, logic: Map | Filter | FlatMap, columns: Collection[str]) -> tuple[str, tuple[str, ...]]:
    function = logic.function
    if isinstance(function, GuardedFunction):
        how, code = _stateless(*_without_policy(node), columns)
        return f"{how}; again and tuple by tuple, where a call of a batch failed", code
    if isinstance(function, BatchFunction):
        return "called with whole batches", ()
    if isinstance(function, Salt):
        return "of the library: makes a column of whole columns", ()
    if isinstance(function, OnlyTuples):
        return "of the library: leaves out what calls that failed became", ()
    if isinstance(function, StaticEnrich) and "enrich" in columns and enrich_step(node, _as_it_is) is not _as_it_is:
        return "of the library: whole batches are looked up, where no key of them is null", ()
    if isinstance(logic, FlatMap):
        return _with_arguments(function, node, columns, is_inlined=True)
    plan = column_plan(node) or column_plan(node, with_fields=False)
    how, code = (
        (f"{_ONE_BY_ONE}: it does not only read single columns", ()) if plan is None else _plan(plan, node, columns)
    )
    if isinstance(logic, Filter) and "filters" in columns:
        schema = node.inputs[0].schema
        condition = condition_of(logic.function, schema)
        if isinstance(condition, str):
            return f"{how}; no condition of whole columns: {condition}", code
        asked = dict.fromkeys(_name(read, schema.names) for read in sorted(reads_of(condition), key=repr))
        return f"a condition of whole columns: {', '.join(asked)}; where it fails for a tuple: {how}", code
    return how, code


def _without_policy(node: Node) -> tuple[Node, Any]:
    plain = as_written(node)
    return plain, plain.logic


def _plan(plan: ColumnPlan, node: Node, columns: Collection[str]) -> tuple[str, tuple[str, ...]]:
    names = node.inputs[0].schema.names
    copied = [f"{node.schema.names[at]} is {_name(read, names)}" for at, read in sorted(plan.copied.items())]
    how = "over columns"
    if plan.called_with:
        reads = dict.fromkeys(_name(read, names) for part in plan.parts for read in part.code.reads)
        how += f"; called once a tuple with {', '.join(reads)}"
        if "calls" in columns and all(part.code.equal is not None for part in plan.parts):
            how += ", or once for all that are equal in it, where many are"
    elif not plan.parts:
        how += "; nothing is called"
    if copied:
        how += f"; passed on as columns: {', '.join(copied)}"
    if plan.structs:
        whole = sorted({_name(read, names) for read in plan.structs})
        how += f"; where no {' and no '.join(whole)} of a batch is null, else called as it is"
    return how, tuple(part.code.source for part in plan.parts)


def _name(read: Read, names: Sequence[str]) -> str:
    name = ".".join([names[read.column], *read.path])
    return f"{name} is null" if read.is_null else name


def _keyed(step: Step, logic: Keyed, columns: Collection[str]) -> tuple[str, tuple[str, ...]]:
    node = step.node
    if step.takes_arrivals:
        if step.is_timed:
            at_once = next((name for name, has, _ in AT_ONCE if name in columns and has(node)), "")
        else:
            has_windows = "windows" in columns and logic.broadcast is None and clock_columns(node, None, 0) is not None
            at_once = "windows" if has_windows else ""
        if at_once:
            return f"{_AT_ONCE} ({at_once})", ()
        if step.is_timed and logic.broadcast is None and column_arguments(node) is not None:
            return _with_arguments(getattr(type(logic.prototype), logic.method_of(0)), node, columns)
        return f"{_ONE_BY_ONE}: it has several inputs, or is called between tuples", ()
    function = getattr(type(logic.prototype), logic.method)
    if not inspect.isgeneratorfunction(function):
        for name, made in _KINDS_AT_ONCE:
            if name in columns and made(node, None, _as_it_is) is not _as_it_is:
                return f"{_AT_ONCE} ({name})", ()
        if hasattr(type(logic.prototype), "watched"):
            return _ONE_BY_ONE, ()
    slots = slot_code(node) if {"methods", "slots"} <= set(columns) and Keeper(node.schema).tuples_last else None
    if slots is not None:
        reads = ", ".join(node.inputs[0].schema.names[at] for at in slots.reads) or "nothing"
        loop = "one loop over columns" if slots.loop is not None else "a loop over columns: one call for each tuple"
        one = "" if slots.passed is None else "; gives one tuple for each"
        one += ", and adds up for all keys at once, where numbers allow it" if fold_of(slots) is not None else ""
        fields = ", ".join(f"s{at} {field.name}" for at, field in enumerate(logic.fields))
        return f"{loop} with {reads} and lists of its state by slot ({fields}){one}", (slots.source,)
    return _with_arguments(function, node, columns, is_inlined=True)


def _with_arguments(
    function: Any, node: Node, columns: Collection[str], is_inlined: bool = False
) -> tuple[str, tuple[str, ...]]:
    """How a method, or a function that gives several tuples, runs if it takes the columns it reads."""
    names = node.inputs[0].schema.names
    state = "its key's state and " if isinstance(node.logic, Keyed) else ""
    found: Inlined | ColumnArguments | None = None
    if is_inlined and "methods" in columns and Keeper(node.schema).tuples_last:
        found = inlined(function, names, node.schema.names)
    how = "a loop over columns: one call for each tuple with"
    if found is None and "methods" in columns:
        found = slot_call(node) if state and is_inlined and "slots" in columns else None
        state = state if found is None else "its key's slot in lists of its state, and "
        found = found or with_column_arguments(function, names)
        how = "called for each tuple with"
    if found is not None:
        reads = ", ".join(names[at] for at in found.reads) or "nothing"
        return f"{how} {state}{reads}", (found.source,)
    if inspect.isgeneratorfunction(function):
        return "called as it is, a generator for each tuple: its method cannot be rewritten over columns", ()
    return _ONE_BY_ONE, ()
