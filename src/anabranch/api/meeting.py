"""The methods of a stream that bring streams together or take them apart: union, join, enrich, combine, route."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.joins import enrich_logic, join_logic, key_pairs, static_enrich_logic
from anabranch.operators.library_operator import configured
from anabranch.operators.routing import FirstOf
from anabranch.operators.sorting import combine_logic
from anabranch.operators.windows import Policy
from anabranch.program.graph import Location, Logic, Node, Port, Punctuate, Route, Spread, Union, caller_location
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


class Meeting:
    """Operators with several streams on one side."""

    if TYPE_CHECKING:
        _node: Node

        @property
        def schema(self) -> Schema: ...

        def _key(self, method: str, by: str | Sequence[str], location: Location) -> tuple[str, ...]: ...

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
        ) -> Stream: ...

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """All tuples of this stream and others with the same columns.

        Tuples that come from one tuple of a source keep the order in which the streams are named here.
        """
        location = caller_location()
        _must_be_streams("union", others, location)
        for other in others:
            if other.schema != self.schema:
                raise SchemaError(
                    f"union at {location}: expected streams with the columns {self.schema}, found {other.schema}; "
                    "bring them to one schema with map(…) first"
                )
        return self._operator("union", lambda _: (Union(), self.schema), location, name, others=others)

    def spread(self, *, name: str | None = None) -> Stream:
        """Deal the tuples out to channels in turn, so that what follows without state runs in parallel there.

        Not needed where tuples come from a source that Spark reads in many pieces: operators without state run
        where they are read. It pays behind a source of few pieces, or behind an operator on one thread, if what
        follows takes long. The order is kept, as always; the number of channels adapts.
        """
        return self._operator("spread", lambda _: (Spread(), self.schema), caller_location(), name)

    def route(self, function: Callable[[Any], int], ways: int, *, name: str | None = None) -> tuple[Stream, ...]:
        """Send each tuple to one of several streams: the function gives its number, from 0 to ways - 1."""
        location = caller_location()
        if not callable(function):
            raise ProgramError(f"route at {location}: expected a function of one tuple, found {function!r}")
        if isinstance(ways, bool) or not isinstance(ways, int) or ways < 1:
            raise ProgramError(f"route at {location}: ways={ways!r}; expected how many streams come out, 1 or more")
        return self._ways("route", lambda _: (Route(function, ways), self.schema), ways, location, name)

    def split(self, *predicates: Callable[[Any], Any], name: str | None = None) -> tuple[Stream, ...]:
        """A stream for each predicate, of the tuples for which it is the first to hold; and one for the rest.

        Examples
        --------
        >>> import anabranch as ab
        >>> small, large, rest = ab.from_rows([(1,), (9,)], "x long").split(lambda t: t.x < 3, lambda t: t.x > 5)
        """
        location = caller_location()
        if not predicates:
            raise ProgramError(f"split at {location}: expected at least one predicate")
        for predicate in predicates:
            if not callable(predicate):
                raise ProgramError(f"split at {location}: expected functions of one tuple, found {predicate!r}")
        ways = len(predicates) + 1

        def make(called: str) -> tuple[Logic, Schema]:
            functions = [(f"predicate {at}", predicate) for at, predicate in enumerate(predicates)]
            choice = configured(FirstOf, called, functions=functions, predicates=tuple(predicates))
            return Route(choice, ways), self.schema

        return self._ways("split", make, ways, location, name)

    def _ways(
        self, kind: str, make: Callable[[str], tuple[Logic, Schema]], ways: int, location: Location, name: str | None
    ) -> tuple[Stream, ...]:
        route = self._operator(kind, make, location, name)
        named = route._node.name
        return tuple(route._port(at, location, f"{named}_{at}") for at in range(ways))

    def _port(self, at: int, location: Location, wanted: str) -> Stream:
        return self._operator("port", lambda _: (Port(at), self.schema), location, None, wanted=wanted)

    def punctuate(self, predicate: Callable[[Any], Any], *, name: str | None = None) -> Stream:
        """The same tuples, with a punctuation behind each for which the predicate is true.

        Punctuations end the windows of operators that are told so: ``window=punctuation()``.
        """
        location = caller_location()
        if not callable(predicate):
            raise ProgramError(f"punctuate at {location}: expected a function of one tuple, found {predicate!r}")
        return self._operator("punctuate", lambda _: (Punctuate(predicate), self.schema), location, name)

    def join(
        self,
        other: Stream,
        by: Any,
        window: Policy | tuple[Policy, Policy],
        how: str = "inner",
        function: Callable[[Any, Any], Any] | None = None,
        schema: Any = None,
        *,
        name: str | None = None,
    ) -> Stream:
        """Pairs of tuples of two streams that agree on a key, within a window.

        Each tuple meets those of the other stream's window when it comes, in the order they came.

        Parameters
        ----------
        by : str, pair of str, or list of these
            The key. A tuple is a pair: the column here and the column there.
        window : count(n), delta(attribute, size) or event_time(attribute, size), or a pair of one kind
            What a side holds for the other's tuples to meet: its key's last n tuples; tuples whose attribute is at
            most `size` apart from that of the tuple that comes; the same with tuples that come late by up to the
            lateness. Of a pair the first is for this side and the second for the other.
        how : "inner", "left", "right" or "outer"
            Whether a tuple of this side, the other, or both, that leaves its window without having met one is emitted
            with nulls.
        function : callable, optional
            Makes the result from the two tuples, of which one may be None in an outer join; needs `schema`. By default
            the result has the columns of this side, then those of the other without its key.
        """
        location = caller_location()
        _must_be_streams("join", (other,), location)
        pairs, keys = self._pairs("join", by, other, location)

        def make(called: str) -> tuple[Logic, Schema]:
            return join_logic(self.schema, other.schema, pairs, window, how, function, schema, called)

        return self._operator("join", make, location, name, keys[0], others=(other,), keys=keys)

    def enrich(self, table: Any, by: Any, how: str = "left", schema: Any = None, *, name: str | None = None) -> Stream:
        """Add the columns of a table to each tuple.

        Parameters
        ----------
        table : Stream, or list of rows, or dict
            A stream: the last tuple of each key counts, when a tuple comes. Rows, or a dict from keys to the other
            columns: a table that never changes; the operator then has no state.
        by : str, pair of str, or list of these
            The key. A tuple is a pair: the column here and the column of the table.
        how : "left" or "inner"
            What a tuple does for which there is no row: go on with nulls, or go.
        schema : str or class
            The columns of a table that is no stream; of a dict, the key's columns first.

        Examples
        --------
        >>> import anabranch as ab
        >>> orders = ab.from_rows([("a", 3), ("c", 1)], "who string, amount long")
        >>> orders.enrich({"a": "Anna"}, by="who", schema="who string, name string").run_sequential()
        [(who='a', amount=3, name='Anna'), (who='c', amount=1, name=None)]
        """
        location = caller_location()
        from anabranch.api.stream import Stream

        if isinstance(table, Stream):
            if schema is not None:
                raise SchemaError(
                    f"enrich at {location}: the table is a stream and has its own schema; leave out schema=…"
                )
            pairs, keys = self._pairs("enrich", by, table, location)
            stream = table

            def make(called: str) -> tuple[Logic, Schema]:
                return enrich_logic(self.schema, stream.schema, pairs, how, called)

            return self._operator("enrich", make, location, name, keys[0], others=(table,), keys=keys)
        if not isinstance(table, (Mapping, Iterable)) or isinstance(table, (str, bytes)):
            raise ProgramError(f"enrich at {location}: expected a stream, a list of rows or a dict, found {table!r}")
        if schema is None:
            raise SchemaError(f"enrich at {location}: the columns of the table are unknown; give schema='…'")

        def make_static(called: str) -> tuple[Logic, Schema]:
            columns = Schema.of(schema)
            pairs = key_pairs(by, self.schema, columns)
            return static_enrich_logic(self.schema, table, pairs, how, columns, called)

        return self._operator("enrich", make_static, location, name)

    def combine(
        self,
        other: Stream,
        on: str,
        *,
        by: str | Sequence[str] | None = None,
        nulls: str = "fail",
        name: str | None = None,
    ) -> Stream:
        """Merge this stream and another, each in the order of an attribute, into one in that order.

        When both have a tuple waiting, the smaller goes; of equals, that of this stream. So a tuple waits until the
        other stream has come as far.

        Parameters
        ----------
        on : str
            The attribute. A tuple that goes backwards on its own stream keeps its place there, and is counted as
            ``backwards``.
        by : str or sequence of str, optional
            Combine the tuples of each key by themselves; without it everything runs on one thread.
        nulls : "fail" or "drop"
            What a tuple does without the attribute; dropped ones are counted as ``null_attribute``.
        """
        location = caller_location()
        _must_be_streams("combine", (other,), location)
        key = () if by is None else self._key("combine", by, location)

        def make(called: str) -> tuple[Logic, Schema]:
            return combine_logic(self.schema, other.schema, on, key, nulls, called), self.schema

        return self._operator("combine", make, location, name, key, others=(other,), keys=(key, key))

    def _pairs(
        self, method: str, by: Any, other: Stream, location: Location
    ) -> tuple[list[tuple[str, str]], tuple[tuple[str, ...], tuple[str, ...]]]:
        try:
            pairs = key_pairs(by, self.schema, other.schema)
        except SchemaError as problem:
            raise SchemaError(f"{method} at {location}: {problem}") from None
        left = self._key(method, [one for one, _ in pairs], location)
        right = other._key(method, [each for _, each in pairs], location)
        return pairs, (left, right)


def _must_be_streams(method: str, others: Sequence[Any], location: Location) -> None:
    from anabranch.api.stream import Stream

    if not others:
        raise ProgramError(f"{method} at {location}: expected at least one other stream")
    for other in others:
        if not isinstance(other, Stream):
            raise ProgramError(f"{method} at {location}: expected a stream, found {other!r}")
