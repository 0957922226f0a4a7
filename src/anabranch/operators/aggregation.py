"""`aggregate` as a keyed operator: a class generated for the window and the aggregations.

The generated method unpacks the tuple once and keeps one open window per key, as plain state fields:

    (c0, c1, c2) = t
    …what is missing is counted…
    fresh = not self.open
    …close the window if this tuple is beyond it…
    …begin a window if none is open…
    …add the tuple…

This file has the windows that follow one another; `sliding.py` those that move along, `event_windows.py` those of
which several are open at a time. All write the same kind of class, with what `CodeDraft` gives them.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.agg import Aggregation, PartialResults
from anabranch.operators.epoch_context import count_anomaly, epoch_time
from anabranch.operators.library_operator import (
    BACKWARDS,
    NULL_ATTRIBUTE,
    NULL_KEY,
    NULL_KEYS,
    LibraryOperator,
    UserFunction,
    configured,
    fields,
)
from anabranch.operators.running_windows import RunningWindow, write_running
from anabranch.operators.windows import (
    Count,
    Delta,
    EventTime,
    Punctuated,
    Sessions,
    Sliding,
    Time,
    Tumbling,
    amount,
    measure,
)
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import Keyed
from anabranch.program.model import Load, Selectivity
from anabranch.program.schema import Schema

LATE_COLUMN = "late_tuple"
"""The column of late tuples, where they are a stream."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """What an aggregation is, for whoever computes it over columns.

    Attributes
    ----------
    measures : tuple of (str, str or None, int)
        Of each aggregation its name, its attribute, and which of the operator's functions says what it leaves out (-1:
        none does). The name is empty where its code must be called.
    width, step : int
        Of windows that follow a watermark: how long they are, how far apart they begin.
    is_plain : bool
        Nothing is kept or given beside: no time to live, no late tuples, no early or late results; and it is
        the whole, not a step of two, which would have the names of the whole and mean something else.
    """

    key: tuple[str, ...]
    window: Tumbling | Sliding | RunningWindow
    measures: tuple[tuple[str, str | None, int], ...]
    null_key: str
    width: int
    step: int
    is_plain: bool


class Aggregate(LibraryOperator):
    """Windows of one key; the methods are generated."""

    source = ""
    shape: Shape


@dataclasses.dataclass
class CodeDraft:
    """The code of an aggregation while it is written.

    Attributes
    ----------
    names : dict
        What the code finds as globals.
    state : dict
        The state fields and what they begin as.
    methods : dict
        The lines of each method, by its head.
    forwards : tuple of str, optional
        The columns that are said to be copied; by default those of the key.
    moment : str
        What gives the time at which a window of time begins.
    configuration : dict
        More attributes of the operator.
    is_step : bool
        One of two steps: its aggregations have the names of the whole's, but add, or give, partial results.
    """

    schema: Schema
    key: tuple[str, ...]
    window: Tumbling | Sliding | RunningWindow
    aggregations: list[Aggregation]
    null_key: str
    names: dict[str, Any] = dataclasses.field(default_factory=dict)
    state: dict[str, Any] = dataclasses.field(default_factory=dict)
    methods: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    waiting: str = ""
    punctuated: str = ""
    ticked: str = ""
    timed: str = ""
    takes_time: bool = False
    selectivity: Selectivity = Selectivity.ANY
    forwards: tuple[str, ...] | None = None
    moment: str = "NOW()"
    configuration: dict[str, Any] = dataclasses.field(default_factory=dict)
    late_stream: bool = False
    ttl_ms: int | None = None
    is_step: bool = False

    def __post_init__(self) -> None:
        self.names |= {"NOTE": count_anomaly, "NOW": epoch_time}
        for at, aggregation in enumerate(self.aggregations):
            self.names |= {f"F{at}_{place}": function for place, function in enumerate(aggregation.functions)}
            self.names |= {f"H{at}_{place}": helper for place, helper in enumerate(aggregation.helpers)}

    def column(self, name: str) -> str:
        """The variable that holds a column of the tuple."""
        return f"c{self.schema.names.index(name)}"

    def value(self, at: int) -> str:
        """The variable that holds what an aggregation adds."""
        aggregation = self.aggregations[at]
        if aggregation.attribute is not None:
            return self.column(aggregation.attribute)
        return "t" if aggregation.functions else "None"

    def needed(self, at: int) -> list[str]:
        """The variables that an aggregation needs of a tuple."""
        aggregation = self.aggregations[at]
        found = [] if self.value(at) == "None" else [self.value(at)]
        found += [] if aggregation.second is None else [self.column(aggregation.second)]
        return list(dict.fromkeys([*found, "t"] if aggregation.is_filtered else found))

    def words(self, at: int, state: str, second: str, value: str = "") -> dict[str, str]:
        """What stands for the places in an aggregation's code."""
        functions = {f"f{place}": f"F{at}_{place}" for place in range(len(self.aggregations[at].functions))}
        functions |= {f"h{place}": f"H{at}_{place}" for place in range(len(self.aggregations[at].helpers))}
        by = self.aggregations[at].second
        more = {} if by is None else {"w": self.column(by)}
        return {"s": state, "u": second, "v": value or self.value(at), **functions, **more}

    def prelude(self, leave: str = "return None") -> list[str]:
        """Unpack the tuple, and see to what is missing."""
        lines = [f"({', '.join(f'c{at}' for at in range(len(self.schema.names)))},) = t"]
        for name in self.key if self.null_key != "seen" else ():
            lines.append(f"if {self.column(name)} is None:")
            if self.null_key == "fail":
                problem = f"the key column {name!r} is null (null_key='fail')"
                lines.append(f"    raise ValueError({problem!r})")
            else:
                lines.append(f"    NOTE(self.operator_name, {NULL_KEY!r})")
            if self.null_key == "drop":
                lines.append(f"    {leave}")
        return lines

    def attribute(self, policy: Delta | EventTime | Sessions, leave: str = "return None") -> list[str]:
        """See to a window attribute that is missing: a null; for event time also what is not finite."""
        value = self.column(policy.attribute)
        condition = f"{value} is None"
        if measure(self.schema, policy, policy.attribute).is_floating:
            self.names["INFINITY"] = float("inf")
            finite = f"-INFINITY < {value} < INFINITY" if isinstance(policy, EventTime) else f"{value} == {value}"
            condition += f" or not {finite}"
        if policy.nulls == "fail":
            problem = f"the window attribute {policy.attribute!r} is null; nulls='drop' drops and counts such tuples"
            return [f"if {condition}:", f"    raise ValueError({problem!r})"]
        return [f"if {condition}:", f"    NOTE(self.operator_name, {NULL_ATTRIBUTE!r})", f"    {leave}"]

    @property
    def may_drop(self) -> bool:
        """Whether a tuple can go without being looked at."""
        return self.null_key == "drop" or getattr(self.window.policy, "nulls", "") == "drop"

    def partial_results(self, aggregation: Aggregation, reassociate: bool = False) -> PartialResults | None:
        """How partial results of an aggregation combine, if they do exactly."""
        kind = pa.null() if aggregation.attribute is None else self.schema.type_of(aggregation.attribute)
        return aggregation.combine(kind, reassociate)

    def leave_late(self) -> str:
        """What is done with a tuple that is late."""
        if not self.late_stream:
            return "return None"
        values = ", ".join(f"{name!r}: {self.column(name)}" for name in self.schema.names)
        results = "None, " * (len(self.key) + len(self.aggregations))
        return f"return ({results}{{{values}}}, )"

    def emitted(self, results: Sequence[str]) -> str:
        """A result, from the code of its columns; beside it the place of a late tuple, if they are a stream."""
        return _tuple([*results, *(["None"] if self.late_stream else [])])

    def keep_key(self) -> list[str]:
        """Keep the key, for results that no tuple of the key triggers."""
        self.state |= {f"k{at}": None for at in range(len(self.key))}
        return [f"self.k{at} = {self.column(name)}" for at, name in enumerate(self.key)]

    def kept_key(self) -> list[str]:
        return [f"self.k{at}" for at in range(len(self.key))]

    def _load(self) -> Load:
        """State and computation of a key by its frequency: only windows over a span of time hold more of a hot key."""
        if isinstance(self.window.policy, Count):
            return Load()
        if isinstance(self.window, Sliding) and not isinstance(self.window.policy, EventTime):
            kinds = [None if a.attribute is None else self.schema.type_of(a.attribute) for a in self.aggregations]
            slides = [
                a.slide(pa.null() if kind is None else kind) for a, kind in zip(self.aggregations, kinds, strict=True)
            ]
            return Load("linear", "linear" if None in slides else "constant")
        return Load("linear" if any(a.name == "collect" for a in self.aggregations) else "constant")

    def _shape(self) -> Shape:
        measures: list[tuple[str, str | None, int]] = []
        functions = 0
        for each in self.aggregations:
            functions += len(each.functions)
            is_ours = len(each.functions) == each.is_filtered and not each.helpers and each.second is None
            test = functions - 1 if each.is_filtered else -1
            measures.append(
                (f"bound {each.bound}" if each.bound else each.name if is_ours else "", each.attribute, test)
            )
        is_plain = self.ttl_ms is None and not self.late_stream and not self.is_step
        is_plain = is_plain and not self.names.get("STAY") and not self.names.get("EARLY")
        bounds = (self.names.get("WIDTH", 0), self.names.get("STEP", 0))
        spans = zip((self.names.get("SIZE"), self.names.get("EVERY")), bounds, strict=True)
        is_plain = is_plain and all(
            each == number or (isinstance(each, datetime.timedelta) and each == datetime.timedelta(microseconds=number))
            for each, number in spans
            if bounds[0]
        )
        return Shape(self.key, self.window, tuple(measures), self.null_key, *bounds, is_plain)

    def build(self, name: str) -> Keyed:
        """The operator."""
        if self.ttl_ms is not None:
            if self.waiting or self.timed:
                raise ProgramError(f"ttl: a key of {self.window} is kept until its window closes; leave ttl out")
            # Time to live counts from the last change: whatever a tuple changes beside it, it has come.
            self.state["touched"] = None
            self.methods["process(self, t)"].insert(0, "self.touched = NOW()")
        source = "".join(
            f"def {head}:\n" + "".join(f"    {line}\n" for line in lines) + "\n" for head, lines in self.methods.items()
        )
        exec(compile(source, f"<anabranch aggregate by {', '.join(self.key)}>", "exec"), self.names)
        methods = {head.partition("(")[0]: self.names[head.partition("(")[0]] for head in self.methods}
        held = {**methods, "source": source, "shape": self._shape(), "__module__": __name__}
        kind: type[Aggregate] = type("Aggregate", (Aggregate,), held)
        if self.waiting:
            self.state["opened"] = None
        functions = [
            each for at, aggregation in enumerate(self.aggregations) for each in aggregation.user_functions(at)
        ]
        deleted = getattr(self.window, "deleted", None)
        if deleted is not None:
            functions.append(UserFunction("what tells a deletion", deleted))
        prototype = configured(
            kind,
            name,
            selectivity=self.selectivity,
            forwards=self.key if self.forwards is None else self.forwards,
            functions=functions,
            load=self._load(),
            **self.configuration,
        )
        return Keyed(
            prototype,
            "process",
            fields(**self.state),
            self.ttl_ms,
            waiting=self.waiting,
            punctuated=self.punctuated,
            ticked=self.ticked,
            timed=self.timed,
            takes_time=self.takes_time,
        )


