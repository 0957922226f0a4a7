"""Accumulators: state that several workers add to, each in a copy of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from anabranch.api.building import output_schema, put
from anabranch.api.concurrency import ConcurrencyOptions, check_elastic
from anabranch.api.declarations import Operator, make_prototype, state_fields
from anabranch.api.stream_time import scale_of
from anabranch.errors import ProgramError
from anabranch.operators.accumulation import accumulate_logic
from anabranch.operators.timers import TimedOperator
from anabranch.program.elastic import Concurrency, concurrency_of, is_async
from anabranch.program.graph import Location, Logic, caller_location
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


class _Accumulator:
    """What `accumulator()` leaves in the class body."""

    def __init__(self, factory: Callable[[], Any], merge: Callable[[Any, Any], Any], commutative: bool) -> None:
        self.factory = factory
        self.merge = merge
        self.commutative = commutative


def accumulator(factory: Callable[[], Any], *, merge: Callable[[Any, Any], Any], commutative: bool = False) -> Any:
    """Declare an attribute of an `Operator` as an accumulator, for `Stream.accumulate`.

    Parameters
    ----------
    factory : callable
        Makes a new one, with nothing in it.
    merge : callable
        Makes one of two: of what came earlier and what came later. It may change the first, and not the second.
    commutative : bool
        What came later may stand first: copies are then merged as they are done. The result may differ from that of
        one thread (in the last bits of sums of floating point numbers, say); `explain` says so.

    Examples
    --------
    >>> import anabranch as ab
    >>> class Mean(ab.Operator):
    ...     sums = ab.accumulator(lambda: [0, 0.0], merge=lambda a, b: [a[0] + b[0], a[1] + b[1]])
    ...     def process(self, t):
    ...         self.sums[0] += 1
    ...         self.sums[1] += t.x
    ...     def result(self):
    ...         return (self.sums[1] / self.sums[0],)
    >>> stream = ab.from_rows([(float(x),) for x in range(8)], "x double")
    >>> stream.accumulate(Mean(), "mean double", block=2, every=4).run_sequential()
    [(mean=1.5), (mean=3.5)]
    """
    if not callable(factory) or not callable(merge):
        raise ProgramError(f"accumulator({factory!r}, merge={merge!r}): expected two functions")
    return _Accumulator(factory, merge, commutative)


def accumulators_of(kind: type) -> dict[str, _Accumulator]:
    """The accumulators that a class declares, base classes first."""
    found: dict[str, _Accumulator] = {}
    for owner in reversed(kind.__mro__):
        for name, value in vars(owner).items():
            if isinstance(value, _Accumulator):
                found[name] = value
            else:
                found.pop(name, None)
    return found


def accumulate(
    stream: Stream,
    operator: Any,
    schema: Any = None,
    *,
    block: int = 256,
    every: int | None = None,
    name: str | None = None,
    elastic: bool = False,
    **concurrency: Unpack[ConcurrencyOptions],
) -> Stream:
    """Add up over all tuples of a stream, several blocks of them at once.

    Parameters
    ----------
    operator : Operator
        An instance of a class with attributes declared by `accumulator`. Its ``process(self, t)`` adds a tuple, and may
        emit tuples; it sees the copy of its block only. Its ``result(self)`` sees what was added so far, by all.
    schema : str or class, optional
        The output's columns, as in `map`.
    block : int
        Tuples that share a copy: one worker adds them, one after the other.
    every : int, optional
        After so many tuples, a multiple of the block's, copies are merged and ``result`` is called; 16 blocks if it is
        left out. What comes after the last multiple is held until there are as many, or until the input ends (the
        option ``endOfInput="close"``): then ``result`` is called once more.
    elastic : bool
        Several blocks are under way at once, as many as pay off; `max_workers`, `min_workers`, `period` and
        `controller` as in `map`. The output is the same with and without.
    """
    location = caller_location()
    check_elastic("accumulate", elastic, concurrency, location)
    where = f"accumulate at {location}"
    declared = _checked(operator, where)
    if isinstance(block, bool) or not isinstance(block, int) or block < 1:
        raise ProgramError(f"{where}: block={block!r}: expected a whole number from 1 on")
    every = 16 * block if every is None else every
    if isinstance(every, bool) or not isinstance(every, int) or every < 1 or every % block:
        raise ProgramError(f"{where}: every={every!r}: expected a multiple of block={block}")
    output = output_schema(stream, "accumulate", operator, schema, location, "result")
    settings = _settings(operator, elastic, concurrency, where, location)
    has_time = scale_of(stream._node) is not None

    def make(called: str) -> tuple[Logic, Schema]:
        found = [(each, made.factory, made.merge) for each, made in declared.items()]
        is_commutative = all(made.commutative for made in declared.values())
        prototype = make_prototype(operator)
        logic = accumulate_logic(prototype, found, block, every, is_commutative, settings, has_time, called)
        return logic, output

    return put(stream, "accumulate", make, location, name, wanted=type(operator).__name__)


def _checked(operator: Any, where: str) -> dict[str, _Accumulator]:
    """The accumulators of an operator that has what it takes."""
    kind = type(operator)
    if not isinstance(operator, Operator):
        raise ProgramError(f"{where}: expected an instance of an ab.Operator class, found {operator!r}")
    declared = accumulators_of(kind)
    if not declared:
        raise ProgramError(
            f"{where}: {kind.__name__} declares no accumulator; write: total = ab.accumulator(list, merge=…)"
        )
    fields = state_fields(kind)
    if fields:
        raise ProgramError(
            f"{where}: {kind.__name__} also declares state ({', '.join(field.name for field in fields)}), which blocks "
            "that are under way at the same time would change in no certain order. Keep it in an operator of its own"
        )
    if kind.process is Operator.process:
        raise ProgramError(f"{where}: {kind.__name__} has no process(self, t) method")
    if not callable(getattr(kind, "result", None)):
        raise ProgramError(f"{where}: {kind.__name__} has no result(self) method: what is emitted after each merge")
    between = ("on_timer", "on_end", "on_punctuation", "open")
    for method in between:
        if getattr(kind, method, None) is not getattr(TimedOperator, method, None):
            raise ProgramError(f"{where}: {kind.__name__} has {method}(): an operator with accumulators has none")
    if is_async(kind.process):
        raise ProgramError(f"{where}: {kind.__name__}.process is async: a block is added by one worker, in its order")
    return declared


def _settings(
    operator: Any, elastic: bool, concurrency: ConcurrencyOptions, where: str, location: Location
) -> Concurrency | None:
    if not elastic:
        return None
    for name in ("timeout", "retries", "workers"):
        if name in concurrency:
            raise ProgramError(
                f"{where}: {name}=… does not go with accumulators: a block that was given up half-way has changed its "
                "copy. Call what may fail in a map(…, elastic=True) before it"
            )
    try:
        return concurrency_of(operator.process, **concurrency)
    except ProgramError as problem:
        raise ProgramError(f"{where}: {problem}") from None
