"""Streams: what users build programs from. Building runs nothing; every mistake it can see is an error here."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.api.declarations import Operator, make_prototype, state_fields, to_milliseconds
from anabranch.api.meeting import Meeting
from anabranch.api.windowed import Windowed
from anabranch.compiler.layout.compile import compiled
from anabranch.compiler.layout.plan import Plan
from anabranch.compiler.models.inference import infer_output_schema
from anabranch.engine.sequential import SequentialRun, run_epochs
from anabranch.errors import ProgramError, SchemaError
from anabranch.program.graph import (
    Filter,
    FlatMap,
    Keyed,
    Location,
    Logic,
    Map,
    Node,
    Process,
    caller_location,
)
from anabranch.program.hashing import is_hashable
from anabranch.program.schema import Row, Schema, schema_of_return

if TYPE_CHECKING:
    from anabranch.api.session import Session
    from anabranch.api.writer import DataStreamWriter


# One count for all programs of this process: streams of different sources may meet in one program.
NUMBERS = itertools.count()


class Stream(Windowed, Meeting):
    """A stream of tuples: the output of an operator.

    Streams come from a `Session` (``read``, ``from_files``, ``from_rows``) and from the methods here. Each
    method puts an operator behind this stream and gives back the stream of its output.
    """

    def __init__(self, session: Session | None, node: Node, names: set[str]) -> None:
        self._session = session
        # Whoever makes a source may number it as he likes; here its number becomes one that no other operator has.
        self._node = node if node.inputs else dataclasses.replace(node, id=next(NUMBERS))
        self._names = names

    # -- what it is -------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The columns of this stream."""
        return self._node.schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._node.schema.names)

    def __repr__(self) -> str:
        return f"Stream[{self._node.schema}]"

    # -- operators --------------------------------------------------------------------------------------

    def map(self, function: Callable[[Any], Any], schema: Any = None, *, name: str | None = None) -> Stream:
        """One tuple out for each tuple in.

        Parameters
        ----------
        function : callable
            Takes a tuple; returns a tuple, dict, named tuple or dataclass with the output's columns.
        schema : str or class, optional
            The output's columns: a DDL string or a class with annotated fields. Not needed if the
            function's return annotation is such a class, or if it only returns its argument.

        Examples
        --------
        >>> import anabranch as ab
        >>> numbers = ab.from_rows([(1,), (2,)], "x long")
        >>> numbers.map(lambda t: (t.x * 2,), schema="y long").run_sequential()
        [(y=2), (y=4)]
        """
        location = caller_location()
        _must_be_callable("map", function, location)
        output = self._output_schema("map", function, schema, location)
        return self._append("map", Map(function), output, location, name)

    def filter(self, function: Callable[[Any], Any], *, name: str | None = None) -> Stream:
        """The tuples for which the function is true."""
        location = caller_location()
        _must_be_callable("filter", function, location)
        return self._append("filter", Filter(function), self.schema, location, name)

    def flat_map(self, function: Callable[[Any], Any], schema: Any = None, *, name: str | None = None) -> Stream:
        """Any number of tuples out for each in: the function yields them, or returns an iterable or None."""
        location = caller_location()
        _must_be_callable("flat_map", function, location)
        output = self._output_schema("flat_map", function, schema, location)
        return self._append("flat_map", FlatMap(function), output, location, name)

    def process(
        self,
        operator: Any,
        by: str | Sequence[str] | None = None,
        schema: Any = None,
        *,
        name: str | None = None,
        ttl: float | datetime.timedelta | None = None,
        persistence: str = "checkpointed",
    ) -> Stream:
        """An operator with state.

        Parameters
        ----------
        operator : Operator, or a function or object that is called with a tuple
            An instance of a class derived from `Operator`, with its state declared; or ordinary code that keeps its
            own dicts, for which the compiler finds the key and manages the dicts. What it cannot prove to be
            partitioned runs on one thread; `explain` says why.
        by : str or sequence of str, optional
            The key: one column or several; needed for declared state.
        schema : str or class, optional
            The output's columns, as in `map`.
        ttl : seconds or timedelta, optional
            How long a key's state lives after it was last changed, by the clock of the epochs.
        persistence : "checkpointed" or "transient"
            Transient state is not written to the checkpoint: it is faster to give up than to keep, and begins
            anew after a restart or the loss of a host.
        """
        location = caller_location()
        if persistence not in ("checkpointed", "transient"):
            raise ProgramError(
                f"process at {location}: persistence={persistence!r}; expected 'checkpointed' or 'transient'"
            )
        if isinstance(operator, type):
            raise ProgramError(f"process at {location}: give an instance, {operator.__name__}(), not the class")
        kind = type(operator)
        if by is None:
            return self._process_as_it_is(operator, schema, location, name, ttl, persistence)
        if not isinstance(operator, Operator):
            raise ProgramError(
                f"process at {location}: by=… needs an instance of an ab.Operator class, found {operator!r};"
                " leave out by=… and the key of its own state is found"
            )
        key = self._key("process", by, location)
        function = kind.process
        if function is Operator.process:
            raise ProgramError(f"process at {location}: {kind.__name__} has no process(self, t) method")
        output = self._output_schema("process", operator, schema, location, "process")
        transient = persistence == "transient"
        logic = Keyed(make_prototype(operator), "process", state_fields(kind), to_milliseconds(ttl), transient)
        return self._append("process", logic, output, location, name, key, wanted=kind.__name__)

    def _process_as_it_is(
        self, operator: Any, schema: Any, location: Location, name: str | None, ttl: Any, persistence: str
    ) -> Stream:
        """An operator that keeps its own state: the compiler finds out how it is partitioned."""
        if ttl is not None or persistence != "checkpointed":
            raise ProgramError(f"process at {location}: ttl and persistence need a declared key: by=…")
        if isinstance(operator, Operator):
            if state_fields(type(operator)):
                raise ProgramError(
                    f"process at {location}: {type(operator).__name__} has state per key; name the key: by=…"
                )
            method = "process"
        elif callable(operator):
            method = "__call__"
        else:
            raise ProgramError(
                f"process at {location}: expected a function or an object that can be called with a tuple, or an "
                f"instance of a class derived from ab.Operator; found {operator!r}"
            )
        output = self._output_schema("process", operator, schema, location, method)
        shown = getattr(operator, "__name__", type(operator).__name__)
        return self._append("process", Process(operator, method), output, location, name, wanted=shown)

    # -- running ----------------------------------------------------------------------------------------

    def run_sequential(self, rows: Iterable[Any] | None = None, *, clocks_ms: Sequence[int] = ()) -> list[Row]:
        """The program on one thread, without Spark: what every other way of running it must equal.

        Parameters
        ----------
        rows : iterable, optional
            The source's tuples, as tuples, dicts or rows. Not needed if the sources were made of rows.
        clocks_ms : sequence of int, optional
            The time of each epoch, for programs in which time matters.
        """
        if rows is None:
            return run_epochs([self._node], clocks_ms).output
        run = SequentialRun(self._node, clocks_ms[0] if clocks_ms else 0)
        if len(run.sources) != 1:
            raise ProgramError(f"run_sequential(rows): the program has {len(run.sources)} sources; make them of rows")
        run.feed(rows)
        run.finish()
        return run.output

    @property
    def writeStream(self) -> DataStreamWriter:
        """Where the stream goes: ``stream.writeStream.format("parquet")….start(path)``, as on a DataFrame."""
        from anabranch.api.writer import DataStreamWriter

        if self._session is None:
            raise ProgramError("this stream has no session: make it with ab.session(spark).from_rows(…)")
        return DataStreamWriter(self._session, self._node)

    def plan(self) -> Plan:
        """What the compiler makes of the program: what it found about every operator, and the layout that runs."""
        return compiled([self._node])

    def explain(self, form: str = "text") -> None:
        """Print what runs: the stages and the shuffles between them; every operator with what was found about it, why,
        and from which line; and for what must run on one thread what blocks it and the smallest change that would free
        it.

        Parameters
        ----------
        form : "text", "json", "mermaid" or "svg"
        """
        print(self.plan().explain(form))

    # -- helpers ----------------------------------------------------------------------------------------

    def _append(
        self,
        kind: str,
        logic: Logic,
        schema: Schema,
        location: Location,
        name: str | None,
        key: tuple[str, ...] = (),
        wanted: str = "",
    ) -> Stream:
        return self._operator(kind, lambda _: (logic, schema), location, name, key, wanted=wanted)

    def _operator(
        self,
        kind: str,
        make: Callable[[str], tuple[Logic, Schema]],
        location: Location,
        name: str | None,
        key: tuple[str, ...] = (),
        *,
        wanted: str = "",
        others: Sequence[Stream] = (),
        keys: tuple[tuple[str, ...], ...] = (),
    ) -> Stream:
        """Put an operator behind this stream (and others); `make` gets its name and gives its logic and schema."""
        session, names = self._session, self._names
        for other in others:
            session = session or other._session
            if other._session is not None and session is not None and other._session.spark is not session.spark:
                raise ProgramError(f"{kind} at {location}: the streams come from different Spark sessions; use one")
            if other._names is not names:
                names = names | other._names
        chosen = unique_name(name or wanted or kind, names, location, explicit=name is not None)
        try:
            logic, schema = make(chosen)
        except ProgramError as problem:
            names.discard(chosen)
            raise type(problem)(f"{kind} at {location}: {problem}") from None
        inputs = (self._node, *(other._node for other in others))
        node = Node(next(NUMBERS), kind, chosen, logic, inputs, schema, location, key, keys)
        return Stream(session, node, names)

    def _key(self, method: str, by: str | Sequence[str], location: Location) -> tuple[str, ...]:
        names = (by,) if isinstance(by, str) else tuple(by)
        if not names:
            raise SchemaError(f"{method} at {location}: the key is empty; name at least one column: by='…'")
        for name in names:
            if not isinstance(name, str) or name not in self.schema:
                raise SchemaError(
                    f"{method} at {location}: the key {name!r} is not a column; columns: {', '.join(self.columns)}"
                )
            if not is_hashable(self.schema.type_of(name)):
                raise SchemaError(
                    f"{method} at {location}: the column {name!r} has the type {self.schema.type_of(name)}, which "
                    "cannot be a key; use a number, string, date, timestamp, boolean or binary column"
                )
        if len(set(names)) < len(names):
            raise SchemaError(f"{method} at {location}: the key names a column twice: {', '.join(names)}")
        return names

    def _output_schema(
        self, kind: str, function: Any, given: Any, location: Location, method: str | None = None
    ) -> Schema:
        """The columns of what an operator emits: given, annotated, or found in its code."""
        if given is not None:
            try:
                return Schema.of(given)
            except SchemaError as problem:
                raise SchemaError(f"{kind} at {location}: {problem}") from None
        called = function if method is None or inspect.isroutine(function) else getattr(type(function), method)
        try:
            found = schema_of_return(called, many=kind != "map")
        except SchemaError as problem:
            raise SchemaError(f"{kind} at {location}: {problem}") from None
        if found is not None:
            return found
        found = infer_output_schema(function, self.schema, None if inspect.isroutine(function) else method, mode=kind)
        if found is not None:
            return found
        raise SchemaError(
            f"{kind} at {location}: the columns of the output are unknown. Say them in one of two ways:\n"
            f"  a schema:      .{kind}({_plain_name(called)}, schema='id long, value double')\n"
            "  an annotation: class Reading(NamedTuple): id: int; value: float\n"
            f"                 def {_plain_name(called)}(t) -> {'Reading' if kind == 'map' else 'Iterator[Reading]'}: …"
        )


def unique_name(wanted: str, taken: set[str], location: Location, explicit: bool) -> str:
    """The name, or the name with a number behind it; a name the user chose must be free."""
    plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in wanted)
    if explicit and (plain != wanted or plain in taken):
        why = "it is taken" if plain in taken else "names are made of letters, digits, - and _"
        raise ProgramError(f"the operator at {location} cannot have the name {wanted!r}: {why}")
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    taken.add(name)
    return name


def _must_be_callable(method: str, function: Any, location: Location) -> None:
    if not callable(function):
        raise ProgramError(f"{method} at {location}: expected a function of one tuple, found {function!r}")


def _plain_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "f")
    return name if name.isidentifier() else "f"