def aggregate_logic(
    schema: Schema,
    key: Sequence[str],
    window: Tumbling | Sliding | RunningWindow,
    aggregations: Mapping[str, Aggregation],
    name: str = "aggregate",
    null_key: str = "keep",
    reassociate: bool = False,
    scale: TimeScale | None = None,
    late_stream: bool = False,
    ttl_ms: int | None = None,
) -> tuple[Keyed, Schema]:
    """The keyed operator of an aggregation, and the schema of its results: the key, then the aggregates.

    With a `scale` the stream has a watermark, of such times, and windows of event time follow it. With `late_stream`
    late tuples are emitted too, as a struct in a last column that results have null (`late_tuples`).
    """
    from anabranch.operators.combining import parts_of
    from anabranch.operators.event_windows import write_event_windows
    from anabranch.operators.session_windows import write_sessions
    from anabranch.operators.shared_windows import write_shared_windows
    from anabranch.operators.sliding import write_sliding

    if null_key not in NULL_KEYS:
        raise ProgramError(f"null_key={null_key!r}: expected one of {', '.join(map(repr, NULL_KEYS))}")
    if isinstance(window.policy, Sessions) and (scale is None or isinstance(window, Sliding)):
        raise ProgramError(f"{window}: sessions follow the watermark of the stream: stream.event_time('…') before it")
    is_shared = isinstance(window.policy, Sessions)
    if isinstance(window.policy, EventTime):
        is_shared = scale is not None and not window.policy.per_key
    if isinstance(window.policy, EventTime) and window.policy.early is not None and not is_shared:
        raise ProgramError(f"{window}: early results need the watermark of the stream: stream.event_time(…)")
    output = _output(schema, key, window, aggregations, is_shared)
    draft = CodeDraft(schema, tuple(key), window, list(aggregations.values()), null_key, ttl_ms=ttl_ms)
    results = ", ".join(f"{column}={aggregation}" for column, aggregation in aggregations.items())
    if late_stream:
        if not is_shared:
            raise ProgramError(
                f"late='stream': expected windows that follow the watermark of the stream, found {window}"
            )
        draft.late_stream, draft.forwards = True, ()
        output = Schema(pa.schema([*output.arrow, pa.field(LATE_COLUMN, pa.struct(list(schema.arrow)))]))
    draft.configuration["description"] = f"{window}: {results}"
    if isinstance(window, RunningWindow):
        write_running(draft)
        return draft.build(name), output
    if is_shared:
        assert scale is not None
        write = write_sessions if isinstance(window.policy, Sessions) else write_shared_windows
        write(draft, scale)
    elif isinstance(window.policy, EventTime):
        write_event_windows(draft)
    elif isinstance(window, Sliding):
        write_sliding(draft)
    else:
        write_tumbling(draft)
    built = draft.build(name)
    logic = dataclasses.replace(built, parts=parts_of(draft, name, reassociate) if ttl_ms is None else None)
    return logic, output


