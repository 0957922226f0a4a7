"""Streams: what users build programs from. Building runs nothing; every mistake it can see is an error here."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from anabranch.api import (
    accumulating,
    batching,
    branching,
    failing,
    joining,
    selecting,
    stream_time,
    updating,
    versions,
    windowed,
)
from anabranch.api.building import (
    like,
    must_be_callable,
    must_return,
    next_number,
    operator_of,
    output_schema,
    put,
    remade,
    under,
)
from anabranch.api.concurrency import ConcurrencyOptions, check_elastic, elastic_function
from anabranch.api.declarations import Operator, broadcast_logic, keyed_logic, state_fields, to_milliseconds
from anabranch.api.keys import By, keyed_by
from anabranch.api.versions import Step, state_history
from anabranch.engine.sequential import SequentialRun, run_epochs
from anabranch.errors import ProgramError
from anabranch.operators.key_columns import behind_key_columns
from anabranch.program.annotated_rows import seeing, seeing_methods
from anabranch.program.graph import (
    Filter,
    FlatMap,
    Location,
    Logic,
    Map,
    Node,
    Process,
    caller_location,
)
from anabranch.program.schema import Row, Schema

if TYPE_CHECKING:
    from anabranch.api.session import Session
    from anabranch.api.writer import DataStreamWriter
    from anabranch.compiler.plan import Plan


class Stream:
    """A stream of tuples: the output of an operator.

    Streams come from a `Session` (``read``, ``from_files``, ``from_rows``) and from the methods here. Each
    method puts an operator behind this stream and gives back the stream of its output.
    """

    def __init__(self, session: Session | None, node: Node, names: set[str]) -> None:
        self._session = session
        # Whoever makes a source may number it as he likes; here its number becomes one that no other operator has.
        self._node = node if node.inputs else dataclasses.replace(node, id=next_number())
        self._names = names
        self._on_error = "fail"  # of the operators behind it that say nothing else

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

    def map(
        self,
        function: Callable[[Any], Any],
        schema: Any = None,
        *,
        name: str | None = None,
        on_error: str | None = None,
        elastic: bool = False,
        **concurrency: Unpack[ConcurrencyOptions],
    ) -> Stream:
        """One tuple out for each tuple in.

        Parameters
        ----------
        function : callable
            Takes a tuple; returns a tuple, dict, named tuple or dataclass with the output's columns.
        schema : str or class, optional
            The output's columns: a DDL string or a class with annotated fields. Not needed if the
            function's return annotation is such a class, or if it only returns its argument.
        on_error : "fail", "skip" or "dead_letter", optional
            What a call that fails does: it fails the epoch; or it has no effect, and the tuple is dropped and counted,
            or is a dead letter. By default what was said of the stream, see `on_error`.
        elastic : bool
            Several calls are under way at once, as many as pay off; the output and its order stay the same. For
            functions that wait (for a service, a database, a model) or leave the interpreter; `async def` is awaited.
        min_workers, max_workers, timeout, retries, workers, controller
            With `elastic`: the options of docs/elastic-operators.md.

        Examples
        --------
        >>> import anabranch as ab
        >>> numbers = ab.from_rows([(1,), (2,)], "x long")
        >>> numbers.map(lambda t: (t.x * 2,), schema="y long").run_sequential()
        [(y=2), (y=4)]
        """
        location = caller_location()
        must_be_callable("map", function, location)
        output = output_schema(self, "map", function, schema, location)
        must_return("map", function, location)
        called = elastic_function("map", seeing(function, self.schema), elastic, concurrency, location)
        return put(self, "map", lambda _: (Map(called), output), location, name, on_error=on_error)

    def filter(
        self,
        function: Callable[[Any], Any],
        *,
        name: str | None = None,
        on_error: str | None = None,
        elastic: bool = False,
        **concurrency: Unpack[ConcurrencyOptions],
    ) -> Stream:
        """The tuples for which the function is true; `on_error`, `elastic` and its options as in `map`."""
        location = caller_location()
        must_be_callable("filter", function, location)
        must_return("filter", function, location)
        called = elastic_function("filter", seeing(function, self.schema), elastic, concurrency, location)
        return put(self, "filter", lambda _: (Filter(called), self.schema), location, name, on_error=on_error)

    def flat_map(
        self,
        function: Callable[[Any], Any],
        schema: Any = None,
        *,
        name: str | None = None,
        on_error: str | None = None,
        elastic: bool = False,
        **concurrency: Unpack[ConcurrencyOptions],
    ) -> Stream:
        """Any number of tuples out for each in: the function yields them, or returns an iterable or None.

        `on_error`, `elastic` and its options as in `map`.
        """
        location = caller_location()
        must_be_callable("flat_map", function, location)
        output = output_schema(self, "flat_map", function, schema, location)
        called = elastic_function("flat_map", seeing(function, self.schema), elastic, concurrency, location)
        return put(self, "flat_map", lambda _: (FlatMap(called), output), location, name, on_error=on_error)

    def process(
        self,
        operator: Any,
        by: By | None = None,
        schema: Any = None,
        *,
        name: str | None = None,
        ttl: float | datetime.timedelta | None = None,
        persistence: str = "checkpointed",
        time: str | None = None,
        broadcast: Stream | None = None,
        version: int = 1,
        migrate: Step | Mapping[int, Step] | None = None,
        on_error: str | None = None,
        elastic: bool = False,
        **concurrency: Unpack[ConcurrencyOptions],
    ) -> Stream:
        """An operator with state.

        Parameters
        ----------
        operator : Operator, or a function or object that is called with a tuple
            An instance of a class derived from `Operator`, with its state declared; or ordinary code that keeps its
            own dicts, for which the compiler finds the key and manages the dicts. What it cannot prove to be
            partitioned runs on one thread; `explain` says why.
        by : str, function, ab.key(…), or sequence of these, optional
            The key: columns, fields of structs (``"bid.auction"``), functions of a tuple; needed for declared state.
        schema : str or class, optional
            The output's columns, as in `map`.
        ttl : seconds or timedelta, optional
            How long a key's state lives after it was last changed, by the clock of the epochs.
        persistence : "checkpointed" or "transient"
            Transient state is not written to the checkpoint: it is faster to give up than to keep, and begins
            anew after a restart or the loss of a host.
        on_error : "fail", "skip" or "dead_letter", optional
            As in `map`. A call that fails leaves the key's state as it was before.
        elastic : bool
            For an operator without state, as in `map`. What its `open()` gets (a connection, a model) is there once
            for each worker process of a host, and its `close()` gives it back.
        time : "event" or "clock", optional
            What the timers of the operator go by: the watermark of the stream, or the clock of the epochs. The first by
            default, if the stream has event time.
        broadcast : Stream, optional
            A stream whose tuples every key sees: the operator's ``on_broadcast(self, t)`` takes them, and changes what
            it declared with `ab.broadcast`. A call that fails there fails the epoch, whatever `on_error` says.
        version : int
            Which version of its declared state the operator has, from 1 on. Raise it when a field changes its meaning.
        migrate : function, or dict from versions to functions, optional
            Makes the state of a key from that of the version before: takes its fields by name, a dict, and gives them
            as they are now. Of several versions ``{1: first, 2: second}``: each from its version to the next. Called
            for each key that an earlier version left, when the key is first read; must be a function of its argument.
        """
        location = caller_location()
        if concurrency or elastic:
            check_elastic("process", elastic, concurrency, location)
        if persistence not in ("checkpointed", "transient"):
            raise ProgramError(
                f"process at {location}: persistence={persistence!r}; expected 'checkpointed' or 'transient'"
            )
        if isinstance(operator, type):
            raise ProgramError(f"process at {location}: give an instance, {operator.__name__}(), not the class")
        kind = type(operator)
        if accumulating.accumulators_of(kind):
            raise ProgramError(f"process at {location}: {kind.__name__} has accumulators: write stream.accumulate(…)")
        if broadcast is not None and not isinstance(broadcast, Stream):
            raise ProgramError(f"process at {location}: broadcast={broadcast!r}; expected a stream")
        if broadcast is not None and (elastic or by is None):
            raise ProgramError(
                f"process at {location}: broadcast=… is for an operator with a key, by=…"
                + (", which cannot be elastic" if elastic else "; without state enrich(…) may do, or a constant key")
            )
        if (version != 1 or migrate is not None) and (elastic or by is None):
            raise ProgramError(
                f"process at {location}: version=… and migrate=… are for declared state: an ab.Operator class and by=…"
            )
        if elastic:
            return self._process_elastic(operator, by, schema, location, name, concurrency, on_error)
        if by is None:
            return self._process_as_it_is(operator, schema, location, name, ttl, persistence, on_error)
        if not isinstance(operator, Operator):
            raise ProgramError(
                f"process at {location}: by=… needs an instance of an ab.Operator class, found {operator!r}"
                + (_derive(operator) or "; leave out by=… and the key of its own state is found")
            )
        keyed = keyed_by(under(self, on_error), "process", by, location, name or kind.__name__)
        function = kind.process
        if function is Operator.process:
            raise ProgramError(f"process at {location}: {kind.__name__} has no process(self, t) method")
        output = output_schema(self, "process", operator, schema, location, "process")
        transient = persistence == "transient"
        others = () if broadcast is None else (broadcast,)

        def make(_: str) -> tuple[Logic, Schema]:
            scale = stream_time.scale_of(self._node)
            if scale is not None:  # of one kind
                stream_time.scale_of(self._node, *(other._node for other in others))
            history = state_history(version, migrate, state_fields(kind))
            logic = keyed_logic(operator, to_milliseconds(ttl), transient, scale, time, history)
            told = broadcast_logic(operator, broadcast is not None)
            taken = {"process": self.schema}
            if broadcast is not None:
                taken["on_broadcast"] = broadcast.schema
            prototype = seeing_methods(logic.prototype, taken)
            logic = dataclasses.replace(logic, prototype=prototype, broadcast=told)
            return behind_key_columns(logic, self.schema) if keyed.added else logic, output

        keys = (keyed.names, ()) if others else ()
        wanted = kind.__name__
        made = put(keyed.stream, "process", make, location, name, keyed.names, wanted=wanted, others=others, keys=keys)
        return like(made, self)

    def _process_elastic(
        self, operator: Any, by: Any, schema: Any, location: Location, name: str | None, concurrency: Any, on_error: Any
    ) -> Stream:
        """An operator without state, several calls of which are under way at once."""
        shown = getattr(operator, "__name__", type(operator).__name__)
        fields = state_fields(type(operator))
        if by is not None or fields:
            kept = f"it declares state ({', '.join(field.name for field in fields)})" if fields else "by=… names a key"
            raise ProgramError(
                f"process at {location}: {shown} cannot be elastic: {kept}, and calls that are under way at the same "
                "time would change it in no certain order. Leave elastic=True out: channels run it in parallel by its "
                "key; or call what takes long in a map(…, elastic=True) before it"
            )
        if isinstance(operator, Operator) and type(operator).process is Operator.process:
            raise ProgramError(f"process at {location}: {shown} has no process(self, t) method")
        method = "process" if isinstance(operator, Operator) else "__call__"
        if not callable(getattr(operator, method, None)):
            raise ProgramError(f"process at {location}: expected a function or an ab.Operator, found {operator!r}")
        output = output_schema(self, "process", operator, schema, location, method)
        bound = operator.process if method == "process" else operator
        called = elastic_function("process", bound, True, concurrency, location)
        made = FlatMap(called)
        return put(self, "process", lambda _: (made, output), location, name, wanted=shown, on_error=on_error)

    def _process_as_it_is(
        self,
        operator: Any,
        schema: Any,
        location: Location,
        name: str | None,
        ttl: Any,
        kept: str,
        on_error: Any,
    ) -> Stream:
        """An operator that keeps its own state: the compiler finds out how it is partitioned."""
        if ttl is not None or kept != "checkpointed":
            raise ProgramError(f"process at {location}: ttl and persistence need a declared key: by=…")
        if isinstance(operator, Operator):
            if state_fields(type(operator)):
                raise ProgramError(
                    f"process at {location}: {type(operator).__name__} has state per key; name the key: by=…"
                )
            kind = type(operator)
            waiting = next(
                (each for each in _BETWEEN if getattr(kind, each, None) is not getattr(Operator, each, None)), None
            )
            if waiting is not None:
                raise ProgramError(
                    f"process at {location}: {type(operator).__name__}.{waiting} is called for keys that wait; name "
                    "the key: by=…"
                )
            method = "process"
        elif callable(operator):
            method = "__call__"
        else:
            raise ProgramError(
                f"process at {location}: expected a function or an object that can be called with a tuple, or an "
                f"instance of a class derived from ab.Operator; found {operator!r}{_derive(operator)}"
            )
        output = output_schema(self, "process", operator, schema, location, method)
        # Of functions and classes; an object may make up any attribute.
        shown = (
            operator.__name__ if inspect.isroutine(operator) or isinstance(operator, type) else type(operator).__name__
        )
        made = Process(operator, method)
        return put(self, "process", lambda _: (made, output), location, name, wanted=shown, on_error=on_error)

    # Which columns.
    select = selecting.select
    map_batches = batching.map_batches

    # Windows and patterns over the tuples of each key.
    aggregate = windowed.aggregate
    sort = windowed.sort
    deduplicate = windowed.deduplicate
    top = windowed.top
    match = windowed.match

    # Updates.
    changes = updating.changes

    # Sums over all tuples, several blocks at once.
    accumulate = accumulating.accumulate

    # What its time is.
    event_time = stream_time.event_time
    local_time = stream_time.local_time

    # What it was called before.
    was = versions.was

    # What becomes of calls that fail.
    on_error = failing.on_error
    dead_letters = failing.dead_letters

    # Together with other streams.
    union = joining.union
    join = joining.join
    enrich = joining.enrich
    combine = joining.combine
    align = joining.align

    # Where tuples go.
    split = branching.split
    route = branching.route
    spread = branching.spread
    punctuate = branching.punctuate
    unpunctuate = branching.unpunctuate

    # -- where operators run ----------------------------------------------------------------------------

    def isolate(self) -> Stream:
        """Give the operator that makes this stream a stage of its own: no other runs in its tasks.

        Its tuples come to it, and leave it, through a shuffle; without a key they are dealt out in turn. The output is
        the same. For an operator that needs memory, a library or a machine that the others should not pay for; the
        number of its channels adapts by itself. The outputs of a `split` or `route` are one operator with it.

        Examples
        --------
        >>> import anabranch as ab
        >>> numbers = ab.from_rows([(1,)], "x long")
        >>> stream = numbers.map(lambda t: (t.x * 2,), schema="y long", name="twice").isolate()
        >>> [stage.name for stage in stream.plan().layout.stages]
        ['source', 'twice']
        """
        return remade(self, isolated=True)

    def colocate(self, *others: str | Stream) -> Stream:
        """Run the operator that makes this stream in the stage of others, named here or given by their streams.

        Operators run together anyway where they can. This moves an operator without state that stands before one with
        state behind the shuffle: tuples are routed by the key first, which the operator must pass on. It pays if it
        makes many tuples of one, or if the source has few pieces. The output is the same. If it cannot be, starting
        the query is an error that says what is in the way, for example keys that have nothing in common.
        """
        location = caller_location()
        if not others or not all(isinstance(other, (str, Stream)) for other in others):
            raise ProgramError(f"colocate at {location}: expected names of operators, or streams; found {others!r}")
        marks = tuple(other if isinstance(other, str) else other._node.id for other in others)
        return remade(self, together=(*operator_of(self._node).together, *marks))

    # -- running ----------------------------------------------------------------------------------------

    def run_sequential(
        self, rows: Iterable[Any] | None = None, *, clocks_ms: Sequence[int] = (), ends: bool = False
    ) -> list[Row]:
        """The program on one thread, without Spark: what every other way of running it must equal.

        Parameters
        ----------
        rows : iterable, optional
            The source's tuples, as tuples, dicts or rows. Not needed if the sources were made of rows.
        clocks_ms : sequence of int, optional
            The time of each epoch, for programs in which time matters.
        ends : bool
            The input ends with the rows: windows close and timers are called, as with the option ``endOfInput``.
        """
        if rows is None:
            return run_epochs([self._node], clocks_ms, ends=ends).output
        run = SequentialRun(self._node, clocks_ms[0] if clocks_ms else 0)
        if len(run.sources) != 1:
            raise ProgramError(f"run_sequential(rows): the program has {len(run.sources)} sources; make them of rows")
        run.feed(rows)
        run.finish()
        if ends:
            run.end()
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
        # Not above: workers import this module, and each would load the whole compiler when it starts.
        from anabranch.compiler.compile import compiled

        return compiled([self._node])

    def explain(self, form: str = "text", extended: bool = False) -> None:
        """Print what runs: the stages and the shuffles between them; every operator with what was found about it, why,
        and from which line; and for what must run on one thread what blocks it and the smallest change that would free
        it.

        Parameters
        ----------
        form : "text", "json", "mermaid" or "svg"
        extended : bool
            As text or JSON, also what the tasks run: the code that is generated for each operator, the columns and
            fields that are read of files, and those that cross to another stage.
        """
        from anabranch.api.explaining import explained

        print(explained(self.plan(), form, extended))


_BETWEEN = ("on_timer", "on_punctuation", "on_end")


def _derive(operator: Any) -> str:
    return "; derive its class from ab.Operator" if hasattr(type(operator), "process") else ""
