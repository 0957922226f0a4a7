"""Streams: what users build programs from. Building runs nothing; every mistake it can see is an error here."""

from __future__ import annotations

import ast
import datetime
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.api.agg import Aggregation
from anabranch.api.aggregation import aggregate_logic
from anabranch.api.operators import Operator, make_prototype, state_fields, to_milliseconds
from anabranch.api.windows import Tumbling
from anabranch.compiler.graph import (
    Filter,
    FlatMap,
    Keyed,
    Location,
    Logic,
    Map,
    Node,
    Source,
    caller_location,
    upstream,
)
from anabranch.errors import ProgramError, SchemaError
from anabranch.flow.schema import Row, Schema, schema_of_return
from anabranch.flow.sequential import SequentialRun
from anabranch.partitioning.hashing import is_hashable

if TYPE_CHECKING:
    from anabranch.api.session import Session
    from anabranch.api.writer import DataStreamWriter


class Stream:
    """A stream of tuples: the output of an operator.

    Streams come from a `Session` (``read``, ``from_files``, ``from_rows``) and from the methods here. Each
    method puts an operator behind this stream and gives back the stream of its output.
    """

    def __init__(self, session: Session | None, node: Node, numbers: itertools.count[int], names: set[str]) -> None:
        self._session = session
        self._node = node
        self._numbers = numbers
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
        output = self._output_schema("map", function, schema, location, many=False)
        return self._append("map", Map(function), output, location, name, details=_shown(function))

    def filter(self, function: Callable[[Any], Any], *, name: str | None = None) -> Stream:
        """The tuples for which the function is true."""
        location = caller_location()
        _must_be_callable("filter", function, location)
        return self._append("filter", Filter(function), self.schema, location, name, details=_shown(function))

    def flat_map(self, function: Callable[[Any], Any], schema: Any = None, *, name: str | None = None) -> Stream:
        """Any number of tuples out for each in: the function yields them, or returns an iterable or None."""
        location = caller_location()
        _must_be_callable("flat_map", function, location)
        output = self._output_schema("flat_map", function, schema, location, many=True)
        return self._append("flat_map", FlatMap(function), output, location, name, details=_shown(function))

    def process(
        self,
        operator: Operator,
        by: str | Sequence[str],
        schema: Any = None,
        *,
        name: str | None = None,
        ttl: float | datetime.timedelta | None = None,
        persistence: str = "checkpointed",
    ) -> Stream:
        """An operator with state per key.

        Parameters
        ----------
        operator : Operator
            An instance of a class derived from `Operator`, with its state declared.
        by : str or sequence of str
            The key: one column or several.
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
        if not isinstance(operator, Operator):
            raise ProgramError(
                f"process at {location}: expected an instance of a class derived from ab.Operator, found {operator!r}"
            )
        kind = type(operator)
        key = self._key("process", by, location)
        function = kind.process
        if function is Operator.process:
            raise ProgramError(f"process at {location}: {kind.__name__} has no process(self, t) method")
        output = self._output_schema("process", function, schema, location, many=True)
        transient = persistence == "transient"
        logic = Keyed(make_prototype(operator), "process", state_fields(kind), to_milliseconds(ttl), transient)
        forwards = frozenset(self.columns) if _emits_only_its_input(function) else frozenset()
        return self._append("process", logic, output, location, name or kind.__name__, key, forwards, kind.__name__)

    def aggregate(
        self,
        by: str | Sequence[str],
        window: Tumbling,
        *,
        name: str | None = None,
        **aggregations: Aggregation,
    ) -> Stream:
        """Aggregate windows of each key: one tuple for each window, when it closes.

        Examples
        --------
        >>> import anabranch as ab
        >>> sales = ab.from_rows([("a", 1), ("b", 5), ("a", 2)], "shop string, amount long")
        >>> sales.aggregate(by="shop", window=ab.tumbling(2), total=ab.agg.sum("amount")).run_sequential()
        [(shop='a', total=3)]
        """
        location = caller_location()
        key = self._key("aggregate", by, location)
        if not isinstance(window, Tumbling):
            raise ProgramError(
                f"aggregate at {location}: expected a window such as tumbling(count(10)) or "
                f"tumbling(delta('time', 60)), found {window!r}"
            )
        if not aggregations:
            raise ProgramError(f"aggregate at {location}: nothing to compute; add for example total=agg.sum('x')")
        try:
            logic, output = aggregate_logic(self.schema, key, window, aggregations)
        except ProgramError as problem:
            raise type(problem)(f"aggregate at {location}: {problem}") from None
        details = f"{window}, " + ", ".join(f"{each}={what}" for each, what in aggregations.items())
        return self._append("aggregate", logic, output, location, name, key, frozenset(key), details)

    # -- running ----------------------------------------------------------------------------------------

    def run_sequential(self, rows: Iterable[Any] | None = None) -> list[Row]:
        """The program on one thread, without Spark: what every other way of running it must equal.

        Parameters
        ----------
        rows : iterable, optional
            The source's tuples, as tuples, dicts or rows. Not needed if the source was made of rows.
        """
        run = SequentialRun(self._node)
        run.feed(self._source_rows() if rows is None else rows)
        return run.output

    def _source_rows(self) -> Iterable[Any]:
        source = upstream(self._node)[0]
        assert isinstance(source.logic, Source)
        epochs = getattr(source.logic.origin, "epochs", None)
        if epochs is None:
            raise ProgramError(f"run_sequential: give the rows; the source {source.title} does not hold any")
        return itertools.chain.from_iterable(epochs)

    @property
    def writeStream(self) -> DataStreamWriter:
        """Where the stream goes: ``stream.writeStream.format("parquet")….start(path)``, as on a DataFrame."""
        from anabranch.api.writer import DataStreamWriter

        if self._session is None:
            raise ProgramError("this stream has no session: make it with ab.session(spark).from_rows(…)")
        return DataStreamWriter(self._session, self._node)

    def explain(self) -> None:
        """Print the plan: operators, stages, keys."""
        from anabranch.compiler.explain_stages import explain_text

        print(explain_text(self._node))

    # -- helpers ----------------------------------------------------------------------------------------

    def _append(
        self,
        kind: str,
        logic: Logic,
        schema: Schema,
        location: Location,
        name: str | None,
        key: tuple[str, ...] = (),
        forwards: frozenset[str] = frozenset(),
        details: str = "",
    ) -> Stream:
        number = next(self._numbers)
        chosen = unique_name(name or kind, self._names, explicit=name is not None and kind != "process")
        node = Node(number, kind, chosen, logic, (self._node,), schema, location, key, forwards, details)
        return Stream(self._session, node, self._numbers, self._names)

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
        self, method: str, function: Callable[..., Any], given: Any, location: Location, many: bool
    ) -> Schema:
        if given is not None:
            try:
                return Schema.of(given)
            except SchemaError as problem:
                raise SchemaError(f"{method} at {location}: {problem}") from None
        found = schema_of_return(function, many)
        if found is not None:
            return found
        if _emits_only_its_input(function):
            return self.schema
        raise SchemaError(
            f"{method} at {location}: the columns of the output are unknown. Say them in one of two ways:\n"
            f"  a schema:      .{method}({getattr(function, '__name__', '…')}, schema='id long, value double')\n"
            "  an annotation: class Reading(NamedTuple): id: int; value: float\n"
            f"                 def {_plain_name(function)}(t) -> {'Iterator[Reading]' if many else 'Reading'}: …"
        )


def unique_name(wanted: str, taken: set[str], explicit: bool) -> str:
    """The name, or the name with a number behind it; a name the user chose must be free."""
    plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in wanted)
    if explicit and (plain != wanted or plain in taken):
        why = "it is taken" if plain in taken else "names are made of letters, digits, - and _"
        raise ProgramError(f"the operator name {wanted!r} cannot be used: {why}")
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


def _shown(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _emits_only_its_input(function: Callable[..., Any]) -> bool:
    """Whether all that the function yields or returns is its own last parameter, never assigned anew."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or not definition.args.args:
        return False
    name = definition.args.args[-1].arg
    emitted = 0
    for node in ast.walk(definition):
        if isinstance(node, (ast.YieldFrom, ast.Lambda)) or (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node is not definition
        ):
            return False
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, (ast.Yield, ast.Return)):
            value = node.value
            if value is None or (isinstance(value, ast.Constant) and value.value is None):
                if isinstance(node, ast.Yield):
                    return False
            elif isinstance(value, ast.Name) and value.id == name:
                emitted += 1
            else:
                return False
    return emitted > 0