def _output(
    schema: Schema,
    key: Sequence[str],
    window: Tumbling | Sliding | RunningWindow,
    aggregations: Mapping[str, Aggregation],
    is_shared: bool,
) -> Schema:
    output = [schema.arrow.field(name) for name in key]
    for name, aggregation in aggregations.items():
        if not isinstance(aggregation, Aggregation):
            raise ProgramError(f"aggregate({name}={aggregation!r}): expected an aggregation such as agg.sum({name!r})")
        if name in key:
            raise ProgramError(f"aggregate({name}=…): {name!r} is a column of the key already; choose another name")
        attribute = aggregation.attribute
        if aggregation.bound in ("emission", "time"):
            if not is_shared:
                raise ProgramError(
                    f"aggregate({name}=agg.{aggregation}): expected windows of event_time(…) on a stream with event "
                    f"time: stream.event_time(…); found {window}"
                )
        elif aggregation.bound and isinstance(window.policy, Time) and isinstance(window, Tumbling):
            output.append(pa.field(name, pa.timestamp("us", tz="UTC")))
            continue
        if aggregation.bound in ("start", "end", "time"):
            if not isinstance(window.policy, (EventTime, Sessions)):
                raise ProgramError(
                    f"aggregate({name}=agg.{aggregation}): expected windows of event_time(…), found {window}"
                )
            attribute = window.policy.attribute
        if attribute is not None and attribute not in schema:
            raise SchemaError(
                f"aggregate({name}=agg.{aggregation}): no column {attribute!r}; columns: {', '.join(schema.names)}"
            )
        if aggregation.second is not None and aggregation.second not in schema:
            raise SchemaError(
                f"aggregate({name}=agg.{aggregation}): no column {aggregation.second!r}; columns: "
                f"{', '.join(schema.names)}"
            )
        found = None if attribute is None else schema.type_of(attribute)
        output.append(pa.field(name, aggregation.output_type(found)))
    return Schema(pa.schema(output))


def write_tumbling(draft: CodeDraft) -> None:
    """Write the code of windows that follow one another."""
    policy = draft.window.policy
    draft.state["open"] = False
    begin: list[str] = []
    add: list[str] = []
    results: list[str] = []
    for at, aggregation in enumerate(draft.aggregations):
        if aggregation.bound:
            draft.names["MOMENT"] = _moment
            results.append(f"MOMENT(self.anchor{' + SIZE' if aggregation.bound == 'end' else ''})")
            continue
        words = draft.words(at, f"self.a{at}", f"self.b{at}")
        begin += aggregation.begin.format(**words).splitlines()
        add += aggregation.add.format(**words).splitlines()
        results.append(aggregation.result.format(**words))
        draft.state |= {
            f"{field}{at}": None for field, s in (("a", "s"), ("b", "u")) if f"{{{s}}}" in aggregation.begin
        }
    lines = draft.prelude()
    emit = _tuple([*map(draft.column, draft.key), *results])
    draft.selectivity = Selectivity.AT_MOST_ONE
    if isinstance(policy, Delta):
        draft.names["SIZE"] = amount(draft.schema, draft.window, policy.attribute, policy.size)
        draft.names["ZERO"] = measure(draft.schema, draft.window, policy.attribute).zero
        draft.state["anchor"] = None
        value = draft.column(policy.attribute)
        lines += [
            *draft.attribute(policy),
            "closed = None",
            "if self.open:",
            f"    moved = {value} - self.anchor",
            "    if moved > SIZE:",
            f"        closed = {emit}",
            "        self.open = False",
            "    elif moved < ZERO:",
            f"        NOTE(self.operator_name, {BACKWARDS!r})",
        ]
        begin.append(f"self.anchor = {value}")
    elif isinstance(policy, Count):
        draft.names["SIZE"] = policy.size
        draft.state["size"] = 0
        begin.append("self.size = 0")
    else:
        # No tuple closes these windows, so what they emit their key from is state.
        begin += draft.keep_key()
        closing = ["self.open = False", f"return {_tuple([*draft.kept_key(), *results])}"]
        draft.waiting, draft.selectivity = "open", Selectivity.ANY
        if isinstance(policy, Time):
            draft.names["SIZE"] = policy.size_ms
            draft.state["anchor"] = None
            begin.append(f"self.anchor = {draft.moment}")
            draft.ticked = "ticked"
            draft.methods["ticked(self, now)"] = ["if now - self.anchor < SIZE:", "    return None", *closing]
        else:
            assert isinstance(policy, Punctuated)
            draft.punctuated = "punctuated"
            draft.methods["punctuated(self)"] = closing
    lines += ["fresh = not self.open", "if fresh:", "    self.open = True", *(f"    {line}" for line in begin), *add]
    if isinstance(policy, Count):
        lines += ["self.size += 1", "if self.size == SIZE:", "    self.open = False", f"    return {emit}"]
    lines.append("return closed" if isinstance(policy, Delta) else "return None")
    draft.methods["process(self, t)"] = lines


def _moment(clock_ms: int) -> datetime.datetime:
    """A time of the clock of the epochs as a timestamp."""
    return _EPOCH + datetime.timedelta(milliseconds=clock_ms)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _tuple(values: Sequence[str]) -> str:
    return "(" + "".join(f"{value}, " for value in values) + ")"
